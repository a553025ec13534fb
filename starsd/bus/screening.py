"""What a hub accepts from a queue, and what it answers when it does not."""

from __future__ import annotations

from starsd.errors import ProtocolError
from starsd.protocol.codec import decode_to_hub, read_sender
from starsd.protocol.keys import Keys
from starsd.protocol.messages import Close, Have, Proposal, Status, ToHub
from starsd.protocol.tokens import EMPTY_DIGEST


def check_reply_key(keys: Keys, reply_key: str) -> None:
    """Raises ProtocolError unless this is the key of a reply stream of this star."""
    if not reply_key.startswith(keys.reply_prefix):
        raise ProtocolError(f"reply_key {reply_key!r}: must begin with {keys.reply_prefix!r}")


def decode_job(keys: Keys, data: bytes | None) -> ToHub:
    """Raises ProtocolError for anything that no target of this star would send."""
    if data is None:
        raise ProtocolError("entry without a message")
    message = decode_to_hub(data)
    if not isinstance(message, Close):
        check_reply_key(keys, message.reply_key)
    return message


def bad_answer(keys: Keys, data: bytes, hub: str, boot: str) -> tuple[str, Proposal] | None:
    """Reply key and ``bad`` proposal for a job that was not accepted, if we know its sender."""
    sender = read_sender(data)
    if sender is None or not sender.reply_key.startswith(keys.reply_prefix):
        return None
    return sender.reply_key, Proposal(
        session=sender.session,
        seq=sender.seq,
        epoch=sender.epoch,
        round=sender.round,
        attempt=sender.attempt,
        status=Status.BAD,
        tokens=b"",
        parents=None,
        have=Have(0, EMPTY_DIGEST),
        max_depth=0,
        retry_after_ms=0,
        hub=hub,
        hub_boot=boot,
        queue_us=0,
        service_us=0,
    )

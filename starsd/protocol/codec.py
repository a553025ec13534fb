"""Wire messages to bytes and back: msgpack arrays ``[kind, version, ...]``, strict and bounded."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from starsd.errors import ProtocolError
from starsd.protocol.messages import (
    MAX_ENTRY_BYTES,
    Close,
    Count,
    Foresight,
    Hello,
    Key,
    Name,
    Proposal,
    Propose,
    Refused,
    ToHub,
    ToTarget,
    Welcome,
)

M = TypeVar("M")

_U32 = 4
_encoder = msgspec.msgpack.Encoder()
_to_hub: msgspec.msgpack.Decoder[ToHub] = msgspec.msgpack.Decoder(Hello | Propose | Close)
_to_target: msgspec.msgpack.Decoder[ToTarget] = msgspec.msgpack.Decoder(
    Welcome | Refused | Proposal | Foresight
)


def encode(message: ToHub | ToTarget) -> bytes:
    """One stream entry's bytes. Raises ProtocolError when over MAX_ENTRY_BYTES."""
    data = _encoder.encode(message)
    _check_size(data)
    return data


def decode_to_hub(data: bytes) -> ToHub:
    """A message of Q_in or of a sticky queue. Raises ProtocolError naming the place."""
    return _check_tokens(_decode(_to_hub, data))


def decode_to_target(data: bytes) -> ToTarget:
    """A message of Q_out. Raises ProtocolError naming the place."""
    return _check_tokens(_decode(_to_target, data))


def _decode(decoder: msgspec.msgpack.Decoder[M], data: bytes) -> M:
    _check_size(data)
    try:
        return decoder.decode(data)
    # Hostile nesting exhausts the decoder's recursion limit even inside fields it would skip.
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"undecodable entry: {error}") from error


def _check_size(data: bytes) -> None:
    if len(data) > MAX_ENTRY_BYTES:
        raise ProtocolError(f"entry of {len(data)} bytes; the limit is {MAX_ENTRY_BYTES}")


def _check_tokens(message: M) -> M:
    if isinstance(message, Propose | Proposal | Foresight) and len(message.tokens) % _U32:
        raise ProtocolError(
            f"undecodable entry: {len(message.tokens)} bytes is not a whole number of u32 ids"
            " - at `$.tokens`"
        )
    return message


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to answer about a job that did not decode."""

    session: Name
    seq: Name
    epoch: Count
    round: Count
    attempt: Count
    reply_key: Key


_array: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
_SENDER_FIELDS = slice(2, 2 + len(Sender.__struct_fields__))


def read_sender(data: bytes) -> Sender | None:
    """Sender of a ``propose`` entry of any size or version, if that much of it can be read."""
    try:
        kind, *_ = parts = _array.decode(data)
        if msgspec.msgpack.decode(kind) != "propose":
            return None
        values = [_plain(part) for part in parts[_SENDER_FIELDS]]
        fields = dict(zip(Sender.__struct_fields__, values, strict=True))
        return msgspec.convert(fields, Sender)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _plain(raw: msgspec.Raw) -> Any:
    return msgspec.msgpack.decode(raw)

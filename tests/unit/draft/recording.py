"""A hub whose bus is a list and whose drafter counts: token n is proposed at position n."""

from __future__ import annotations

import socket
from typing import Any

from services.draft.step import HubLoop
from starsd.bus.interface import BadJob, Job
from starsd.drafters.ahead import Ahead
from starsd.drafters.interface import DraftSequence
from starsd.process.channel import LoopChannel
from starsd.protocol.frames import ToLoop
from starsd.protocol.messages import (
    Close,
    Facts,
    Hello,
    Limits,
    Proposal,
    Propose,
    ToHub,
    ToTarget,
)
from starsd.protocol.pods import DrafterKind, Needs, Offer
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokens import pack_tokens, prefix_digest
from starsd.settings.draft import DraftSettings

VOCAB = 1000
CHUNK = 4


class RecordingBus:
    """A HubBus without a broker."""

    connected = True

    def __init__(self) -> None:
        self.arriving: list[Job | BadJob] = []
        self.replies: list[tuple[str, ToTarget]] = []
        self.acknowledged: list[str] = []
        self.gone: list[str] = []
        self.wanted_first: list[int] = []

    def receive(self, timeout_s: float, *, want_first: int) -> list[Job | BadJob]:
        self.wanted_first.append(want_first)
        arriving, self.arriving = self.arriving, []
        return arriving

    def reply(self, reply_key: str, message: ToTarget) -> None:
        self.replies.append((reply_key, message))

    def done(self, job: Job) -> None:
        self.acknowledged.append(job.entry)

    def flush(self) -> list[str]:
        gone, self.gone = self.gone, []
        return gone

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None: ...


class CountingDrafter:
    """Drafts the position itself, one token a step, prefixes in chunks."""

    vocab_size = VOCAB

    def __init__(self, slots: int, kv_blocks: int, max_length: int) -> None:
        self.max_length = max_length
        self.slots = slots
        self.kv_blocks = kv_blocks
        self.released: list[int] = []
        self.batches: list[list[int]] = []
        self.foreseen: list[list[int]] = []

    def step(self, sequences: list[DraftSequence]) -> int:
        self.batches.append([sequence.slot for sequence in sequences])
        return sum(map(self._advance, sequences))

    def _advance(self, sequence: DraftSequence) -> int:
        text = sequence.tokens + sequence.drafted
        before = min(sequence.cached, len(text) - 1)
        sequence.cached = min(sequence.cached + CHUNK, len(text))
        if sequence.cached == len(text) and not sequence.complete:
            sequence.drafted.append(len(text))
        return sequence.cached - before

    def run_ahead(self, sequences: list[DraftSequence]) -> int:
        """Foresees that all comes true, and a token more."""
        self.foreseen.append([sequence.slot for sequence in sequences])
        for sequence in sequences:
            if sequence.ahead is None:
                sequence.ahead = Ahead(trees=False, exact=True)
            path = sequence.ahead.path(sequence.ahead.frontier[0])
            sequence.ahead.grow([([len(sequence.tokens) + len(path)], [1.0])])
            sequence.ahead.spent += 1
            sequence.cached = len(sequence.tokens)
        return len(sequences)

    def release(self, slot: int) -> None:
        self.released.append(slot)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Desktop:
    """One hub with everything a test wants to look at."""

    def __init__(
        self,
        slots: int = 2,
        kv_blocks: int = 100,
        length: int = 64,
        needs: Needs | None = None,
        **settings: Any,
    ) -> None:
        self.bus = RecordingBus()
        self.clock = Clock()
        self.drafter = CountingDrafter(slots, kv_blocks, length)
        self.front, loop = socket.socketpair()
        self.channel: LoopChannel[ToLoop] = LoopChannel(loop, ToLoop)
        given: dict[str, Any] = {"id": "hub", "boot": "h1", **settings}
        offer = Offer(
            kind=DrafterKind.LM if needs is None else DrafterKind.EAGLE,
            model="m",
            revision="r",
            tokenizer="tok",
            vocab_size=VOCAB,
            max_length=length,
            limits=Limits(max_depth=8),
            needs=needs,
        )
        self.hub = HubLoop(
            self.drafter, offer, self.bus, self.channel, DraftSettings(**given), self.clock
        )
        self._entries = 0

    def close(self) -> None:
        self.channel.close()
        self.front.close()

    def send(self, *messages: ToHub, age_s: float = 0.0) -> list[str]:
        """Put messages on the queue; their entry ids."""
        entries = []
        for message in messages:
            self._entries += 1
            entry = f"{self._entries}-0"
            self.bus.arriving.append(Job(entry, "queue", message, age_s, first=False))
            entries.append(entry)
        return entries

    def run(self) -> list[ToTarget]:
        """Step until there is no more work; the replies since the last call."""
        while self.hub.step():
            pass
        replies = [message for _, message in self.bus.replies]
        self.bus.replies.clear()
        return replies

    def ask(self, *messages: ToHub, age_s: float = 0.0) -> list[Proposal]:
        """Send, run, and return the proposals."""
        self.send(*messages, age_s=age_s)
        return [reply for reply in self.run() if isinstance(reply, Proposal)]


def make_hello(
    session: str = "t:b",
    tokenizer: str = "tok",
    vocab: int = VOCAB,
    target: str = "t",
    *,
    foresight: bool = False,
) -> Hello:
    return Hello(
        session=session,
        target=target,
        boot="b",
        facts=Facts(tokenizer=tokenizer, vocab_size=vocab, revision="r", max_length=64),
        reply_key=f"out:{session}",
        foresight=foresight,
    )


def make_job(
    tokens: list[int], base: list[int] | None = None, *, depth: int = 4, **changes: Any
) -> Propose:
    """A job whose prefix is ``base`` (already sent) and ``tokens``."""
    fields: dict[str, Any] = {
        "session": "t:b",
        "seq": "s",
        "epoch": 0,
        "round": 0,
        "attempt": 0,
        "reply_key": "out:t:b",
        "base": len(base or []),
        "digest": prefix_digest(base or []),
        "tokens": pack_tokens(tokens),
        "depth": depth,
        "max_nodes": depth,
        "ttl_ms": 1000,
        "sampling": SamplingParams(seed=1, temperature=0.0),
        **changes,
    }
    return Propose(**fields)


def make_close(session: str = "t:b", seq: str | None = "s") -> Close:
    return Close(session=session, seq=seq)

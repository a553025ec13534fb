"""A target whose hidden states say everything of its text, and draft heads that can read them.

The state after a token is a hash of the state before it and the token, so a head that is given
the right state and the right token knows the next state, and with it the target's own logits. Fed
with anything else, or rolled back wrongly, it says something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from starsd.engine.interface import (
    Features,
    HeadOutput,
    HeadRow,
    Logits,
    Row,
    States,
)
from starsd.engine.kv_budget import blocks_of, plan_kv
from starsd.errors import ConfigError, EngineError
from starsd.protocol.messages import Limits
from starsd.protocol.pods import DrafterKind, Needs, Offer
from starsd.settings.draft import DraftSettings
from starsd.settings.model import ModelSettings
from starsd.settings.target import TargetSettings
from tests.scripted import (
    EOS,
    POSITION_BYTES,
    VOCAB,
    ScriptedModel,
    ScriptedRunner,
)

HIDDEN = 6
TAPS = (1, 3)
DEPTH = 4
"""Layers of the target."""
State = bytes


def state_after(history: Sequence[int], state: State = bytes(HIDDEN)) -> State:
    for token in history:
        data = state + int(token).to_bytes(4, "little")
        state = hashlib.blake2b(data, digest_size=HIDDEN).digest()
    return state


def logits_of(state: State, salt: bytes = b"") -> Logits:
    """About 3 bits; rarely ends."""
    seed = int.from_bytes(hashlib.blake2b(salt + state, digest_size=8).digest(), "little")
    logits = np.random.default_rng(seed).normal(0.0, 2.6, VOCAB).astype(np.float32)
    logits[EOS:] = -30.0
    return logits


class StateModel(ScriptedModel):
    """Its text is a function of its state."""

    def logits(self, history: Sequence[int]) -> Logits:
        return logits_of(state_after(history))

    def runner(self) -> TappedRunner:
        return TappedRunner(self)


class TappedRunner(ScriptedRunner):
    """Layer ``i`` leaves the state's bytes, each ``i`` more."""

    def __init__(self, model: ScriptedModel) -> None:
        super().__init__(model)
        self.taps: tuple[int, ...] = ()
        self.read: list[Features] = []

    def tap(self, layers: Sequence[int]) -> None:
        if max(layers) > DEPTH:
            raise ConfigError(f"no layer {max(layers)}; there are {DEPTH}")
        self.taps = tuple(layers)

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        before = [self.held[row.slot][: row.start] for row in rows]
        logits = super().forward(rows)
        self.read = [self._read(*pair) for pair in zip(before, rows, strict=True)]
        return logits

    def features(self) -> list[Features]:
        return self.read

    def _read(self, before: list[int], row: Row) -> Features:
        if not self.taps:
            return np.empty((len(row.tokens), 0), np.uint16)
        state = state_after(before)
        paths = [row.path(index) for index in range(len(row.tokens))]
        return np.stack([features_of(state_after(path, state), self.taps) for path in paths])


def features_of(state: State, taps: Sequence[int] = TAPS) -> Features:
    """One row ``[taps * HIDDEN]``."""
    numbers = np.frombuffer(state, np.uint8).astype(np.int64)
    layers = [(numbers + layer) % 256 for layer in taps]
    bits = np.concatenate(layers).astype(np.float32).view(np.uint32) >> 16
    return bits.astype(np.uint16)


class ScriptedHead:
    """A ``HeadRunner`` over such states. ``torn`` counts pairs that do not follow what the slot
    holds before them; ``wrong`` is the share of states after which it is mistaken."""

    layers = TAPS
    hidden_size = HIDDEN
    vocab_size = VOCAB
    revision = "head"
    target_revision = "scripted-StateModel"

    def __init__(
        self, settings: ModelSettings, wrong: float = 0.0, ids: npt.NDArray[np.int64] | None = None
    ) -> None:
        self.max_length = settings.max_length
        self.slots, self.kv_blocks = plan_kv(
            settings.kv_memory,
            POSITION_BYTES,
            settings.max_sequences,
            self.max_length,
            lazily=True,
        )
        self.draft_ids = np.arange(VOCAB) if ids is None else ids
        self.held: list[list[State]] = [[] for _ in range(self.slots)]
        self.wrong = wrong
        self.torn = 0
        self.fused = 0
        self.batches: list[list[HeadRow]] = []
        self.released: list[int] = []

    def parts(self) -> dict[str, float]:
        return {}

    def fuse(self, features: Features) -> States:
        self.fused += len(features)
        numbers = (features.astype(np.uint32) << 16).view(np.float32)
        first = numbers[:, :HIDDEN] - self.layers[0]
        return np.where(first < 0, first + 256, first).astype(np.float32)

    def forward(self, rows: Sequence[HeadRow]) -> list[HeadOutput]:
        if len({row.slot for row in rows}) < len(rows):
            raise EngineError("two rows share a slot")
        self.batches.append(list(rows))
        found = [self._row(row) for row in rows]
        if sum(blocks_of(len(held)) for held in self.held) > self.kv_blocks:
            raise EngineError("more blocks are held than may be")
        return found

    def release(self, slot: int) -> None:
        self.released.append(slot)
        self.held[slot] = []

    def _row(self, row: HeadRow) -> HeadOutput:
        held = self.held[row.slot]
        if row.start > len(held) or row.start + len(row.tokens) > self.max_length:
            raise EngineError(f"{len(row.tokens)} pairs at {row.start} do not fit")
        if not len(row.tokens) == len(row.states):
            raise EngineError(f"{len(row.tokens)} tokens, {len(row.states)} states")
        after: list[State] = []
        parents = row.parents or range(-1, len(row.tokens) - 1)
        for token, numbers, parent in zip(row.tokens, row.states, parents, strict=True):
            state = bytes(int(number) & 255 for number in numbers)
            before = after[parent] if parent >= 0 else held[row.start - 1] if row.start else state
            self.torn += state != before
            after.append(state_after([token], state))
        self.held[row.slot] = held[: row.start] + after
        wanted = after[len(after) - row.want :]
        logits = [self._logits(state)[self.draft_ids] for state in wanted]
        states = [np.frombuffer(state, np.uint8).astype(np.float32) for state in wanted]
        return HeadOutput(
            np.array(logits, np.float32).reshape(row.want, len(self.draft_ids)),
            np.array(states, np.float32).reshape(row.want, HIDDEN),
        )

    def _logits(self, state: State) -> Logits:
        mistaken = hashlib.blake2b(b"?" + state, digest_size=1).digest()[0] < 256 * self.wrong
        return logits_of(state, b"!" if mistaken else b"")


def make_target(slots: int = 4, length: int = 256, **settings: int) -> TappedRunner:
    given = {"max_sequences": slots, "max_length": length, **settings}
    return StateModel(TargetSettings(**given)).runner()  # type: ignore[arg-type]


def make_head(slots: int = 4, length: int = 256, wrong: float = 0.0) -> ScriptedHead:
    return ScriptedHead(DraftSettings(max_sequences=slots, max_length=length), wrong)


def head_offer(head: ScriptedHead, max_depth: int = 8, **needs: object) -> Offer:
    given = {"hidden_size": HIDDEN, "layers": head.layers, "revision": head.target_revision}
    return Offer(
        kind=DrafterKind.EAGLE,
        model="m",
        revision=head.revision,
        tokenizer="tok",
        vocab_size=head.vocab_size,
        max_length=head.max_length,
        limits=Limits(max_depth=max_depth),
        needs=Needs(**given | needs),  # type: ignore[arg-type]
    )

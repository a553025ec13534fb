"""What pods publish about themselves in the registry, and the offers targets check."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Annotated

import msgspec

from starsd.protocol.messages import MAX_ENTRY_BYTES, Facts, Limits

BFLOAT16_BYTES = 2
MAX_ROW_BYTES = MAX_ENTRY_BYTES // 4
"""An entry holds a few positions at least."""


class DrafterKind(StrEnum):
    LM = "lm"
    EAGLE = "eagle"


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a drafter needs of a target besides tokens (EAGLE: its hidden states).

    ``layers`` are the taps of ``Runner.tap``; ``revision`` is that of the target's weights, empty
    where nobody noted it.
    """

    hidden_size: Annotated[int, msgspec.Meta(ge=1)]
    layers: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1)]
    revision: str = ""

    @property
    def width(self) -> int:
        """Numbers that a position takes."""
        return self.hidden_size * len(self.layers)

    @property
    def row_bytes(self) -> int:
        return BFLOAT16_BYTES * self.width


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a hub drafts with. Targets compare it by rule, not by equality."""

    kind: DrafterKind
    model: str
    revision: str
    tokenizer: str
    vocab_size: int
    max_length: int
    limits: Limits
    needs: Needs | None = None

    @property
    def digest(self) -> str:
        """Sixteen hex digits naming this offer's Q_in; equal offers share one."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()


def incompatibility(offer: Offer, facts: Facts) -> str | None:
    """Why a target with these facts cannot use this offer, or None if it can.

    Vocabularies may differ in size (padding, pruned heads): ids both know mean the same when the
    tokenizers agree, and the hub never proposes an id the target lacks.
    """
    if offer.tokenizer != facts.tokenizer:
        return f"tokenizer: hub has {offer.tokenizer}, target has {facts.tokenizer}"
    return None if offer.needs is None else _unmet(offer.needs, facts)


def _unmet(needs: Needs, facts: Facts) -> str | None:
    if needs.revision not in ("", facts.revision):
        return f"revision: hub drafts for {needs.revision}, target is {facts.revision}"
    if needs.row_bytes > MAX_ROW_BYTES:
        return f"width: a position takes {needs.row_bytes} bytes, the limit is {MAX_ROW_BYTES}"
    return None


class PodState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


class HubPod(msgspec.Struct, frozen=True, kw_only=True, tag_field="role", tag="draft"):
    id: str
    boot: str
    state: PodState
    offer: Offer
    free_slots: int = 0


class TargetPod(msgspec.Struct, frozen=True, kw_only=True, tag_field="role", tag="target"):
    """``running`` and ``waiting`` are answers under way; ``capacity`` is how many may run at once.
    The model also goes by its ``aliases``."""

    id: str
    boot: str
    state: PodState
    url: str
    model: str
    aliases: tuple[str, ...] = ()
    max_length: int
    running: int = 0
    waiting: int = 0
    capacity: int = 1

    @property
    def load(self) -> float:
        """Requests inside per slot; what the gateway's power of two choices compares."""
        return (self.running + self.waiting) / max(1, self.capacity)


Pod = HubPod | TargetPod

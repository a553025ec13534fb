"""Who computes: the sequences that hold KV slots, and the memory their slots may take."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from services.target.features import Features
from services.target.prefixes import BLOCK, Prefix, Prefixes, closest
from services.target.sequence import NO_SLOT, Sequence
from services.target.stats import StarStats
from starsd.engine.interface import KV_BLOCK, Runner, SlotState
from starsd.engine.kv_budget import KvBudget, blocks_of

WORTH_AWAITING = 64
"""Tokens of a common beginning for which a newcomer waits while another computes them."""


class Slots:
    """``running`` sequences by id, in the order in which they came: the oldest is always served,
    the youngest makes room. Before it does, what ended sequences left behind is given up."""

    def __init__(
        self, runner: Runner, features: Features, stats: StarStats, prefix_cache: float
    ) -> None:
        """``prefix_cache``: the share of KV memory in which prefixes of the ended may stay."""
        self._runner = runner
        self._features = features
        self._stats = stats
        self._free = list(range(runner.slots))
        self._budget = KvBudget(runner.kv_blocks)
        self._shares = runner.state is SlotState.ROLLS_BACK
        self._prefixes = Prefixes()
        self._most_kept = int(prefix_cache * runner.kv_blocks) if self._shares else 0
        self.running: dict[str, Sequence] = {}

    @property
    def blocks_used(self) -> int:
        """By those that run."""
        return self._budget.used - self.blocks_kept

    @property
    def blocks_kept(self) -> int:
        """By prefixes of the ended, until somebody needs them."""
        return self._prefixes.blocks

    # -- coming and going ------------------------------------------------------------------------

    def admit(self, sequence: Sequence) -> bool:
        """Give it a slot, with as much of its prefix as is known, and room for its tokens, if a
        block more is left for it to grow."""
        grown = blocks_of(min(sequence.limit, len(sequence.tokens) + KV_BLOCK))
        if grown > self._available or not (self._free or self._prefixes.oldest):
            return False
        prefix, length = self._known(sequence)
        if prefix is None:
            sequence.slot = self._empty_slot()
        elif self._may_copy(prefix, length, grown):
            self._copy_prefix(prefix, length, sequence)
        else:
            self._take_over(prefix, length, sequence)
        self._grow(sequence, len(sequence.tokens))
        self.running[sequence.id] = sequence
        return True

    def release(self, sequence: Sequence, *, keep: bool = True) -> None:
        """It leaves its slot; what it computed may stay there if it is sound: ``keep``."""
        del self.running[sequence.id]
        slot, sequence.slot = sequence.slot, NO_SLOT
        if keep and self._most_kept and sequence.cached >= BLOCK:
            self._cut(slot, sequence.cached)
            self._keep(Prefix.of(sequence, slot, sequence.cached))
        else:
            self._cut(slot, 0)

    def make_room(self) -> Iterator[Sequence]:
        """Room for the next token of everyone, oldest first; yields those who lost their slot for
        it, youngest first. The oldest never does: alone it fits."""
        for sequence in list(self.running.values()):
            while sequence.slot != NO_SLOT and not self._grow(sequence, len(sequence.tokens)):
                youngest = next(reversed(self.running.values()))
                self.release(youngest)
                yield youngest

    def stretch(self, sequence: Sequence, length: int) -> int:
        """``length`` positions for it, or as many as there are without taking any from others."""
        reach = self._budget.reach(sequence.slot) + self.blocks_kept * KV_BLOCK
        granted = min(length, self._runner.max_length, reach)
        self._grow(sequence, granted)
        return granted

    # -- common beginnings of those that run -----------------------------------------------------

    def ready(self) -> list[Sequence]:
        """Who computes in this step, oldest first. A newcomer first takes over what an older one
        has computed of its beginning; it waits while that one is computing much of it."""
        older: list[Sequence] = []
        ready = []
        for sequence in self.running.values():
            if sequence.cached or not self._awaits(sequence, older):
                ready.append(sequence)
            older.append(sequence)
        return ready

    def _awaits(self, newcomer: Sequence, older: Iterable[Sequence]) -> bool:
        donor, length = closest(newcomer, older)
        if donor is None or not self._shares:
            return False
        cached = min(length, donor.cached)
        if length - cached >= WORTH_AWAITING:
            return True
        if cached >= BLOCK:
            self._copy(donor.slot, cached, newcomer)
        return False

    def _copy(self, source: int, length: int, newcomer: Sequence) -> None:
        self._runner.copy(source, newcomer.slot, length)
        self._features.copy(source, newcomer.slot, length)
        self._adopt(newcomer, length)

    def _adopt(self, newcomer: Sequence, length: int) -> None:
        newcomer.adopt(length)
        self._stats.tokens_reused.inc(length)

    # -- prefixes of the ended -------------------------------------------------------------------

    def _known(self, sequence: Sequence) -> tuple[Prefix | None, int]:
        """A prefix, and how much of it is the sequence's, unless one that runs shares more."""
        prefix, length = self._prefixes.find(sequence)
        if prefix is None or length <= closest(sequence, self.running.values())[1]:
            return None, 0
        self._stats.prefix_hits.inc()
        self._prefixes.touch(prefix)
        return prefix, length

    def _may_copy(self, prefix: Prefix, length: int, grown: int) -> bool:
        """Whether more than a block would be lost to others if it were taken over, and slots and
        memory allow to have both."""
        slot = bool(self._free) or self._prefixes.oldest is not prefix
        memory = grown + prefix.blocks <= self._available
        return length + KV_BLOCK < len(prefix.tokens) and slot and memory

    def _copy_prefix(self, prefix: Prefix, length: int, sequence: Sequence) -> None:
        sequence.slot = self._empty_slot()
        self._grow(sequence, length)
        self._copy(prefix.slot, length, sequence)

    def _take_over(self, prefix: Prefix, length: int, sequence: Sequence) -> None:
        self._prefixes.cut(prefix, 0)
        self._cut(prefix.slot, length)
        sequence.slot = prefix.slot
        self._adopt(sequence, length)

    def _keep(self, prefix: Prefix) -> None:
        """Within the bound, and in place of those of which it holds as much."""
        for old in self._prefixes.covered(prefix):
            self._evict(old, old.blocks)
        self._prefixes.add(prefix)
        while self.blocks_kept > self._most_kept and (oldest := self._prefixes.oldest):
            self._evict(oldest, self.blocks_kept - self._most_kept)

    def _evict(self, prefix: Prefix, blocks: int) -> None:
        """So many blocks from its end, or all of it."""
        left = max(0, prefix.blocks - blocks) * KV_BLOCK
        self._stats.prefix_evictions.inc(min(blocks, prefix.blocks))
        self._prefixes.cut(prefix, left)
        self._cut(prefix.slot, left)

    # -- slots and memory ------------------------------------------------------------------------

    @property
    def _available(self) -> int:
        """Blocks that nobody who runs holds."""
        return self._budget.unused + self.blocks_kept

    def _empty_slot(self) -> int:
        """The lowest (compact batches); if there is none, that of the oldest prefix."""
        if not self._free and (oldest := self._prefixes.oldest):
            self._evict(oldest, oldest.blocks)
        return heapq.heappop(self._free)

    def _grow(self, sequence: Sequence, length: int) -> bool:
        """Give up prefixes, the ends of the oldest first, as far as it takes."""
        more = self._budget.more(sequence.slot, length)
        while self._budget.unused < more and (oldest := self._prefixes.oldest):
            self._evict(oldest, more - self._budget.unused)
        return self._budget.grow(sequence.slot, length)

    def _cut(self, slot: int, length: int) -> None:
        """The slot's memory past ``length`` is free, and without any the slot."""
        self._budget.cut(slot, length)
        self._runner.release(slot, length)
        self._features.cut(slot, length)
        if not length:
            heapq.heappush(self._free, slot)

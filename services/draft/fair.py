"""Weighted fair queueing over targets: deficit round robin by tokens of work (Shreedhar and
Varghese 1995), and inside a target the earliest deadline first."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence

from services.draft.sessions import SHORT, HubSequence
from starsd.settings.draft import DraftSettings

Cost = Callable[[HubSequence], int]


class Fair:
    """Implements ``Scheduler``. Short rows fill a step up to its limit. Prefixes, which are read in
    chunks, get what is left of it, and a chunk at least: neither kind can starve the other."""

    def __init__(self, settings: DraftSettings) -> None:
        self._chunk = settings.prefill_chunk
        self._short = DeficitRoundRobin(settings.weights, self._cost)
        self._long = DeficitRoundRobin(settings.weights, self._cost)

    def choose(self, waiting: Sequence[HubSequence], limit: int) -> list[HubSequence]:
        short = [one for one in waiting if one.draft.width <= SHORT]
        prefixes = [one for one in waiting if one.draft.width > SHORT]
        chosen = self._short.take(short, limit)
        left = limit - sum(map(self._cost, chosen))
        return chosen + self._long.take(prefixes, max(1, left))

    def _cost(self, one: HubSequence) -> int:
        return min(one.draft.width, self._chunk)


class DeficitRoundRobin:
    """Targets have turns. With each a target is granted tokens by its weight, and is served while
    it has enough; what it has left counts while it has work."""

    def __init__(self, weights: Mapping[str, float], cost: Cost) -> None:
        self._weights = weights
        self._cost = cost
        self._turns: deque[str] = deque()
        self._granted: defaultdict[str, float] = defaultdict(float)

    def take(self, waiting: Sequence[HubSequence], limit: int) -> list[HubSequence]:
        """As many as make ``limit`` tokens, or one more than fits."""
        queues = self._queues(waiting)
        self._enter(queues)
        chosen: list[HubSequence] = []
        while queues and limit > 0:
            target = self._turns[0]
            queue = queues[target]
            if self._granted[target] >= (cost := self._cost(queue[-1])):
                chosen.append(queue.pop())
                self._granted[target] -= cost
                limit -= cost
                if not queue:
                    del queues[target]
                    self._leave(target)
            else:
                self._turns.rotate(-1)
                self._grant(self._turns[0], queues)
        return chosen

    def _queues(self, waiting: Sequence[HubSequence]) -> dict[str, list[HubSequence]]:
        """By target, the most urgent last."""
        queues: defaultdict[str, list[HubSequence]] = defaultdict(list)
        for one in sorted(waiting, key=lambda one: (one.deadline, one.arrival), reverse=True):
            queues[one.target].append(one)
        return dict(queues)

    def _enter(self, queues: Mapping[str, object]) -> None:
        """Those without work have no turns, and newcomers are the last."""
        for target in [target for target in self._turns if target not in queues]:
            self._leave(target)
        self._turns += [target for target in queues if target not in self._granted]
        for target in queues:
            self._granted[target] += 0.0

    def _leave(self, target: str) -> None:
        self._turns.remove(target)
        del self._granted[target]

    def _grant(self, target: str, queues: Mapping[str, object]) -> None:
        """In proportion to the heaviest, so that no turn is longer than a short row."""
        heaviest = max(self._weight(one) for one in queues)
        self._granted[target] += SHORT * self._weight(target) / heaviest

    def _weight(self, target: str) -> float:
        return self._weights.get(target, 1.0)

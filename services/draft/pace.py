"""What the hub learns of its own speed: how many tokens are worth a step together, and how deep a
proposal can be that is still in time."""

from __future__ import annotations

from starsd.process.mean import Mean

SMALLEST = 16
"""A step of so many tokens costs about what one of a token costs; steps are told apart by size
from here on, each class twice as large as the one before."""
GAIN = 1.05
"""A class twice as large must be so many times as fast, in tokens a second, to be worth it."""
PROBE = 100
"""Once in so many steps the limit is twice what it should be: speeds change."""
FOLLOWED = 0.5
"""Share of right nodes that a right one follows, which a step past them finds."""
TRIES = 16
LEAST_USE = 0.05
"""Share of jobs to which run-ahead must be of use, after so many."""
RETRY = 32
"""Where it is not, one proposal in so many is followed all the same."""


class StepCost:
    """Speed of steps by their tokens.

    Batching more makes a step longer for all who are in it, which pays while it makes the hub
    faster. So the limit is the smallest class that no larger one beats by ``GAIN``, or the next
    above all that was seen, up to ``most``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rates: dict[int, Mean] = {}
        self._asked = 0

    def learn(self, tokens: int, seconds: float) -> None:
        """A step took so long."""
        if tokens > 0 and seconds > 0:
            self._rates.setdefault(_size(tokens), Mean()).add(tokens / seconds)

    def limit(self) -> int:
        """Tokens of the next step."""
        self._asked += 1
        probe = 2 if self._asked % PROBE == 0 else 1
        return min(self._most, probe * self.best)

    @property
    def best(self) -> int:
        """Tokens of a step that is worth it."""
        if not self._rates:
            return self._most
        fastest = max(mean.value for mean in self._rates.values())
        good = min(size for size, one in self._rates.items() if one.value * GAIN >= fastest)
        return min(self._most, good if good < max(self._rates) else 2 * good)


class Pace:
    """How long rounds and drafts take: what a proposal is worth now rather than later, and how
    deep one can be."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._round_s, self._draft_s, self._expected = Mean(), Mean(), Mean()
        self._queue_s, self._step_s = Mean(), Mean()

    def asked(self, since_s: float) -> None:
        """A sequence asked so long after its job before: its target's round."""
        self._round_s.add(since_s)

    def answered(self, queue_s: float, service_s: float, steps: int, expected: float) -> None:
        """With what took so many steps to draft, of which so many tokens should come true."""
        self._queue_s.add(queue_s)
        if steps:
            self._step_s.add(service_s / steps)
            self._draft_s.add(service_s)
            self._expected.add(expected)

    def worth_it(self, expected: float) -> bool:
        """Whether a proposal that is there gives more tokens a second than one that is drafted
        first, which knows more."""
        round_s, draft_s = self._round_s.value, self._draft_s.value
        return (1 + expected) * round_s >= (1 + self._expected.value) * (round_s - draft_s)

    def worth(self, rate: float) -> float:
        """Confidence from which on a node is worth another step, of a target that loses so many
        tokens a second meanwhile."""
        return min(1.0, self._step_s.value * rate / FOLLOWED)

    def depth(self, ttl_s: float) -> int:
        """Steps for which a job like this has time, half of which is for the wire and the verify
        step; one at least, to learn when times are better."""
        if not self._step_s.value:
            return self._max_depth
        left_s = ttl_s / 2 - self._queue_s.value
        return max(1, min(self._max_depth, int(left_s / self._step_s.value)))


class Usefulness:
    """Whether what is foreseen is proposed, too. Else run-ahead takes a core's time, and a little
    of whoever asks next, for nothing."""

    def __init__(self) -> None:
        self._used = Mean()
        self._left_alone = 0

    def met(self, used: bool) -> None:
        """A job came to what was foreseen of it."""
        self._used.add(used)

    def worth_it(self) -> bool:
        """To follow one proposal more."""
        if self._used.count < TRIES or self._used.value >= LEAST_USE:
            return True
        self._left_alone += 1
        return self._left_alone % RETRY == 0


def _size(tokens: int) -> int:
    """The largest of its class."""
    size = SMALLEST
    while size < tokens:
        size *= 2
    return size

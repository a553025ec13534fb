"""Waiting for descriptors; ``select.poll``, since ``select.select`` ends at descriptor 1023."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable


def wait_readable(filenos: Iterable[int], timeout_s: float) -> bool:
    """Wait up to ``timeout_s`` seconds until one can be read; without any, just wait. Returns
    whether one can be."""
    poller, descriptors = select.poll(), [*filenos]
    for fileno in descriptors:
        poller.register(fileno, select.POLLIN)
    if descriptors:
        return bool(poller.poll(max(0.0, timeout_s) * 1000))
    if timeout_s > 0:
        time.sleep(timeout_s)
    return False


class Waiter:
    """Waits as ``wait_readable`` does, but for ``spin_s`` seconds after something last came it
    looks again and again before it sleeps: a core that slept, a virtual one above all, takes long
    to come back and computes slowly at first. Whoever else has work on the core goes first."""

    def __init__(self, spin_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.spin_s = spin_s
        self._clock = clock
        self._sleepless_until = 0.0

    def __call__(self, filenos: Iterable[int], timeout_s: float) -> None:
        descriptors = [*filenos]
        if self._spin(descriptors, timeout_s):
            self._sleepless_until = self._clock() + self.spin_s

    def _spin(self, descriptors: list[int], timeout_s: float) -> bool:
        deadline = self._clock() + timeout_s
        while (now := self._clock()) < min(deadline, self._sleepless_until):
            if wait_readable(descriptors, 0.0):
                return True
            os.sched_yield()
        return wait_readable(descriptors, deadline - now)

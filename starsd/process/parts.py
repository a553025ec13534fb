"""Where a step loop's time goes: the counter ``starsd:step_part_seconds_total``."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Concatenate, Literal, ParamSpec, Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

NAME = "starsd:step_part_seconds"
FORWARD, SAMPLING, TRANSPORT, WAIT, PYTHON = "forward", "sampling", "transport", "wait", "python"
PartName = Literal["forward", "sampling", "transport", "wait", "python"]


class Part:
    """What is charged while it is the innermost one entered."""

    __slots__ = ("_parts", "seconds")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.seconds = 0.0

    def __enter__(self) -> None:
        parts, entered = self._parts, self._parts.entered
        now = parts.clock()
        entered[-1].seconds += now - parts.since
        parts.since = now
        entered.append(self)

    def __exit__(self, *_: object) -> None:
        parts = self._parts
        now = parts.clock()
        self.seconds += now - parts.since
        parts.since = now
        parts.entered.pop()


class Parts(Collector):
    """Time of one thread, each moment charged to one part: two looks at the clock for each visit.

    ``forward`` is the runner's, ``sampling`` verifies or proposes, ``transport`` makes, sends and
    reads messages, ``wait`` is for proposals, ``python`` the rest of a step.
    """

    def __init__(
        self,
        inside: Callable[[], Mapping[str, float]] = dict,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``inside`` divides ``forward``, see ``Runner.parts``; forwards until now don't count."""
        self._inside = inside
        self._before = inside()
        self.clock = clock
        self.forward, self.sampling, self.transport = Part(self), Part(self), Part(self)
        self.wait, self.python = Part(self), Part(self)
        self.entered = [Part(self)]
        self.since = clock()

    def seconds(self) -> dict[str, float]:
        """Of all steps so far, by part. Where ``forward`` is divided, its own rest is Python."""
        inside = {k: v - self._before.get(k, 0.0) for k, v in self._inside().items()}
        forward = self.forward.seconds
        if inside:
            rest, divided = forward - sum(inside.values()), inside
        else:
            rest, divided = 0.0, {FORWARD: forward}
        return {
            **divided,
            SAMPLING: self.sampling.seconds,
            TRANSPORT: self.transport.seconds,
            WAIT: self.wait.seconds,
            PYTHON: self.python.seconds + rest,
        }

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            NAME,
            "Time of steps by part. forward is all of the model's, where it isn't divided into "
            "matrices, attention, cache and elementwise; transport makes, sends and reads "
            "messages; wait is for proposals; python is the rest.",
            labels=["part"],
        )
        for part, seconds in self.seconds().items():
            family.add_metric([part], seconds)
        yield family


class _Charging(Protocol):
    _parts: Parts


Self = TypeVar("Self", bound=_Charging)
Args = ParamSpec("Args")
Result = TypeVar("Result")
Method = Callable[Concatenate[Self, Args], Result]


def charged(part: PartName) -> Callable[[Method[Self, Args, Result]], Method[Self, Args, Result]]:
    """Charges a method's time to this part of its object's ``_parts``."""

    def decorate(method: Method[Self, Args, Result]) -> Method[Self, Args, Result]:
        def charging(self: Self, /, *args: Args.args, **kwargs: Args.kwargs) -> Result:
            with getattr(self._parts, part):
                return method(self, *args, **kwargs)

        functools.update_wrapper(charging, method)
        return charging

    return decorate

"""A whole star in one thread: real loops and real messages over the in-memory broker.

A target that waits runs the hub, and a simulated clock counts what forwards cost, so a test is
exact and repeatable. Processes, sockets and Redis have their own tests (tests/integration).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from llguidance import LLTokenizer

from services.draft.stats import HubStats
from services.draft.step import HubLoop
from services.target.cost import StepShape
from services.target.features import Features as FeatureStore
from services.target.star import Star
from services.target.stats import StarStats
from services.target.step import TargetLoop
from starsd.bus.memory import MemoryBroker, MemoryHubBus
from starsd.drafters.interface import Drafter
from starsd.drafters.lm import LmDrafter
from starsd.engine.interface import Features, Logits, Row, Runner
from starsd.errors import ErrorBody
from starsd.grammar.compiler import GrammarCompiler
from starsd.process.channel import FrameDecoder, LoopChannel, encode_frame
from starsd.process.parts import Parts
from starsd.protocol.frames import (
    Cancel,
    Emitted,
    Failed,
    Finished,
    FinishReason,
    Logprobs,
    Origin,
    RequestStats,
    Submit,
    ToFront,
    ToLoop,
)
from starsd.protocol.messages import Facts, Limits
from starsd.protocol.pods import DrafterKind, HubPod, Offer, PodState
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.scripted import byte_tokens

TARGET_STEP_S = 0.01
DRAFT_STEP_S = 0.001


class SimulatedClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TimedRunner:
    """Any runner; each forward takes ``cost_s`` of simulated time."""

    def __init__(self, runner: Runner, clock: SimulatedClock, cost_s: float) -> None:
        self._runner = runner
        self._clock = clock
        self.cost_s = cost_s
        self.vocab_size = runner.vocab_size
        self.max_length = runner.max_length
        self.slots = runner.slots
        self.kv_blocks = runner.kv_blocks
        self.state = runner.state
        self.fingerprint = runner.fingerprint
        self.revision = runner.revision
        self.forwards = 0

    def parts(self) -> dict[str, float]:
        return self._runner.parts()

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        self._clock.now += self.cost_s
        self.forwards += 1
        return self._runner.forward(rows)

    def tap(self, layers: Sequence[int]) -> None:
        self._runner.tap(layers)

    def features(self) -> list[Features]:
        return self._runner.features()

    def release(self, slot: int, length: int = 0) -> None:
        self._runner.release(slot, length)

    def copy(self, source: int, slot: int, length: int) -> None:
        self._runner.copy(source, slot, length)

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        self._runner.compact(slot, start, path)


@dataclass
class Answer:
    """Everything a request came to; ``ends`` counts its terminal frames."""

    tokens: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    logprobs: list[Logprobs] = field(default_factory=list)
    reason: FinishReason | None = None
    stats: RequestStats = field(default_factory=RequestStats)
    error: ErrorBody | None = None
    ends: int = 0


class Pod:
    """One target loop, with the front's end of its channel."""

    def __init__(self, star: MiniStar, index: int, runner: Runner, **settings: Any) -> None:
        own = {"id": f"t{index}", "boot": "b", "depth_control": "fixed"}
        given: dict[str, Any] = {**own, **settings}
        self.settings = TargetSettings(**given)
        self.bus = star.broker.target_bus(self.settings.id, "b")
        self._front, loop_end = socket.socketpair()
        self._front.setblocking(False)
        self._decoder: FrameDecoder[ToFront] = FrameDecoder(ToFront)
        self.channel: LoopChannel[ToLoop] = LoopChannel(loop_end, ToLoop)
        self.stats = StarStats(Parts(clock=star.clock))
        facts = Facts(
            tokenizer="tok",
            vocab_size=runner.vocab_size,
            revision=runner.revision,
            max_length=runner.max_length,
        )
        self.runner = TimedRunner(runner, star.clock, TARGET_STEP_S)
        features = FeatureStore(
            self.runner, self.settings.draft_context, whole=self.settings.prefix_cache > 0
        )
        shape = StepShape({1: TARGET_STEP_S})
        self.star = Star(self.bus, facts, self.settings, star.clock, self.stats, features, shape)
        self.loop = TargetLoop(
            self.runner,
            self.star,
            self.channel,
            self.settings,
            self.stats,
            features,
            star.clock,
            star.wait,
            grammars=GrammarCompiler(
                star.tokens or byte_tokens(runner.vocab_size), runner.vocab_size
            ),
        )
        self.answers: dict[str, Answer] = {}

    def submit(self, request: Submit) -> None:
        self.answers[request.id] = Answer()
        self._front.sendall(encode_frame(request))

    def cancel(self, request_id: str) -> None:
        self._front.sendall(encode_frame(Cancel(id=request_id)))

    def read(self) -> None:
        """Take what the loop has sent to its front."""
        self.channel.flush()
        try:
            frames = self._decoder.feed(self._front.recv(1 << 20))
        except BlockingIOError:
            return
        for frame in frames:
            self._note(frame)

    def _note(self, frame: ToFront) -> None:
        match frame:
            case Emitted():
                self.answers[frame.id].tokens += frame.tokens
                self.answers[frame.id].origins += frame.origins
                self.answers[frame.id].logprobs += frame.logprobs or ()
            case Finished():
                answer = self.answers[frame.id]
                answer.reason, answer.stats = frame.reason, frame.stats
                answer.ends += 1
            case Failed(id=str(request_id)):
                self.answers[request_id].error = frame.error
                self.answers[request_id].ends += 1

    def metric(self, name: str, **labels: str) -> float:
        """Value of a counter or gauge of this loop; 0 if it was never touched."""
        return self.stats.value(name, **labels)

    def close(self) -> None:
        self.star.close()
        self.channel.close()
        self._front.close()


class Steps(Protocol):
    """Whatever plays the hub: False if there was nothing to do."""

    def step(self) -> bool: ...


class MiniStar:
    """Targets and, unless ``hub`` replaces it, a real hub."""

    def __init__(
        self,
        target_runners: Sequence[Runner],
        draft_runner: Runner | None = None,
        *,
        draft_step_s: float = DRAFT_STEP_S,
        bus_type: type[MemoryHubBus] = MemoryHubBus,
        target: dict[str, Any] | None = None,
        draft: dict[str, Any] | None = None,
        tokens: LLTokenizer | None = None,
    ) -> None:
        """``tokens`` as grammars see them; default: bytes."""
        self.tokens = tokens
        self.clock = SimulatedClock()
        self.broker = MemoryBroker()
        self.hub: Steps | None = None
        self.hub_closers: list[Callable[[], None]] = []
        self.pods = [
            Pod(self, index, runner, **(target or {}))
            for index, runner in enumerate(target_runners)
        ]
        self.on_step: Callable[[], None] = lambda: None
        if draft_runner is not None:
            self.start_hub(draft_runner, draft_step_s, bus_type=bus_type, **(draft or {}))

    def start_hub(
        self,
        runner: Runner,
        cost_s: float = DRAFT_STEP_S,
        boot: str = "h",
        bus_type: type[MemoryHubBus] = MemoryHubBus,
        **settings: Any,
    ) -> None:
        given: dict[str, Any] = {"id": "hub", "boot": boot, **settings}
        draft = DraftSettings(**given)
        timed = TimedRunner(runner, self.clock, cost_s)
        parts = Parts(clock=self.clock)
        drafter, offer = LmDrafter(timed, draft, parts), make_offer(runner, draft.max_depth)
        self.run_hub(drafter, offer, draft, parts, bus_type)

    def run_hub(
        self,
        drafter: Drafter,
        offer: Offer,
        draft: DraftSettings,
        parts: Parts,
        bus_type: type[MemoryHubBus] = MemoryHubBus,
    ) -> None:
        boot = draft.boot
        self.hub_bus = bus = bus_type(self.broker, "hub", boot, offer.digest)
        ours, theirs = socket.socketpair()
        channel: LoopChannel[ToLoop] = LoopChannel(theirs, ToLoop)
        self.hub_stats = stats = HubStats(parts)
        self.hub = HubLoop(drafter, offer, bus, channel, draft, self.clock, stats)
        self.hub_closers += [channel.close, ours.close, bus.close]
        self.hub.step()
        self.announce([make_pod(offer, boot)])

    def announce(self, pods: list[HubPod]) -> None:
        """What a heartbeat does: tell every target which hubs there are."""
        for pod in self.pods:
            pod.star.receive()
            pod.star.update_hubs(pods)
        if self.hub is not None:
            self.hub.step()
        for pod in self.pods:
            pod.star.receive()

    @property
    def real_hub(self) -> HubLoop:
        assert isinstance(self.hub, HubLoop)
        return self.hub

    def kill_hub(self) -> None:
        """As kill -9 would: nothing is closed in Redis."""
        self.hub = None

    def wait(self, descriptors: Sequence[int], timeout_s: float) -> None:
        """A target's wait: the hub works meanwhile, or time passes."""
        before = self.clock.now
        if self.hub is None or not self.hub.step():
            self.clock.now = before + timeout_s

    def run(self, requests: Sequence[Submit], steps: int = 5000) -> list[Answer]:
        """Spread requests over the targets and serve until each has ended."""
        for index, request in enumerate(requests):
            self.pods[index % len(self.pods)].submit(request)
        self.serve(steps)
        return [
            self.pods[index % len(self.pods)].answers[request.id]
            for index, request in enumerate(requests)
        ]

    def serve(self, steps: int = 5000) -> None:
        for _ in range(steps):
            if not self.step():
                return
        raise AssertionError(f"requests still open after {steps} steps")

    def step(self) -> bool:
        """One step of every target and of the hub; False when all requests have ended."""
        self.on_step()
        for pod in self.pods:
            pod.loop.drain()
            if pod.loop.open_requests:
                pod.loop.step()
            pod.read()
        if self.hub is not None:
            self.hub.step()
        return any(answer.ends == 0 for pod in self.pods for answer in pod.answers.values())

    def close(self) -> None:
        for pod in self.pods:
            pod.close()
        for close in self.hub_closers:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def make_offer(runner: Runner, max_depth: int = 8) -> Offer:
    return Offer(
        kind=DrafterKind.LM,
        model="m",
        revision=runner.revision,
        tokenizer="tok",
        vocab_size=runner.vocab_size,
        max_length=runner.max_length,
        limits=Limits(max_depth=max_depth),
    )


def make_pod(offer: Offer, boot: str = "h") -> HubPod:
    return HubPod(id="hub", boot=boot, state=PodState.READY, offer=offer, free_slots=4)

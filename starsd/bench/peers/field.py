"""All servers are started once and put to sleep; then each in turn is woken, answers all prompts,
one and then several at once, and sleeps again, as many times over as there are repeats."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

from starsd import __version__
from starsd.bench.machine import allowed_cores, load_average
from starsd.bench.peers import catalogue, envs, models, ours
from starsd.bench.peers.catalogue import Peer, Place
from starsd.bench.peers.drive import Run, measure, warm
from starsd.bench.peers.models import Models
from starsd.bench.peers.options import NO_DRAFT, Options
from starsd.bench.peers.result import PLAIN, STAR
from starsd.bench.peers.server import LOCAL, Process, Server, pinned
from starsd.bench.prompts import Prompt
from starsd.errors import StarsdError
from starsd.process.ports import free_ports

START_TIMEOUT_S = 900.0
"""vLLM compiles for minutes on one core."""
WAKE_TIMEOUT_S = 30.0

Say = Callable[[str], None]
Start = Callable[[], AbstractContextManager[Server]]


class Field:
    """All servers of one comparison."""

    def __init__(self, options: Options, prompts: Sequence[Prompt], say: Say) -> None:
        self._options = options
        self._prompts = prompts
        self._say = say
        self._stack = ExitStack()
        self.servers: list[Server] = []
        self.runs: list[Run] = []
        self.left_out: dict[str, str] = {}
        self.versions = {"starsd": {"starsd": __version__}}

    def __enter__(self) -> Field:
        self._logs = Path(self._stack.enter_context(tempfile.TemporaryDirectory("-peers")))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """One after the other, each alone awake: several compile, or poll when idle."""
        found = models.find(self._options.model, self._options.envs)
        for name, start in self._starts(found):
            with self._excused(name):
                self._start(name, start)

    def measure(self) -> None:
        for repeat in range(self._options.repeats):
            for server in self.servers:
                if server.name not in self.left_out:
                    with self._excused(server.name):
                        self._measure(server, f"{repeat + 1}/{self._options.repeats}")

    def _starts(self, found: Models) -> Iterator[tuple[str, Start]]:
        options = self._options
        at_once, cores = max(options.requests), options.cores
        common = (options.model, cores, at_once, START_TIMEOUT_S)
        for precision in options.ours:
            yield f"{PLAIN}-{precision}", partial(ours.plain, precision, *common)
            if options.draft != NO_DRAFT:
                star = partial(ours.star, precision, options.draft, options.wait_budget)
                yield f"{STAR}-{precision}", partial(star, *common)
        for peer in catalogue.PEERS:
            if peer.group in options.only:
                yield peer.name, partial(self._peer, peer, found)

    def _start(self, name: str, start: Start) -> None:
        self._say(f"{name}: starting")
        begun = time.monotonic()
        with ExitStack() as stack:
            server = stack.enter_context(start())
            stack.callback(server.resume)  # only the awake end in time
            warm(server, self._prompts, max(self._options.requests))
            server.sleep()
            self._stack.enter_context(stack.pop_all())
        self.servers.append(server)
        self._say(f"{name}: ready after {time.monotonic() - begun:.0f} s")

    @contextmanager
    def _peer(self, peer: Peer, found: Models) -> Iterator[Server]:
        options = self._options
        environment = envs.ensure(peer.recipe, options.envs)
        self.versions[peer.group] = environment.versions
        (port,) = free_ports(1, LOCAL)
        place = Place(environment, options.cores, port, found, max(options.requests))
        log = self._logs / f"{peer.name}.log"
        process = Process(peer.name, peer.command(place), catalogue.env(peer, place), port, log)
        with process.running(options.cores, START_TIMEOUT_S) as group:
            yield Server(
                name=peer.name,
                url=process.url,
                model=peer.name,
                precision=peer.precision,
                pair=peer.pair,
                groups=(group,),
                ready=process.ready,
            )

    def _measure(self, server: Server, repeat: str) -> None:
        with pinned(client_cores(self._options.cores)), server.awake(WAKE_TIMEOUT_S):
            warm(server, self._prompts, 1)
            runs = [self._run(server, requests) for requests in self._options.requests]
        self.runs += runs
        shown = ", ".join(f"{run.tokens_per_s:.1f} at {run.concurrency}" for run in runs)
        self._say(f"{repeat} {server.name}: tokens/s {shown}")

    def _run(self, server: Server, requests: int) -> Run:
        return measure(server, self._prompts, requests, self._options.max_tokens, load_average())

    @contextmanager
    def _excused(self, name: str) -> Iterator[None]:
        try:
            yield
        except StarsdError as error:
            self.left_out[name] = error.message
            self._say(f"{name}: left out: {error.message}")


def client_cores(servers: Sequence[int]) -> tuple[int, ...]:
    """Those the servers leave us; where there are none, theirs."""
    allowed = allowed_cores()
    return tuple(core for core in allowed if core not in servers) or tuple(allowed)

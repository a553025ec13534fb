"""Which targets there are, which are alive, and which one gets the next request."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NamedTuple

import httpx
import structlog

from services.gateway.faults import shown
from starsd.errors import ConfigError, UnavailableError, UnknownModelError
from starsd.protocol.pods import Pod, PodState, TargetPod

log = structlog.get_logger()

MAX_TARGETS = 1024
RETRY_AFTER_S = 1.0


class Target:
    """One target by its URL. ``pod`` is what it, or the registry, last said of itself."""

    def __init__(self, url: str, *, static: bool, pod: TargetPod | None = None) -> None:
        self.url = url
        self.static = static
        self.pod = pod
        self.live = False
        """The latest probe was good and no request has failed since."""
        self.failures = 0
        self.in_flight = 0
        self.heard_at = time.monotonic()
        """Of the latest good probe or event: in a crowd, probes are late and answers go on."""
        self._riders: set[asyncio.Timeout] = set()

    @property
    def name(self) -> str:
        return self.pod.id if self.pod is not None else self.url

    @property
    def load(self) -> float:
        """Requests per slot: those it reported, and those this gateway has on it."""
        if self.pod is None:
            return float(self.in_flight)
        return self.pod.load + self.in_flight / max(1, self.pod.capacity)

    @property
    def names(self) -> tuple[str, ...]:
        """All that its model goes by."""
        return () if self.pod is None else (self.pod.model, *self.pod.aliases)

    @contextlib.asynccontextmanager
    async def carrying(self) -> AsyncIterator[None]:
        """One request is here while the block runs. Raises TimeoutError when the target is lost."""
        self.in_flight += 1
        try:
            async with asyncio.timeout(None) as rider:
                self._riders.add(rider)
                try:
                    yield
                finally:
                    self._riders.discard(rider)
        finally:
            self.in_flight -= 1

    def lose(self) -> None:
        """Give up every request that is here."""
        for rider in self._riders:
            if not rider.expired():
                rider.reschedule(asyncio.get_running_loop().time())


class Served(NamedTuple):
    """A model by its own name, and its context in tokens."""

    model: str
    max_length: int


class Pool:
    """All known targets: the static ones and those the registry named."""

    def __init__(self, static: Iterable[str], rng: random.Random | None = None) -> None:
        """Raises ConfigError on a URL that is none."""
        self._targets: dict[str, Target] = {}
        self._rng = rng or random.Random()
        for url in map(_normal, static):
            if not _is_http(url):
                raise ConfigError(f"STARSD_TARGETS: {url!r} is no http:// or https:// URL")
            self._targets[url] = Target(url, static=True)

    @property
    def targets(self) -> Sequence[Target]:
        return list(self._targets.values())

    @property
    def live(self) -> Sequence[Target]:
        return [target for target in self._targets.values() if target.live]

    @property
    def models(self) -> dict[str, Served]:
        """What the live targets serve, by every name; one model's own is no other's alias."""
        pods = [target.pod for target in self.live if target.pod is not None]
        found = {}
        for pod in sorted(pods, key=lambda pod: pod.id):
            found.update({name: Served(pod.model, pod.max_length) for name in pod.aliases})
        return found | {pod.model: Served(pod.model, pod.max_length) for pod in pods}

    def update(self, pods: Iterable[Pod]) -> None:
        """What the registry lists now. A target it no longer lists stays while it answers."""
        listed = {_normal(pod.url): pod for pod in pods if isinstance(pod, TargetPod)}
        for url, pod in listed.items():
            self._learn(url, pod)
        for target in self.targets:
            if not (target.static or target.live or target.in_flight or target.url in listed):
                del self._targets[target.url]
                log.info("target forgotten", target=target.name, url=target.url)

    def _learn(self, url: str, pod: TargetPod) -> None:
        known = self._targets.get(url)
        if known is not None:
            known.pod = known.pod or pod
        elif not _is_http(url) or len(self._targets) >= MAX_TARGETS:
            log.warning("target not taken", target=pod.id, url=url, limit=MAX_TARGETS)
        else:
            self._targets[url] = Target(url, static=False, pod=pod)
            log.info("target found", target=pod.id, url=url, model=pod.model)

    def heard(self, target: Target, pod: TargetPod) -> None:
        """A good probe. Only a READY target is given requests."""
        target.pod = pod
        target.heard_at = time.monotonic()
        self._set_live(target, pod.state is PodState.READY, pod.state)

    def failed(self, target: Target, reason: str) -> None:
        """A bad probe or a broken request: no new requests until the next good probe."""
        target.failures += 1
        self._set_live(target, False, reason)

    def _set_live(self, target: Target, live: bool, reason: str) -> None:
        if live != target.live:
            log.info("target live" if live else "target down", target=target.name, reason=reason)
        target.live = live

    def choose(self, model: str, but: Iterable[Target] = ()) -> Target:
        """The lighter one of those that are ``fit``. Raises like it."""
        return self.lighter(self.fit(model, but))

    def fit(self, model: str, but: Iterable[Target] = ()) -> Sequence[Target]:
        """The live targets that serve this model, one or more.

        Raises:
            UnknownModelError: no known target serves it.
            UnavailableError: none that does (or might) is alive.
        """
        avoided = set(but)
        serving = [target for target in self._targets.values() if model in target.names]
        # one model's own name is no other's alias
        own = [target for target in serving if target.names[0] == model]
        fit = [target for target in own or serving if target.live and target not in avoided]
        if not fit:
            raise self._why_none(model)
        return fit

    def lighter(self, fit: Sequence[Target]) -> Target:
        """The less loaded of two drawn at random (power of two choices)."""
        return min(self._rng.sample(fit, min(2, len(fit))), key=lambda target: target.load)

    def _why_none(self, model: str) -> UnknownModelError | UnavailableError:
        known = {name for target in self._targets.values() for name in target.names}
        unasked = not known or any(target.pod is None for target in self._targets.values())
        if model in known or (unasked and model):
            message = f"model={shown(model)}: no live target serves it right now; try again"
            return UnavailableError(message, param="model", retry_after_s=RETRY_AFTER_S)
        served = ", ".join(sorted(known)) or "no model yet"
        message = f"model={shown(model)}: no such model; served: {served}"
        return UnknownModelError(message, param="model")


def _normal(url: str) -> str:
    return url.rstrip("/")


def _is_http(url: str) -> bool:
    """Nothing else may reach httpx, which raises all sorts of errors for a bad host or port."""
    try:
        parsed = httpx.URL(url)
        port = 80 if parsed.port is None else parsed.port
        return parsed.scheme in ("http", "https") and parsed.host != "" and 0 < port < 2**16
    except (httpx.InvalidURL, UnicodeError):
        return False

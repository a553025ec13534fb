"""Which hubs a target is on terms with: who is listed, greeted, welcome, refused or gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from services.target.features import Features
from services.target.hubs import Breaker, Hub, Hubs
from services.target.stats import StarStats
from starsd.bus.interface import TargetBus
from starsd.protocol.messages import Facts, Hello, Refused, Welcome
from starsd.protocol.pods import HubPod, PodState, incompatibility
from starsd.settings.target import TargetSettings

log = structlog.get_logger()

MAX_HUBS = 64
"""Hubs greeted at once; those in use stay, whoever else the registry lists."""
SESSION_REFUSED_S = 30.0
"""A hub that had no room for our session is asked again after this."""


class Greeter:
    """Keeps ``hubs`` what the registry and the hubs themselves say they are."""

    def __init__(
        self,
        bus: TargetBus,
        facts: Facts,
        settings: TargetSettings,
        clock: Callable[[], float],
        stats: StarStats,
        features: Features,
        hubs: Hubs,
    ) -> None:
        self._bus = bus
        self._facts = facts
        self._settings = settings
        self._clock = clock
        self._stats = stats
        self._features = features
        self._hubs = hubs

    def gone(self, pods: Iterable[HubPod]) -> list[str]:
        """Hubs that left, restarted, drain or turned out of use; of the others the news."""
        listed = _ready(pods)
        gone = []
        for hub_id, hub in self._hubs.known.items():
            pod = listed.get(hub_id)
            if pod is None or pod.boot != hub.pod.boot or hub.refused != bool(self._useless(pod)):
                gone.append(hub_id)
            else:
                hub.pod = pod
        return gone

    def meet(self, pods: Iterable[HubPod]) -> None:
        """Greet those new or silent: a hello or its answer may be lost (FLUSHALL takes both)."""
        for pod in _ready(pods).values():
            known = self._hubs.get(pod.id)
            if known is None:
                self._meet(pod)
            elif known.limits is None and not known.refused and self._clock() >= known.greet_at:
                self.greet(pod.id)

    def _meet(self, pod: HubPod) -> None:
        settings = self._settings
        hub = Hub(pod, Breaker(settings.breaker_misses, settings.probe_interval_s))
        if reason := self._useless(pod):
            hub.refused = True
            self._hubs.known[pod.id] = hub
            self._stats.incompatible(reason.partition(":")[0])
            log.warning("incompatible hub", hub=pod.id, reason=reason)
        elif sum(not other.refused for other in self._hubs.known.values()) < MAX_HUBS:
            self._hubs.known[pod.id] = hub
            self.greet(pod.id)

    def _useless(self, pod: HubPod) -> str | None:
        """Why its offer is of no use to us, or None; then it gets what it needs from now on."""
        reason, needs = incompatibility(pod.offer, self._facts), pod.offer.needs
        if reason is not None or needs is None:
            return reason
        return self._features.serve(needs, engaged=self._hubs.read_features(besides=pod.id))

    def greet(self, hub_id: str) -> None:
        settings = self._settings
        hello = Hello(
            session=settings.session,
            target=settings.id,
            boot=settings.boot,
            facts=self._facts,
            reply_key=self._bus.reply_key,
            foresight=settings.reads_foresight,
        )
        self._bus.send_hub(hub_id, hello)

    def greet_all(self) -> None:
        """Hubs may have lost us."""
        for hub_id, hub in self._hubs.known.items():
            if not hub.refused:
                self.greet(hub_id)

    def answered(self, answer: Welcome | Refused) -> None:
        """A hub's answer to a hello."""
        hub = self._hubs.get(answer.hub)
        ours = answer.session == self._settings.session
        if hub is None or not ours or answer.hub_boot != hub.pod.boot:
            self._stats.reply("stale")
        elif isinstance(answer, Welcome):
            hub.limits = answer.limits
            log.info("welcomed", hub=answer.hub, max_depth=answer.limits.max_depth)
        else:
            hub.limits, hub.greet_at = None, self._clock() + SESSION_REFUSED_S
            log.warning("session refused", hub=answer.hub, reason=answer.reason)


def _ready(pods: Iterable[HubPod]) -> dict[str, HubPod]:
    return {pod.id: pod for pod in pods if pod.state is PodState.READY}

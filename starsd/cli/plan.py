"""What ``starsd up`` starts: which processes, with which environment, on which cores. Pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from starsd.cli.supervisor import Child
from starsd.engine.drafts import SELF, lacks_draft
from starsd.settings.common import PREFIX

NO_DRAFT = "none"
LOCAL = "127.0.0.1"


@dataclass(frozen=True)
class Wish:
    """What was asked for, defaults filled in. ``environment`` is the user's, untouched.

    ``star`` tells the pods of this star from those of others on the same Redis.
    """

    star: str
    targets: int
    model: str
    draft: str
    depth: int
    host: str
    port: int
    metrics_port: int
    redis_url: str
    threads: int
    environment: Mapping[str, str]

    @property
    def lacks_draft(self) -> bool:
        """Asked for was the draft shipped for the model, and there is none."""
        return lacks_draft(self.draft, self.model)

    @property
    def has_hub(self) -> bool:
        return self.draft != NO_DRAFT and not self.lacks_draft

    @property
    def ports_needed(self) -> int:
        """Free ports that ``make_plan`` takes: two for each target and for the hub."""
        return 2 * (self.targets + self.has_hub)


@dataclass(frozen=True)
class Plan:
    """Services to start, where the gateway listens, and each service's readiness URL by name.

    ``hint`` is what the user should know of it, if anything.
    """

    children: tuple[Child, ...]
    url: str
    ready_urls: Mapping[str, str]
    hint: str = ""


def make_plan(wish: Wish, cores: Sequence[int], free_ports: Sequence[int]) -> Plan:
    """Gateway, draft (unless ``none``, or none is shipped) and targets on one machine.

    Only the gateway listens on the user's host; the others are its business alone. ``cores`` are
    those this machine lets us use.
    """
    ports = iter(free_ports)
    hub_cores, target_cores = share_cores(wish, cores)
    targets = [_target(wish, i, ports, target_cores[i]) for i in range(wish.targets)]
    drafts = [_draft(wish, ports, hub_cores)] if wish.has_hub else []
    gateway = _gateway(wish, targets)
    pods = [gateway, *drafts, *targets]
    hint = (
        f"no draft is shipped for {wish.model}: targets propose only what their text repeats; "
        f"train one with starsd train-draft FOLDER --model {wish.model}, then add --draft FOLDER"
    )
    return Plan(
        children=tuple(_service(wish, pod) for pod in pods),
        url=_http(gateway.host, gateway.port),
        ready_urls={pod.name: f"{_http(pod.host, pod.metrics_port)}/health/ready" for pod in pods},
        hint=hint if wish.lacks_draft else "",
    )


@dataclass(frozen=True)
class _Pod:
    name: str
    service: str
    host: str
    port: int
    metrics_port: int
    settings: Mapping[str, str]


def _target(wish: Wish, index: int, ports: Iterator[int], cores: str) -> _Pod:
    # One user's ADVERTISE_URL cannot be that of every target.
    budget = wait_budget(wish.draft, wish.depth, wish.environment)
    settings = {"CORES": cores, "ADVERTISE_URL": "", **budget}
    return _Pod(f"target-{index + 1}", "target", LOCAL, next(ports), next(ports), settings)


def _draft(wish: Wish, ports: Iterator[int], cores: str) -> _Pod:
    settings = {"CORES": cores, "DRAFT": wish.draft}
    return _Pod("draft", "draft", LOCAL, next(ports), next(ports), settings)


def _gateway(wish: Wish, targets: Sequence[_Pod]) -> _Pod:
    settings = {"TARGETS": json.dumps([_http(pod.host, pod.port) for pod in targets])}
    return _Pod("gateway", "gateway", wish.host, wish.port, wish.metrics_port, settings)


def _service(wish: Wish, pod: _Pod) -> Child:
    settings = {
        **pod.settings,
        "ID": f"{wish.star}-{pod.name}",
        "BOOT": "",  # every life draws its own
        "HOST": pod.host,
        "PORT": str(pod.port),
        "METRICS_PORT": str(pod.metrics_port),
        "REDIS_URL": wish.redis_url,
    }
    ours = {PREFIX + name: value for name, value in settings.items()}
    return Child(
        name=pod.name,
        command=(sys.executable, "-m", f"services.{pod.service}"),
        env={**wish.environment, **ours},
    )


def wait_budget(draft: str, depth: int, environment: Mapping[str, str]) -> Mapping[str, str]:
    """How long targets wait for a proposal, where the default of one plain step cannot do.

    A draft made of the target's own weights (self, noisy:S, layers:N) costs up to a plain step per
    drafted token, so with the default nearly every proposal would be late: the path would be real
    and never taken. Three times depth + 1 leaves room for the targets to queue for the hub. A
    draft that is a model of its own is meant to be fast and keeps the default; so does the user's
    own ``STARSD_WAIT_BUDGET``.
    """
    own_weights = draft == SELF or draft.startswith(("noisy:", "layers:"))
    if not own_weights or (PREFIX + "WAIT_BUDGET") in environment:
        return {}
    return {"WAIT_BUDGET": str(3 * (depth + 1))}


def share_cores(wish: Wish, cores: Sequence[int]) -> tuple[str, list[str]]:
    """Cores of the hub, and of each target, as ``STARSD_CORES`` takes them.

    A process gets ``STARSD_THREADS`` cores. The hub has the first ones for itself and the targets
    share the others in turn; without a hub they share all. Where there is no room for two
    processes side by side, nobody is pinned. The user's own ``STARSD_CORES`` holds for all.
    """
    whole = len(cores) - len(cores) % wish.threads
    groups = [_listed(cores[i : i + wish.threads]) for i in range(0, whole, wish.threads)]
    if (PREFIX + "CORES") in wish.environment or len(groups) < 2:
        same = wish.environment.get(PREFIX + "CORES", "")
        return same, [same] * wish.targets
    rest = groups[1:] if wish.has_hub else groups
    return groups[0], [rest[i % len(rest)] for i in range(wish.targets)]


def _listed(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))


def _http(host: str, port: int) -> str:
    reachable = LOCAL if host in ("0.0.0.0", "::", "") else host
    return f"http://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"

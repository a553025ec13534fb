"""What hub, targets and Redis count between two looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from starsd.bench.exposition import Exposition, less
from starsd.check.lab import Service
from starsd.process.parts import NAME as PARTS
from starsd.process.parts import PYTHON, SAMPLING, TRANSPORT

Counted = Mapping[str, float]

HUB = {
    "busy_s": "starsd:hub_busy_seconds_total",
    "idle_s": "starsd:hub_idle_seconds_total",
    "ahead_s": "starsd:hub_run_ahead_seconds_total",
    "drafted": "starsd:hub_draft_tokens_total",
    "steps": "starsd:hub_batch_size_count",
    "sequences": "starsd:hub_batch_size_sum",
    "served": "starsd:hub_service_seconds_count",
    "service_s": "starsd:hub_service_seconds_sum",
}
TARGET = {
    "rounds": "starsd:spec_decode_num_drafts_total",
    "steps": "starsd:step_seconds_count",
    "step_s": "starsd:step_seconds_sum",
    "wait_s": "starsd:proposal_wait_seconds_total",
}
ROUND = "starsd:round_seconds_total"
MET = "starsd:hub_run_ahead_jobs_total"
FORESEEN = "starsd:foreseen_rounds_total"
REACHING = "starsd:spec_decode_num_drafts_reaching_total"
SERVER = ("total_net_input_bytes", "total_net_output_bytes", "used_cpu_user", "used_cpu_sys")


def of_hub(exposition: str) -> dict[str, float]:
    """``other_s``: neither computing nor waiting, so whoever came waits for Python. ``met_hit``
    and the like: jobs that run-ahead met."""
    found = Exposition(exposition)
    parts = found.labelled(f"{PARTS}_total")
    other = {"other_s": parts.get(PYTHON, 0.0) + parts.get(TRANSPORT, 0.0)}
    met = {f"met_{result}": count for result, count in found.labelled(MET).items()}
    return {name: found.value(sample) for name, sample in HUB.items()} | met | other


def of_target(exposition: str) -> dict[str, float]:
    """``other_s``: of its steps, besides the model and waiting. ``reaching_3``: rounds of more than
    three tokens proposed. ``foreseen_taken`` and the like: rounds for which a hub had told."""
    found = Exposition(exposition)
    parts = found.labelled(f"{PARTS}_total")
    other = {"other_s": sum(parts.get(part, 0.0) for part in (PYTHON, TRANSPORT, SAMPLING))}
    rounds = {f"{part}_s": seconds for part, seconds in found.labelled(ROUND).items()}
    depths = {f"reaching_{token}": count for token, count in found.labelled(REACHING).items()}
    foreseen = {f"foreseen_{what}": n for what, n in found.labelled(FORESEEN).items()}
    own = {name: found.value(sample) for name, sample in TARGET.items()}
    return own | rounds | depths | foreseen | other


def of_server(url: str) -> dict[str, float]:
    """Bytes and processor seconds of Redis. Raises redis.RedisError."""
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        info = client.info()
    return {name: float(info[name]) for name in SERVER}


@dataclass(frozen=True)
class Look:
    """Services report every second, so ratios of what one counted are exact, sums nearly so."""

    hub: Counted
    targets: Sequence[Counted]
    server: Counted

    def since(self, before: Look) -> Look:
        pairs = zip(self.targets, before.targets, strict=True)
        return Look(
            less(self.hub, before.hub),
            [less(after, earlier) for after, earlier in pairs],
            less(self.server, before.server),
        )

    def all_targets(self) -> dict[str, float]:
        names = {name for one in self.targets for name in one}
        return {name: sum(one.get(name, 0.0) for one in self.targets) for name in sorted(names)}


def look(hub: Service | None, targets: Sequence[Service], redis_url: str) -> Look:
    """Raises httpx.HTTPError, redis.RedisError."""
    return Look(
        of_hub(hub.metrics()) if hub is not None else {},
        [of_target(one.metrics()) for one in targets],
        of_server(redis_url),
    )


def memory_mb(service: Service) -> dict[str, float]:
    """Resident memory of a service's processes, by role: its front and its loop."""
    assert service.process is not None
    front = service.process.pid
    children = Path(f"/proc/{front}/task/{front}/children").read_text().split()
    sizes = {int(pid): resident_mb(int(pid)) for pid in children}
    loop = max(sizes.values(), default=0.0)
    return {"front": resident_mb(front), "loop": loop}


def resident_mb(pid: int) -> float:
    """0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(next(found, 0)) / 1000

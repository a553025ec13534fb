from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

import pytest

from starsd.bench import machine
from starsd.bench.machine import allowed_cores, describe, two_cores
from starsd.errors import ConfigError

CPUINFO = """\
processor\t: 0
model name\t: Test CPU @ 2: fast
flags\t\t: fpu avx2 avx512f avx512fp16 amx_int8

processor\t: 1
model name\t: Another
"""


@pytest.fixture
def topology(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Four cores; 0 and 2 are threads of one, and so are 1 and 3."""
    monkeypatch.setattr(machine, "TOPOLOGY", tmp_path)
    monkeypatch.setattr(machine, "allowed_cores", lambda: [0, 1, 2, 3])
    for core, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    return tmp_path


def allow(monkeypatch: pytest.MonkeyPatch, *cores: int) -> None:
    monkeypatch.setattr(machine, "allowed_cores", lambda: list(cores))


@pytest.mark.usefixtures("topology")
def test_the_two_cores_are_physical_ones_where_there_are_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert two_cores() == (0, 1)
    allow(monkeypatch, 0, 2, 3)
    assert two_cores() == (0, 3)
    allow(monkeypatch, 1, 3)
    assert two_cores() == (1, 3)


def test_siblings_may_be_a_range(topology: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (topology / "cpu0" / "topology" / "thread_siblings_list").write_text("0-1,8\n")
    allow(monkeypatch, 0, 1, 3)
    assert two_cores() == (0, 3)
    assert describe((0, 1)).siblings == ((0, 1),)
    assert describe((0, 3)).siblings == ()


def test_one_core_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 4)
    with pytest.raises(ConfigError, match="two cores"):
        two_cores()


def test_processor_and_the_flags_that_matter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(CPUINFO)
    monkeypatch.setattr(machine, "CPUINFO", path)
    facts = describe((0, 1))
    assert facts.cpu == "Test CPU @ 2: fast"
    assert facts.flags == ("avx2", "avx512f", "amx_int8")


def test_what_can_be_asked_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/starsd", "bench", "two words"])
    facts = describe((0,))
    assert facts.command == "starsd bench 'two words'"
    assert {"starsd", "torch"} <= facts.versions.keys()
    assert facts.cores_used == (0,)
    assert facts.cores_allowed == len(os.sched_getaffinity(0)) == len(allowed_cores())
    assert datetime.fromisoformat(facts.date).tzinfo is not None
    assert facts.memory_gb > 0.1


def test_where_the_kernel_tells_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "absent")
    monkeypatch.setattr(machine, "TOPOLOGY", tmp_path / "absent")
    allow(monkeypatch, 0, 1)
    assert two_cores() == (0, 1)
    assert describe((0, 1)).flags == ()

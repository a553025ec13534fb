"""From the options of ``starsd up`` to what it starts; nothing is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from starsd.cli import up as module
from starsd.cli.plan import Plan
from starsd.cli.supervisor import Child, Patience
from starsd.cli.up import Exit, Options, up
from starsd.process.ports import free_ports


@dataclass
class Start:
    """What would run."""

    plan: Plan
    children: Sequence[Child]
    ready_timeout_s: float
    patience: Patience

    @property
    def names(self) -> list[str]:
        return [child.name for child in self.children]

    def all_of(self, variable: str) -> set[str | None]:
        """Its values in the services that run a model."""
        models = [child for child in self.plan.children if child.name != "gateway"]
        return {child.env.get(variable) for child in models}

    def gateway(self, variable: str) -> str:
        return next(c for c in self.plan.children if c.name == "gateway").env[variable]


Begin = Callable[[Options], Start]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Begin:
    started: list[Start] = []

    async def record(
        plan: Plan, children: Sequence[Child], ready_timeout_s: float, patience: Patience
    ) -> Exit:
        started.append(Start(plan, children, ready_timeout_s, patience))
        return Exit.STOPPED

    def begin(options: Options) -> Start:
        assert up(options) is Exit.STOPPED
        return started.pop()

    monkeypatch.setattr(module, "_run", record)
    return begin


def test_defaults(start: Begin) -> None:
    star = start(Options())
    assert star.names == ["redis", "gateway", "draft", "target-1", "target-2"]
    assert star.all_of("STARSD_MODEL") == star.all_of("STARSD_DTYPE") == {None}
    assert star.ready_timeout_s == 300


def test_targets(start: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_TARGETS_COUNT", "1")
    assert start(Options()).names[3:] == ["target-1"]
    assert start(Options(targets=3)).names[3:] == ["target-1", "target-2", "target-3"]


def test_draft(start: Begin) -> None:
    assert start(Options(draft="layers:2")).plan.children[1].env["STARSD_DRAFT"] == "layers:2"
    assert "draft" not in start(Options(draft="none")).names
    assert "draft" not in start(Options(model="org/m")).names


def test_model_and_dtype(start: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_MODEL", "of the environment")
    star = start(Options(model="org/m", dtype="bfloat16"))
    assert star.all_of("STARSD_MODEL") == {"org/m"}
    assert star.all_of("STARSD_DTYPE") == {"bfloat16"}


def test_quantize(start: Begin) -> None:
    assert start(Options(quantize="int4")).all_of("STARSD_QUANTIZE") == {"int4"}


def test_kv_memory(start: Begin) -> None:
    assert start(Options(kv_memory="512MiB")).all_of("STARSD_KV_MEMORY") == {"512MiB"}
    assert start(Options()).all_of("STARSD_KV_MEMORY") == {None}


def test_port(start: Begin) -> None:
    (port,) = free_ports(1, "127.0.0.1")
    star = start(Options(port=port))
    assert star.gateway("STARSD_PORT") == str(port)
    assert star.plan.url == f"http://127.0.0.1:{port}"


def test_redis(start: Begin) -> None:
    star = start(Options(redis_url="redis://there:1"))
    assert "redis" not in star.names
    assert star.gateway("STARSD_REDIS_URL") == "redis://there:1"
    assert star.all_of("STARSD_REDIS_URL") == {"redis://there:1"}


def test_ready_timeout_s(start: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_READY_TIMEOUT_S", "12.5")
    assert start(Options()).ready_timeout_s == 12.5


def test_services_that_drain_for_long_are_not_killed_meanwhile(
    start: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARSD_DRAIN_S", "100")
    assert start(Options()).patience.grace_s > 100

"""What ``starsd up`` would start, without starting it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from starsd.cli.plan import Plan, Wish, make_plan, share_cores, wait_budget
from starsd.settings.loading import known_variables

WISH = Wish(
    model="smollm2-135m-instruct",
    star="ab12",
    targets=2,
    draft="self",
    depth=4,
    host="127.0.0.1",
    port=8000,
    metrics_port=9000,
    redis_url="unix:///tmp/x/redis.sock",
    threads=1,
    environment={"PATH": "/bin"},
)


def plan_of(wish: Wish, cores: list[int] | None = None) -> Plan:
    return make_plan(wish, cores or [0, 1], list(range(5000, 5000 + wish.ports_needed)))


def env_of(plan: Plan, name: str) -> Mapping[str, str]:
    return next(child.env for child in plan.children if child.name == name)


def test_processes_are_named_and_run_their_service() -> None:
    children = plan_of(WISH).children
    assert [(c.name, c.command[1:]) for c in children] == [
        ("gateway", ("-m", "services.gateway")),
        ("draft", ("-m", "services.draft")),
        ("target-1", ("-m", "services.target")),
        ("target-2", ("-m", "services.target")),
    ]


def test_no_draft_leaves_the_hub_out_and_gives_targets_every_core() -> None:
    plan = plan_of(replace(WISH, draft="none"))
    assert [child.name for child in plan.children] == ["gateway", "target-1", "target-2"]
    assert [env_of(plan, f"target-{i}")["STARSD_CORES"] for i in (1, 2)] == ["0", "1"]


def test_no_two_processes_share_a_port() -> None:
    plan = plan_of(replace(WISH, targets=5))
    ports = [
        child.env[name]
        for child in plan.children
        for name in ("STARSD_PORT", "STARSD_METRICS_PORT")
    ]
    assert len(set(ports)) == len(ports) == 14


def test_gateway_knows_its_targets_without_redis() -> None:
    plan = plan_of(WISH)
    urls = json.loads(env_of(plan, "gateway")["STARSD_TARGETS"])
    ports = [env_of(plan, f"target-{i}")["STARSD_PORT"] for i in (1, 2)]
    assert urls == [f"http://127.0.0.1:{port}" for port in ports]


def test_no_target_advertises_the_url_of_another() -> None:
    environment = {**WISH.environment, "STARSD_ADVERTISE_URL": "http://node:1"}
    plan = plan_of(replace(WISH, environment=environment))
    assert [env_of(plan, f"target-{i}")["STARSD_ADVERTISE_URL"] for i in (1, 2)] == ["", ""]


def test_only_the_gateway_listens_on_the_host_asked_for() -> None:
    plan = plan_of(replace(WISH, host="0.0.0.0"))
    hosts = {child.name: child.env["STARSD_HOST"] for child in plan.children}
    assert hosts.pop("gateway") == "0.0.0.0"
    assert set(hosts.values()) == {"127.0.0.1"}
    assert plan.url == "http://127.0.0.1:8000"


def test_readiness_is_asked_at_the_metrics_port() -> None:
    plan = plan_of(WISH)
    assert plan.ready_urls["gateway"] == "http://127.0.0.1:9000/health/ready"
    assert set(plan.ready_urls) == {child.name for child in plan.children}


def test_ids_differ_between_pods_and_between_stars() -> None:
    ids = {
        child.env["STARSD_ID"]
        for star in ("ab12", "cd34")
        for child in plan_of(replace(WISH, star=star)).children
    }
    assert len(ids) == 8


def test_children_get_the_users_environment_and_only_known_settings() -> None:
    user = {"PATH": "/bin", "STARSD_LOG_LEVEL": "debug", "STARSD_ID": "mine", "STARSD_PORT": "80"}
    for child in plan_of(replace(WISH, environment=user)).children:
        assert child.env["STARSD_LOG_LEVEL"] == "debug"
        assert child.env["STARSD_ID"] != "mine"
        assert {name for name in child.env if name.startswith("STARSD_")} <= known_variables()


@pytest.mark.parametrize("draft", ["self", "noisy:0.1", "layers:12"])
def test_a_draft_of_the_targets_own_weights_gets_a_larger_budget(draft: str) -> None:
    plan = plan_of(replace(WISH, draft=draft, depth=6))
    assert env_of(plan, "target-1")["STARSD_WAIT_BUDGET"] == "21"


@pytest.mark.parametrize("draft", ["auto", "some/folder", "org/model", "none"])
def test_other_drafts_keep_the_default_budget(draft: str) -> None:
    assert "STARSD_WAIT_BUDGET" not in env_of(plan_of(replace(WISH, draft=draft)), "target-1")


def test_a_model_without_a_shipped_draft_gets_no_hub_and_a_hint() -> None:
    plan = plan_of(replace(WISH, draft="auto", model="/models/mine"), [0, 1])
    assert [child.name for child in plan.children] == ["gateway", "target-1", "target-2"]
    assert env_of(plan, "target-1")["STARSD_CORES"] == "0"
    assert "starsd train-draft FOLDER --model /models/mine" in plan.hint
    shipped = plan_of(replace(WISH, draft="auto"))
    assert "draft" in shipped.ready_urls
    assert shipped.hint == plan_of(replace(WISH, draft="none")).hint == ""


def test_the_users_budget_wins() -> None:
    wish = replace(WISH, environment={"STARSD_WAIT_BUDGET": "2"})
    assert wait_budget(wish.draft, wish.depth, wish.environment) == {}
    assert env_of(plan_of(wish), "target-2")["STARSD_WAIT_BUDGET"] == "2"


@pytest.mark.parametrize(
    ("cores", "threads", "hub", "targets"),
    [
        ([0], 1, "", ["", "", ""]),
        ([0, 1], 1, "0", ["1", "1", "1"]),
        ([4, 5, 6], 1, "4", ["5", "6", "5"]),
        ([0, 1, 2, 3, 4], 1, "0", ["1", "2", "3"]),
        ([0, 1], 2, "", ["", "", ""]),
        ([0, 1, 2, 3, 4], 2, "0,1", ["2,3", "2,3", "2,3"]),
        ([], 1, "", ["", "", ""]),
    ],
)
def test_cores_are_shared_out(cores: list[int], threads: int, hub: str, targets: list[str]) -> None:
    assert share_cores(replace(WISH, targets=3, threads=threads), cores) == (hub, targets)


def test_the_users_cores_hold_for_all() -> None:
    wish = replace(WISH, environment={"STARSD_CORES": "3"})
    assert share_cores(wish, [0, 1, 2, 3]) == ("3", ["3", "3"])

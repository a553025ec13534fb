"""docker-compose.yml: valid, and as hardened, bounded and complete as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from starsd import __version__
from starsd.cli.plan import wait_budget
from starsd.process.spawn import STOP_GRACE_S
from starsd.settings.common import PREFIX, ServiceSettings
from starsd.settings.draft import DraftSettings
from starsd.settings.gateway import GatewaySettings
from starsd.settings.loading import known_variables, load
from starsd.settings.target import TargetSettings

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
SETTINGS: dict[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "target": TargetSettings,
    "draft": DraftSettings,
}
NOT_PASSED_ON = {
    # The images say where to listen and where models are kept.
    *("HOST", "PORT", "METRICS_PORT", "CACHE_DIR"),
    # Each container's own.
    *("ID", "BOOT", "ADVERTISE_URL"),
    # Of `starsd up`, and of tests.
    *("READY_TIMEOUT_S", "TARGETS_COUNT", "SCRIPTED"),
}
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")

ours = pytest.mark.parametrize("service", SETTINGS)
HEALTHY, STARTED = {"condition": "service_healthy"}, {"condition": "service_started"}


def interpolated(node: Any, shell: dict[str, str]) -> Any:
    """What compose makes of ``${NAME:-default}``, and of settings without a value."""
    if isinstance(node, dict):
        values = {k: shell.get(k) if v is None else interpolated(v, shell) for k, v in node.items()}
        return {k: v for k, v in values.items() if v is not None}
    if isinstance(node, list):
        return [interpolated(item, shell) for item in node]
    if isinstance(node, str):
        return VARIABLE.sub(lambda found: shell.get(found[1], found[2]), node)
    return node


def services(**shell: str) -> dict[str, Any]:
    found: dict[str, Any] = interpolated(yaml.safe_load(FILE.read_text()), shell)["services"]
    return found


def settings(service: str, monkeypatch: pytest.MonkeyPatch, **shell: str) -> ServiceSettings:
    """As the service reads them from its container's environment."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in services(**shell)[service]["environment"].items():
        monkeypatch.setenv(name, value)
    return load(SETTINGS[service])


def test_the_file_is_valid() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ran = subprocess.run(
        [*command, str(FILE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout


def test_a_star_is_redis_and_our_services() -> None:
    assert set(services()) == {"redis", *SETTINGS}
    assert services()["target"]["scale"] == "2"
    assert services(STARSD_TARGETS_COUNT="5")["target"]["scale"] == "5"


@pytest.mark.parametrize("service", services())
def test_containers_are_hardened(service: str) -> None:
    container = services()[service]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert container["restart"] == "unless-stopped"
    # Our own images name their user: test_dockerfiles.py.
    assert container.get("user") == ("10001:10001" if service == "redis" else None)
    unwelcome = {"privileged", "cap_add", "network_mode", "container_name", "pid", "ipc", "devices"}
    assert not unwelcome & set(container)


@ours
def test_images_are_built_here_under_this_version(service: str) -> None:
    container = services()[service]
    assert container["image"] == f"starsd-{service}:{__version__}"
    assert container["build"]["dockerfile"] == f"services/{service}/Dockerfile"
    recipe = (ROOT / container["build"]["dockerfile"]).read_text()
    assert set(container["build"]["args"]) == set(re.findall(r"^ARG (\w+)", recipe, re.M))


def test_redis_is_pinned_bounded_and_keeps_nothing() -> None:
    redis = services()["redis"]
    assert re.fullmatch(r"valkey/valkey:\d+\.\d+\.\d+", redis["image"])
    assert services(REDIS_IMAGE="mine")["redis"]["image"] == "mine"
    command = redis["command"]
    for option in ('save ""', "appendonly no", "maxmemory 256mb", "maxmemory-policy noeviction"):
        assert f"--{option}" in command
    # The image declares /data a volume: without this each container would leave one behind.
    assert redis["tmpfs"] == "/data"
    assert "ping" in redis["healthcheck"]["test"][1]
    assert "ports" not in redis


def test_only_the_gateway_is_published_and_only_on_this_machine() -> None:
    published = {name: c["ports"] for name, c in services().items() if "ports" in c}
    assert published == {"gateway": ["127.0.0.1:8000:8000"]}
    elsewhere = services(STARSD_HOST="0.0.0.0", STARSD_PORT="8080")
    assert elsewhere["gateway"]["ports"] == ["0.0.0.0:8080:8000"]


@ours
def test_every_setting_can_be_set(service: str) -> None:
    names = set(yaml.safe_load(FILE.read_text())["services"][service]["environment"])
    unset = {PREFIX + name for name in NOT_PASSED_ON}
    assert names - {"HF_TOKEN"} == known_variables() - unset


@ours
def test_settings_are_good_and_reach_the_service(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = settings(service, monkeypatch)
    changed = settings(service, monkeypatch, STARSD_LOG_LEVEL="debug", STARSD_HOST="10.0.0.1")
    assert changed.model_dump() == {**plain.model_dump(), "log_level": "debug"}
    assert plain.model_dump()["redis_url"] == "redis://redis:6379"


def test_targets_wait_long_enough_for_the_default_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    draft, target = settings("draft", monkeypatch), settings("target", monkeypatch)
    assert isinstance(draft, DraftSettings)
    assert isinstance(target, TargetSettings)
    assert wait_budget(draft.draft, target.draft_depth, {}) == {}
    assert target.wait_budget == TargetSettings.model_fields["wait_budget"].default


@ours
def test_nobody_is_killed_while_it_drains(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grace_s = int(services()[service]["stop_grace_period"].removesuffix("s"))
    # Then the step loop is ended, at worst by SIGTERM and SIGKILL.
    drain_s = settings(service, monkeypatch).model_dump().get("drain_s", 0)
    assert grace_s >= drain_s + 3 * STOP_GRACE_S


def test_start_and_end_have_an_order() -> None:
    assert {name: c.get("depends_on", {}) for name, c in services().items()} == {
        "redis": {},
        "draft": {"redis": HEALTHY},
        "target": {"redis": HEALTHY, "draft": STARTED},
        "gateway": {"redis": HEALTHY, "target": STARTED},
    }


def test_model_services_share_one_volume() -> None:
    volumes = {name: c.get("volumes", []) for name, c in services().items()}
    assert volumes == {
        "redis": [],
        "draft": ["models:/models"],
        "target": ["models:/models"],
        "gateway": [],
    }
    assert "STARSD_CACHE_DIR=/models" in (ROOT / "services/target/Dockerfile").read_text()

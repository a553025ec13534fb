"""Chart and settings models know the same variables, and every environment makes real settings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from starsd.cli.plan import wait_budget
from starsd.settings.common import PREFIX, ServiceSettings
from starsd.settings.draft import DraftSettings
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings
from tests.deploy.cluster import SECRET_URL, Workload, services, workload
from tests.deploy.helm import Helm, Manifest
from tests.deploy.render import CHART_SETS, NOT_FOR_PODS, ROLES, SCHEMA, schema_text

LoadSettings = Callable[[Workload], Any]
"""Any of the services' settings; which one is up to the role."""


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch) -> LoadSettings:
    """Loads a pod's settings as its service would at start."""

    def loaded(one: Workload) -> ServiceSettings:
        for name in [name for name in os.environ if name.startswith(PREFIX)]:
            monkeypatch.delenv(name)
        for name, value in one.env.items():
            monkeypatch.setenv(name, value)
        return load(ROLES[one.role])

    return loaded


def test_every_environment_makes_settings(
    objects: list[Manifest], settings_of: LoadSettings
) -> None:
    for one in services(objects):
        settings = settings_of(one)
        assert (settings.port, settings.metrics_port) == (one.ports["http"], one.ports["metrics"])
        assert settings.redis_url.startswith(("redis://", "rediss://"))
        assert settings.host in ("0.0.0.0", "::")


def test_every_variable_is_one_of_its_own_service(objects: list[Manifest]) -> None:
    for one in services(objects):
        ours = {name for name in one.env if name.startswith(PREFIX)}
        known = {PREFIX + field.upper() for field in ROLES[one.role].model_fields}
        assert not ours - known, one.name


def test_no_variable_is_set_twice(objects: list[Manifest]) -> None:
    for one in services(objects):
        names = [entry["name"] for entry in one.entries]
        assert len(names) == len(set(names)), one.name


def test_the_schema_follows_the_models() -> None:
    assert SCHEMA.read_text() == schema_text(), "run `make manifests`"


@pytest.mark.parametrize("role", ROLES)
def test_every_field_is_in_the_schema_or_set_by_the_chart(role: str, trial: list[Manifest]) -> None:
    """Both lists are complete and disjoint."""
    definitions = json.loads(SCHEMA.read_text())["definitions"]
    free = set(definitions["settings"]["properties"]) | set(
        definitions[f"{role}Settings"]["properties"]
    )
    by_chart = CHART_SETS & ROLES[role].model_fields.keys()
    assert free | by_chart | NOT_FOR_PODS >= ROLES[role].model_fields.keys()
    assert not free & (by_chart | NOT_FOR_PODS)
    assert {PREFIX + field.upper() for field in by_chart} <= workload(trial, role).env.keys()


def test_every_setting_reaches_its_service(
    helm: Helm, tmp_path: Path, settings_of: LoadSettings
) -> None:
    """Each with a value that is not its default."""
    wanted = {role: _other_values(role) for role in ROLES}
    pool = {"name": "x", "model": "m", "resources": {}}
    values = {
        "gateway": {"settings": wanted["gateway"]},
        "targets": [{**pool, "settings": wanted["target"]}],
        "drafts": [{**pool, "settings": wanted["draft"]}],
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    for one in services(helm.render(values=[file])):
        settings = settings_of(one).model_dump(mode="json")
        assert {name: settings[name] for name in wanted[one.role]} == wanted[one.role]


def _other_values(role: str) -> dict[str, Any]:
    properties = json.loads(SCHEMA.read_text())["definitions"][f"{role}Settings"]["properties"]
    fields = ROLES[role].model_fields
    others = {name: _other(facts, fields[name].default) for name, facts in properties.items()}
    others.pop("quantize", None)  # takes the default dtype and device only
    others.pop("kv_memory", None)  # is written as text and read as bytes
    return others


def _other(facts: Mapping[str, Any], default: Any) -> Any:
    if "enum" in facts:
        return next(value for value in facts["enum"] if value != default)
    match facts["type"]:
        case "boolean":
            return not default
        case "integer":
            return default + 1 if default != facts.get("maximum") else default - 1
        case "number":
            return default + 0.25
        case "array":
            return ["http://one:8001", "http://two:8001"]
        case "object":
            return {"one": 2.5, "two": 0.5}
        case _:
            return "2-3,5"


def test_memory_of_pools(helm: Helm, tmp_path: Path, settings_of: LoadSettings) -> None:
    pool = {"name": "x", "model": "m", "resources": {}, "settings": {"kv_memory": "1.5GiB"}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"targets": [pool], "drafts": [pool]}))
    rendered = {one.role: settings_of(one) for one in services(helm.render(values=[file]))}
    assert rendered["target"].kv_memory == rendered["draft"].kv_memory == 3 * 2**29


def test_quantised_pools(helm: Helm, tmp_path: Path, settings_of: LoadSettings) -> None:
    pool = {"name": "x", "model": "m", "resources": {}, "settings": {"quantize": "int4"}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"targets": [pool], "drafts": [pool]}))
    rendered = {one.role: settings_of(one) for one in services(helm.render(values=[file]))}
    assert rendered["target"].quantize == rendered["draft"].quantize == "int4"


def test_settings_of_all_give_way_to_those_of_one(helm: Helm, settings_of: LoadSettings) -> None:
    objects = helm.render(
        *("--set", "settings.log_level=debug", "--set", "gateway.settings.log_level=error")
    )
    levels = {one.role: settings_of(one).log_level for one in services(objects)}
    assert levels == {"gateway": "error", "target": "debug", "draft": "debug"}


def test_one_star_has_one_namespace(objects: list[Manifest]) -> None:
    assert len({one.env["STARSD_NAMESPACE"] for one in services(objects)}) == 1


def test_pods_publish_under_their_own_name_and_address(
    objects: list[Manifest], settings_of: LoadSettings
) -> None:
    for one in services(objects):
        if one.role == "gateway":
            continue
        settings = settings_of(one)
        assert settings.id == f"{one.name}-abc"
        if one.role == "target":
            url = httpx.URL(settings.advertise_url)
            address = {"0.0.0.0": "10.1.2.3", "::": "fd00::7"}[settings.host]
            assert (url.host, url.port) == (address, settings.port)


def test_targets_wait_for_drafts_of_their_own_weights_as_long_as_starsd_up(
    trial: list[Manifest], settings_of: LoadSettings
) -> None:
    target: TargetSettings = settings_of(workload(trial, "target"))
    draft: DraftSettings = settings_of(workload(trial, "draft"))
    assert wait_budget(draft.draft, target.draft_depth, {}) == {}
    assert target.wait_budget == TargetSettings.model_fields["wait_budget"].default
    assert draft.model == target.model


def test_redis_is_bundled_or_by_url_or_by_secret(helm: Helm) -> None:
    off = ("--set", "redis.bundled.enabled=false")
    url = helm.render(*off, "--set", "redis.external.url=redis://elsewhere:6379")
    secret = helm.render(*off, "--set-json", 'redis.external.urlSecret={"name":"r","key":"k"}')
    for objects, expected in ((url, "redis://elsewhere:6379"), (secret, SECRET_URL)):
        assert {one.env["STARSD_REDIS_URL"] for one in services(objects)} == {expected}
        assert not [item for item in objects if "redis" in item["metadata"]["name"]]
    [source] = [e for e in workload(secret, "target").entries if e["name"] == "STARSD_REDIS_URL"]
    assert source["valueFrom"] == {"secretKeyRef": {"name": "r", "key": "k"}}


def test_the_bundled_redis_is_where_services_look(helm: Helm) -> None:
    objects = helm.render(release="other")
    redis = workload(objects, "redis")
    [service] = [i for i in objects if i["kind"] == "Service" and "redis" in i["metadata"]["name"]]
    [port] = service["spec"]["ports"]
    url = f"redis://{service['metadata']['name']}:{port['port']}"
    assert {one.env["STARSD_REDIS_URL"] for one in services(objects)} == {url}
    assert redis.ports[port["targetPort"]] == 6379

"""Bad values are refused, with a message that names the value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import CHART, Helm, HelmError

POOL: dict[str, Any] = {"name": "x", "model": "m", "resources": {}}
OWN_REDIS = {"bundled": {"enabled": False}}


def _target(**fields: Any) -> dict[str, Any]:
    return {"targets": [{**POOL, **fields}]}


def _draft(**fields: Any) -> dict[str, Any]:
    return {"drafts": [{**POOL, **fields}]}


BAD: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown key": ({"gatway": {}}, ("gatway",)),
    "unknown key of a pool": (_target(replica=1), ("/targets/0", "replica")),
    "unknown key of the gateway": ({"gateway": {"replica": 1}}, ("/gateway", "replica")),
    "negative replicas": ({"gateway": {"replicas": -1}}, ("/gateway/replicas", "minimum")),
    "negative pool": (_target(replicas=-1), ("/targets/0/replicas", "minimum")),
    "fraction of a pod": (_draft(replicas=1.5), ("/drafts/0/replicas", "integer")),
    "unknown setting": (_target(settings={"max_sequence": 4}), ("/settings", "max_sequence")),
    "setting of another service": (
        {"gateway": {"settings": {"dtype": "float32"}}},
        ("/gateway/settings", "dtype"),
    ),
    "setting that the chart owns": (_target(settings={"port": 80}), ("/settings", "port")),
    "namespace of one role": (_draft(settings={"namespace": "b"}), ("/settings", "namespace")),
    "setting out of bounds": (_target(settings={"draft_depth": 65}), ("/draft_depth", "64")),
    "setting of a wrong kind": (_draft(settings={"dtype": "int8"}), ("/dtype", "bfloat16")),
    "setting as text": (_target(settings={"threads": "2"}), ("/threads", "integer")),
    "setting of only one": ({"settings": {"draft_depth": 3}}, ("/settings", "draft_depth")),
    "gpu as text": (_target(gpus="1"), ("/targets/0/gpus", "integer")),
    "two gpus a target": (_target(gpus=2), ("/targets/0/gpus", "maximum")),
    "pool without model": (
        {"targets": [{"name": "x", "resources": {}}]},
        ("/targets/0", "model"),
    ),
    "pool without resources": (
        {"targets": [{"name": "x", "model": "m"}]},
        ("/targets/0", "resources"),
    ),
    "pool name": (_target(name="SmolLM2"), ("/targets/0/name", "SmolLM2")),
    "long pool name": (_target(name="x" * 21), ("/targets/0/name", "x" * 21)),
    "two pools of one name": (
        {"targets": [POOL, POOL]},
        ("targets: two pools are named x",),
    ),
    "no redis": ({"redis": OWN_REDIS}, ("no Redis", "redis.external.url")),
    "two redises": (
        {"redis": {"external": {"url": "redis://r:6379"}}},
        ("redis.bundled.enabled and redis.external.url are both set",),
    ),
    "url and secret": (
        {"redis": {**OWN_REDIS, "external": {"url": "redis://r", "urlSecret": {"name": "a"}}}},
        ("redis.external.url and redis.external.urlSecret are both set",),
    ),
    "secret without key": (
        {"redis": {**OWN_REDIS, "external": {"urlSecret": {"name": "a"}}}},
        ("redis.external.urlSecret.key is missing",),
    ),
    "no url": ({"redis": {**OWN_REDIS, "external": {"url": "r:6379"}}}, ("/external/url",)),
    "two caches": (
        {"cache": {"claim": "a", "create": True}},
        ("cache.claim and cache.create are both set",),
    ),
    "quantity": (_target(resources={"limits": {"memory": "2 GB"}}), ("/limits/memory", "2 GB")),
    "toleration": (_target(tolerations=[{"effects": "NoSchedule"}]), ("/tolerations/0", "effects")),
    "spread": ({"gateway": {"spread": "maybe"}}, ("/gateway/spread", "DoNotSchedule")),
    "ip family": ({"ipFamily": "dual"}, ("/ipFamily", "IPv6")),
    "service type": ({"gateway": {"service": {"type": "x"}}}, ("/service/type", "ClusterIP")),
    "registry": ({"image": {"registry": "r.example/"}}, ("/image/registry", "r.example/")),
    "our settings as extra variables": (
        {"huggingFace": {"env": {"STARSD_PORT": "1"}}},
        ("/huggingFace/env/STARSD_PORT",),
    ),
    "empty peer": ({"networkPolicy": {"clients": [{}]}}, ("/clients/0", "minProperties")),
    "scaling upside down": (
        {"gateway": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
        ("gateway.autoscaling.minReplicas",),
    ),
    "scaling by nothing": (
        {
            "gateway": {
                "autoscaling": {"enabled": True},
                "resources": {"requests": {"cpu": None}},
            }
        },
        ("gateway.autoscaling needs gateway.resources.requests.cpu",),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_values_are_refused_by_name(helm: Helm, tmp_path: Path, case: str) -> None:
    values, words = BAD[case]
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(HelmError) as refused:
        helm.template(values=[file])
    missing = [word for word in words if word not in str(refused.value)]
    assert not missing, refused.value


@pytest.mark.parametrize("release", ["1st", "my.star"])
def test_release_names_that_no_service_can_have_are_refused(helm: Helm, release: str) -> None:
    with pytest.raises(HelmError, match=f"release name {release}"):
        helm.template(release=release)


def test_a_parent_charts_global_values_are_no_mistake(helm: Helm) -> None:
    helm.template("--set", "global.imageRegistry=r.example")


def test_every_object_of_the_schema_is_closed() -> None:
    """A typing error is an error, wherever it is: the open maps are maps of user's names."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    opened = {
        path
        for path, node in _objects("", schema)
        if node.get("additionalProperties", True) is True
    }
    assert opened == {
        "/properties/global",
        *(f"/definitions/peers/items/properties/{kind}" for kind in _PEERS),
        "/properties/networkPolicy/properties/extraEgress/items/properties/ports/items",
    }


_PEERS = ("podSelector", "namespaceSelector", "ipBlock")


def _objects(path: str, node: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(node, list):
        return [found for item in node for found in _objects(path, item)]
    if not isinstance(node, dict):
        return []
    here = [(path, node)] if node.get("type") == "object" else []
    return here + [found for key, item in node.items() for found in _objects(f"{path}/{key}", item)]


def test_every_value_has_a_default_and_a_place_in_the_schema() -> None:
    """No value hides: what the schema knows at the top, values.yaml shows."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert schema["properties"].keys() - {"global"} == values.keys()
    for name, facts in schema["properties"].items():
        for key in facts.get("properties", {}):
            assert key in values[name], f"{name}.{key}"
    for kind in ("targets", "drafts"):
        assert values[kind][0].keys() == schema["properties"][kind]["items"]["properties"].keys()

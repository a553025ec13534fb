"""Rendered objects as Kubernetes reads them: selectors, pods, a container's environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.deploy.helm import Manifest

POD_IPS = {"0.0.0.0": "10.1.2.3", "::": "fd00::7"}
"""Address of a pod by what it listens on."""
SECRET_URL = "rediss://:secret@redis.example.com:6380"


def of_kind(objects: Iterable[Manifest], kind: str) -> list[Manifest]:
    return [item for item in objects if item["kind"] == kind]


def name_of(item: Manifest) -> str:
    name: str = item["metadata"]["name"]
    return name


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """A label selector: matchLabels and matchExpressions (In)."""
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    return exact and all(_holds(term, labels) for term in selector.get("matchExpressions", []))


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert term["operator"] == "In", "the only one the chart uses"
    return labels.get(term["key"]) in term["values"]


@dataclass(frozen=True)
class Workload:
    """A Deployment and its one container."""

    deployment: Manifest

    @property
    def name(self) -> str:
        return name_of(self.deployment)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.deployment["spec"]
        return spec

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.spec["template"]["metadata"]["labels"]
        return labels

    @property
    def role(self) -> str:
        return self.labels["app.kubernetes.io/component"]

    @property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.spec["template"]["spec"]
        return pod

    @property
    def container(self) -> dict[str, Any]:
        [container] = self.pod["containers"]
        found: dict[str, Any] = container
        return found

    @property
    def ports(self) -> dict[str, int]:
        return {port["name"]: port["containerPort"] for port in self.container["ports"]}

    @property
    def entries(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.container.get("env", [])
        return entries

    @property
    def env(self) -> dict[str, str]:
        """What the process would see; a pod has a made-up name and address."""
        literal = {entry["name"]: entry.get("value") for entry in self.entries}
        facts = {
            "metadata.name": f"{self.name}-abc",
            "status.podIP": POD_IPS[literal.get("STARSD_HOST") or "0.0.0.0"],
        }
        env: dict[str, str] = {}
        for entry in self.entries:
            env[entry["name"]] = _expand(_value(entry, facts), env)
        return env


def _value(entry: Mapping[str, Any], facts: Mapping[str, str]) -> str:
    if "value" in entry:
        value: str = entry["value"]
        return value
    source = entry["valueFrom"]
    if "fieldRef" in source:
        return facts[source["fieldRef"]["fieldPath"]]
    assert source["secretKeyRef"].keys() == {"name", "key"}
    return SECRET_URL if entry["name"] == "STARSD_REDIS_URL" else "token"


def _expand(value: str, earlier: Mapping[str, str]) -> str:
    """``$(NAME)`` of a variable that stands before; Kubernetes leaves others as they are."""
    return re.sub(r"\$\((\w+)\)", lambda found: earlier.get(found[1], found[0]), value)


def workloads(objects: Iterable[Manifest]) -> list[Workload]:
    return [Workload(item) for item in of_kind(objects, "Deployment")]


def services(objects: Iterable[Manifest]) -> Iterator[Workload]:
    """The workloads that run our code."""
    return (workload for workload in workloads(objects) if workload.role != "redis")


def workload(objects: Iterable[Manifest], role: str, pool: str = "") -> Workload:
    """The one of a role, or of a pool."""
    found = [
        one
        for one in workloads(objects)
        if one.role == role and pool in ("", one.labels.get("starsd/pool"))
    ]
    [only] = found
    return only

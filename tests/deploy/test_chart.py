"""Helm lints the chart, Kubernetes takes every object, names and selectors fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from starsd import __version__
from tests.deploy.cluster import Workload, matches, name_of, of_kind, workloads
from tests.deploy.helm import CHART, Helm, HelmError, Manifest

FACTS: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
OLDEST, NEWEST = "1.30", "1.37"
UNKNOWN_KINDS = {"PodMonitor"}
"""Not Kubernetes' own: there is no schema for it here."""
LONG = "a-release-name-as-long-as-helm-will-let-you-make-it-"


def test_lint(helm: Helm, values_file: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART, "--values", values_file)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_objects_are_valid(objects: list[Manifest], version: str) -> None:
    for item in objects:
        if item["kind"] in UNKNOWN_KINDS:
            continue
        used = kubernetes_validate.validate(item, version, strict=True)
        assert used == version


def test_an_unknown_field_is_invalid(trial: list[Manifest]) -> None:
    """The validation above can fail."""
    [gateway] = [w for w in workloads(trial) if w.role == "gateway"]
    pod = {**gateway.pod, "enableServiceLink": False}
    spec = {**gateway.spec, "template": {**gateway.spec["template"], "spec": pod}}
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate({**gateway.deployment, "spec": spec}, OLDEST, strict=True)


def test_the_oldest_kubernetes_is_the_one_the_chart_names(helm: Helm) -> None:
    assert FACTS["kubeVersion"] == f">={OLDEST}.0-0"
    assert kubernetes_validate.latest_version().startswith(NEWEST)
    for version in (OLDEST, NEWEST):
        helm.template("--kube-version", version)
    with pytest.raises(HelmError, match="kubeVersion"):
        helm.template("--kube-version", "1.29.9")


def test_versions_are_the_codes() -> None:
    assert FACTS["appVersion"] == FACTS["version"] == __version__


def test_yaml_has_no_duplicate_keys(helm: Helm, values_file: Path) -> None:
    for document in yaml.compose_all(helm.template(values=[values_file]), yaml.SafeLoader):
        for mapping in _mappings(document):
            keys = [key.value for key, _ in mapping.value]
            assert len(keys) == len(set(keys)), mapping.start_mark


def _mappings(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    if isinstance(node, yaml.MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _mappings(value)


def test_all_roles_are_there(trial: list[Manifest]) -> None:
    assert sorted(w.role for w in workloads(trial)) == ["draft", "gateway", "redis", "target"]
    kinds = {item["kind"] for item in trial}
    assert kinds == {
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
        "ServiceAccount",
    }


def test_nothing_names_a_namespace_or_helm(objects: list[Manifest]) -> None:
    """Plain manifests go where ``kubectl -n`` says; Helm adds its own labels at install."""
    for item in objects:
        assert "namespace" not in item["metadata"]
        labels = item["metadata"]["labels"]
        assert not [key for key in labels if "helm" in key or "managed-by" in key]


def test_deployments_select_their_pods_and_no_others(objects: list[Manifest]) -> None:
    every = workloads(objects)
    for one in every:
        assert [w.name for w in every if matches(one.spec["selector"], w.labels)] == [one.name]


def test_services_select_their_pods(objects: list[Manifest]) -> None:
    for service in of_kind(objects, "Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        [one] = [w for w in workloads(objects) if matches(selector, w.labels)]
        assert one.name == name_of(service)
        assert [port["targetPort"] for port in service["spec"]["ports"]] == [
            port for port in one.ports if port != "metrics"
        ]


def test_only_gateway_and_redis_have_services(objects: list[Manifest]) -> None:
    roles = {s["metadata"]["labels"]["app.kubernetes.io/component"] for s in _services(objects)}
    assert roles <= {"gateway", "redis"}


def _services(objects: list[Manifest]) -> list[Manifest]:
    return of_kind(objects, "Service")


def test_disruption_budgets_are_for_several_pods_that_answer(objects: list[Manifest]) -> None:
    for one in workloads(objects):
        wanted = _least_replicas(objects, one) > 1 and one.role in ("gateway", "target")
        budgets = [
            budget
            for budget in of_kind(objects, "PodDisruptionBudget")
            if matches(budget["spec"]["selector"], one.labels)
        ]
        assert [name_of(budget) for budget in budgets] == [one.name] * wanted
        assert all(budget["spec"]["maxUnavailable"] == 1 for budget in budgets)


def _least_replicas(objects: list[Manifest], one: Workload) -> int:
    for scaler in of_kind(objects, "HorizontalPodAutoscaler"):
        if scaler["spec"]["scaleTargetRef"]["name"] == one.name:
            least: int = scaler["spec"]["minReplicas"]
            return least
    replicas: int = one.spec["replicas"]
    return replicas


def test_an_autoscaled_gateway_has_no_replicas_of_its_own(helm: Helm) -> None:
    objects = helm.render("--set", "gateway.autoscaling.enabled=true")
    [scaler] = of_kind(objects, "HorizontalPodAutoscaler")
    [gateway] = [w for w in workloads(objects) if w.role == "gateway"]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": gateway.name}
    assert scaler["spec"]["scaleTargetRef"] == target
    assert "replicas" not in gateway.spec
    assert gateway.container["resources"]["requests"]["cpu"]


def test_a_pool_may_be_empty_and_replicas_are_kept(helm: Helm) -> None:
    objects = helm.render(values=[Path(__file__).parent / "values-everything.yaml"])
    pools = {w.name: w.spec["replicas"] for w in workloads(objects) if w.role != "gateway"}
    assert pools == {
        "starsd-target-small": 0,
        "starsd-target-single": 1,
        "starsd-target-large": 3,
        "starsd-draft-small": 2,
        "starsd-draft-large": 1,
        "starsd-redis": 1,
    }


def test_two_releases_share_nothing(helm: Helm) -> None:
    mine, theirs = helm.render(release="mine"), helm.render(release="theirs")
    assert not _names(mine) & _names(theirs)
    for selector in _selectors(mine):
        assert not [w.name for w in workloads(theirs) if matches(selector, w.labels)]
    spaces = [{w.env["STARSD_NAMESPACE"] for w in _with_env(each)} for each in (mine, theirs)]
    assert spaces == [{"mine-starsd"}, {"theirs-starsd"}]


def _with_env(objects: list[Manifest]) -> list[Workload]:
    return [w for w in workloads(objects) if w.entries]


def _names(objects: list[Manifest]) -> set[tuple[str, str]]:
    return {(item["kind"], name_of(item)) for item in objects}


def _selectors(objects: list[Manifest]) -> Iterator[dict[str, Any]]:
    for item in objects:
        match item["kind"]:
            case "Service":
                yield {"matchLabels": item["spec"]["selector"]}
            case "NetworkPolicy":
                yield item["spec"]["podSelector"]
            case "Deployment" | "PodDisruptionBudget":
                yield item["spec"]["selector"]


def test_long_names_fit_and_stay_apart(helm: Helm) -> None:
    pool = f'[{{"name":"{"p" * 20}","model":"m","resources":{{}}}}]'
    options = ("--set-json", f"targets={pool}", "--set-json", f"drafts={pool}")
    first, second = (helm.render(*options, release=LONG + end) for end in "ab")
    assert not _names(first) & _names(second)
    for item in first:
        assert re.fullmatch(r"[a-z][-a-z0-9]{0,61}[a-z0-9]", name_of(item)), name_of(item)


def test_the_pod_monitor_scrapes_every_service(helm: Helm) -> None:
    objects = helm.render(values=[Path(__file__).parent / "values-everything.yaml"])
    [monitor] = of_kind(objects, "PodMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metrics", "path": "/metrics"}
    for one in _with_env(objects):
        assert matches(monitor["spec"]["selector"], one.labels)
        assert endpoint["port"] in one.ports


def test_the_notes_name_the_gateways_service(helm: Helm) -> None:
    """``helm template`` prints none; a dry run without a cluster does."""
    text = helm.run("install", "trial", CHART, "--dry-run=client", "--namespace", "stars")
    assert "kubectl -n stars port-forward service/trial-starsd-gateway 8000:8000" in text
    assert "The bundled Redis is for trials" in text

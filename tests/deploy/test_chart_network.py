"""The network policies allow the star's arms and nothing else."""

from __future__ import annotations

import pytest

from starsd.engine.checkpoint import BUNDLED
from tests.deploy.cluster import of_kind, workloads
from tests.deploy.helm import Helm, Manifest
from tests.deploy.network import End, Network

STRANGER = End({"app": "stranger"})
MONITOR = End({"app": "prometheus"}, "monitoring")
INGRESS = End({"app": "nginx"}, "ingress")
WORLD = End(None)


def _ends(objects: list[Manifest]) -> dict[str, End]:
    pods = {one.role: End(one.labels, ports=one.ports) for one in workloads(objects)}
    others = {"stranger": STRANGER, "monitor": MONITOR, "ingress": INGRESS, "world": WORLD}
    return pods | others


def _network(objects: list[Manifest]) -> Network:
    return Network(of_kind(objects, "NetworkPolicy"))


ROLES = ("gateway", "target", "draft", "redis")
PORTS = {"gateway": (8000, 9000), "target": (8001, 9001), "draft": (8002, 9002), "redis": (6379,)}
ARMS = {
    ("gateway", "target", 8001),
    *((role, "redis", 6379) for role in ("gateway", "target", "draft")),
    *((anyone, "gateway", 8000) for anyone in ("stranger", "monitor", "ingress", "world")),
}


def test_the_arms_and_no_other_way(trial: list[Manifest]) -> None:
    """Every pair and port of the default star, with what is not the star's on either side."""
    ends, network = _ends(trial), _network(trial)
    open_ways = {
        (source, target, port)
        for source in ends
        for target in ROLES
        for port in PORTS[target]
        if source != target and network.allows(ends[source], ends[target], port)
    }
    assert open_ways == ARMS


def test_pods_of_a_role_do_not_speak_to_each_other(trial: list[Manifest]) -> None:
    ends, network = _ends(trial), _network(trial)
    assert not any(network.allows(ends[r], ends[r], port) for r in ROLES for port in PORTS[r])


@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_services_ask_dns_and_redis_does_not(trial: list[Manifest], protocol: str) -> None:
    ends, network = _ends(trial), _network(trial)
    dns = End({"k8s-app": "kube-dns"}, "kube-system")
    asking = {role for role in ROLES if network.allows(ends[role], dns, 53, protocol)}
    assert asking == {"gateway", "target", "draft"}


def test_nothing_else_leaves_the_star(trial: list[Manifest]) -> None:
    ends, network = _ends(trial), _network(trial)
    for role in ROLES:
        for other in (WORLD, STRANGER, MONITOR):
            for port in (80, 443, 6379, 8001):
                assert not network.allows(ends[role], other, port), (role, other, port)


def test_metrics_are_open_to_named_namespaces(helm: Helm) -> None:
    objects = helm.render("--set", "metrics.namespaces={monitoring}")
    ends, network = _ends(objects), _network(objects)
    for port, role in ((9000, "gateway"), (9001, "target"), (9002, "draft")):
        assert network.allows(MONITOR, ends[role], port)
        assert not network.allows(STRANGER, ends[role], port)
    assert not network.allows(MONITOR, ends["target"], 8001)
    assert not network.allows(MONITOR, ends["redis"], 6379)


def test_clients_can_be_narrowed(helm: Helm) -> None:
    selector = '[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"ingress"}}}]'
    objects = helm.render("--set-json", f"networkPolicy.clients={selector}")
    ends, network = _ends(objects), _network(objects)
    assert network.allows(INGRESS, ends["gateway"], 8000)
    for other in (STRANGER, MONITOR, WORLD):
        assert not network.allows(other, ends["gateway"], 8000)


@pytest.mark.parametrize(
    ("model", "draft", "downloads"),
    [
        (BUNDLED, "auto", set()),
        (BUNDLED, "self", set()),
        (BUNDLED, "layers:10", set()),
        (BUNDLED, "noisy:0.1", set()),
        (BUNDLED, "/models/small", set()),
        (BUNDLED, BUNDLED, set()),
        ("/models/large", "./small", set()),
        (BUNDLED, "org/small", {"draft"}),
        (BUNDLED, "self-made", {"draft"}),
        ("org/large", "self", {"target", "draft"}),
    ],
)
def test_only_hub_models_reach_https(
    helm: Helm, model: str, draft: str, downloads: set[str]
) -> None:
    pool = f'"name":"x","model":"{model}","resources":{{}}'
    objects = helm.render(
        *("--set-json", f"targets=[{{{pool}}}]"),
        *("--set-json", f'drafts=[{{{pool},"settings":{{"draft":"{draft}"}}}}]'),
    )
    ends, network = _ends(objects), _network(objects)
    assert {role for role in ROLES if network.allows(ends[role], WORLD, 443)} == downloads
    assert not any(network.allows(ends[role], WORLD, 80) for role in ROLES)


def test_an_external_redis_is_reached_at_its_port(helm: Helm) -> None:
    peers = '[{"podSelector":{"matchLabels":{"app":"stranger"}}}]'
    own = (
        *("--set", "redis.bundled.enabled=false,redis.external.url=redis://r:6380"),
        *("--set", "redis.external.port=6380"),
    )
    anywhere, narrow = (
        helm.render(*own),
        helm.render(*own, "--set-json", f"redis.external.peers={peers}"),
    )
    for role in ("gateway", "target", "draft"):
        assert _network(anywhere).allows(_ends(anywhere)[role], WORLD, 6380)
        assert not _network(anywhere).allows(_ends(anywhere)[role], WORLD, 6379)
        assert _network(narrow).allows(_ends(narrow)[role], STRANGER, 6380)
        assert not _network(narrow).allows(_ends(narrow)[role], WORLD, 6380)


def test_stars_in_one_namespace_are_strangers(helm: Helm) -> None:
    mine, theirs = helm.render(release="mine"), helm.render(release="theirs")
    network = Network([*of_kind(mine, "NetworkPolicy"), *of_kind(theirs, "NetworkPolicy")])
    ours, others = _ends(mine), _ends(theirs)
    assert network.allows(ours["gateway"], ours["target"], 8001)
    assert not network.allows(ours["gateway"], others["target"], 8001)
    assert not network.allows(ours["target"], others["redis"], 6379)


def test_every_pool_is_reached(helm: Helm) -> None:
    pools = ",".join(f'{{"name":"{n}","model":"m","resources":{{}}}}' for n in ("a", "b"))
    objects = helm.render("--set-json", f"targets=[{pools}]")
    gateway = _ends(objects)["gateway"]
    targets = [End(w.labels, ports=w.ports) for w in workloads(objects) if w.role == "target"]
    assert len(targets) == 2
    assert all(_network(objects).allows(gateway, target, 8001) for target in targets)


def test_without_policies_all_is_open(helm: Helm) -> None:
    objects = helm.render("--set", "networkPolicy.enabled=false")
    assert _network(objects).policies == []
    assert _network(objects).allows(STRANGER, _ends(objects)["redis"], 6379)

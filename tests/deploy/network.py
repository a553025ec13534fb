"""What a cluster's network plugin does with NetworkPolicies, for pods, namespaces and the world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.deploy.cluster import matches
from tests.deploy.helm import Manifest

HOME = "home"
"""The namespace of the policies."""


@dataclass(frozen=True)
class End:
    """One end of a connection: a pod, or with ``labels`` None an address outside the cluster."""

    labels: Mapping[str, str] | None
    namespace: str = HOME
    ports: Mapping[str, int] = field(default_factory=dict)
    """Named ports."""


@dataclass(frozen=True)
class Network:
    policies: Sequence[Manifest]

    def allows(self, source: End, target: End, port: int, protocol: str = "TCP") -> bool:
        """Both ends must let it through, as the NetworkPolicy API defines it."""
        leaves = self._passes("egress", source, target, target, port, protocol)
        enters = self._passes("ingress", target, source, target, port, protocol)
        return leaves and enters

    def _passes(
        self, way: str, subject: End, peer: End, target: End, port: int, protocol: str
    ) -> bool:
        """Free unless some policy isolates ``subject`` in this direction; then a rule must fit."""
        isolating = [policy["spec"] for policy in self.policies if _isolates(policy, way, subject)]
        if not isolating:
            return True
        rules = [rule for spec in isolating for rule in spec.get(way, [])]
        peers = "to" if way == "egress" else "from"
        return any(
            _fits_peer(rule.get(peers, []), peer) and _fits_port(rule, target, port, protocol)
            for rule in rules
        )


def _isolates(policy: Manifest, way: str, subject: End) -> bool:
    spec = policy["spec"]
    ours = subject.labels is not None and subject.namespace == HOME
    typed = way.capitalize() in spec["policyTypes"]
    return ours and typed and matches(spec["podSelector"], subject.labels or {})


def _fits_peer(peers: Sequence[Mapping[str, Any]], end: End) -> bool:
    """An empty list is anyone."""
    return not peers or any(_is_peer(peer, end) for peer in peers)


def _is_peer(peer: Mapping[str, Any], end: End) -> bool:
    if "ipBlock" in peer:
        return False  # no end here lies in one
    if end.labels is None:
        return False
    if "namespaceSelector" in peer:
        name = {"kubernetes.io/metadata.name": end.namespace}
        if not matches(peer["namespaceSelector"], name):
            return False
    elif end.namespace != HOME:
        return False
    return matches(peer.get("podSelector", {}), end.labels)


def _fits_port(rule: Mapping[str, Any], target: End, port: int, protocol: str) -> bool:
    return "ports" not in rule or any(
        entry.get("protocol", "TCP") == protocol
        and port == target.ports.get(str(entry["port"]), entry["port"])
        for entry in rule["ports"]
    )

"""Every Redis key the star uses is named here. One hash tag, so Cluster keeps them in one slot."""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "draft"
"""The one consumer group on Q_in and on sticky queues."""

FIELD = "d"
"""The one field of every stream entry."""


@dataclass(frozen=True)
class Keys:
    """Key names of one star; ``namespace`` separates stars that share a Redis."""

    namespace: str

    def _key(self, *parts: str) -> str:
        return ":".join(("{" + self.namespace + "}", *parts))

    def offer_queue(self, offer_digest: str) -> str:
        """Q_in: first jobs, pulled by any hub with that offer."""
        return self._key("q", offer_digest)

    def hub_queue(self, hub: str) -> str:
        """Sticky queue of one hub: later jobs of its sequences, hello, close."""
        return self._key("q", hub)

    def reply_stream(self, target: str, boot: str) -> str:
        """Q_out of one session."""
        return self._key("out", target, boot)

    @property
    def reply_prefix(self) -> str:
        return self._key("out", "")

    @property
    def pods(self) -> str:
        """ZSET of live pods: id -> expiry in server milliseconds."""
        return self._key("pods")

    def pod(self, pod_id: str) -> str:
        return self._key("pods", pod_id)

    @property
    def dead_letters(self) -> str:
        return self._key("dead")

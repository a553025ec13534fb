"""The bus of a target that was given no Redis: never connected, so the target serves alone."""

from __future__ import annotations

from starsd.bus.interface import TargetEvent
from starsd.protocol.messages import Propose, ToHub


class AbsentBus:
    """A TargetBus on which nothing ever arrives."""

    reply_key = "absent"
    connected = False

    def send_first(self, offer_digest: str, job: Propose) -> None: ...

    def send_hub(self, hub: str, message: ToHub) -> None: ...

    def flush(self) -> None: ...

    def receive(self) -> list[TargetEvent]:
        return []

    def filenos(self) -> list[int]:
        return []

    def close(self) -> None: ...

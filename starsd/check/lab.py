"""Services as processes of one's own, for checks, benchmarks and tests: started with any settings,
killed and restarted at will, and certainly gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from starsd.bus.server import EmbeddedRedis
from starsd.errors import DeadlineError, UnavailableError
from starsd.process import leash
from starsd.process.ports import free_ports
from starsd.settings.common import PREFIX

LOCAL = "127.0.0.1"
POLL_S = 0.05
STOP_S = 15.0


@dataclass
class Service:
    """One process. ``url`` is its API, ``metrics_url`` where /health and /metrics are."""

    name: str
    kind: str
    env: Mapping[str, str]
    url: str
    metrics_url: str
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def ready(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.metrics_url}/health/ready", timeout=2.0).is_success
        return False

    def metrics(self) -> str:
        """The exposition text. Raises httpx.HTTPError."""
        return httpx.get(f"{self.metrics_url}/metrics", timeout=5.0).text

    def wait_ready(self, timeout_s: float = 120.0) -> Self:
        """Raises UnavailableError if it died, DeadlineError if it is late; both show its log."""
        deadline = time.monotonic() + timeout_s
        while not self.ready:
            if self.process is None or self.process.poll() is not None:
                raise UnavailableError(f"{self.name} ended: {self.last_lines()}")
            if time.monotonic() > deadline:
                raise DeadlineError(f"{self.name} is not ready: {self.last_lines()}")
            time.sleep(POLL_S)
        return self

    @property
    def hubs_usable(self) -> int:
        """Hubs that have welcomed this target."""
        with suppress(httpx.HTTPError):
            health = httpx.get(f"{self.metrics_url}/health/ready", timeout=2.0).json()
            return int(health.get("hubs_usable", 0))
        return 0

    def last_lines(self, count: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def start(self) -> Self:
        command = (sys.executable, "-I", "-S", leash.__file__, str(os.getpid()))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, sys.executable, "-m", f"services.{self.kind}"],
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def kill(self) -> None:
        """SIGKILL to the whole pod, its loop included, as a lost node would be."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(STOP_S)
            self.process = None

    def terminate(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def stop(self) -> int | None:
        """SIGTERM, then SIGKILL after a while; the exit code."""
        self.terminate()
        return self.ended()

    def ended(self) -> int | None:
        """The exit code of one told to end, which is killed after a while."""
        if self.process is None:
            return None
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.kill()


class Lab:
    """Starts services and, unless ``redis_url`` is given, a Redis for them."""

    def __init__(self, redis_url: str | None = None, **settings: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="starsd-lab-")
        self.redis = EmbeddedRedis() if redis_url is None else None
        self._redis_url = redis_url or ""
        self._common = settings
        self._ports: list[int] = []
        """Given to services, which take them when they are up."""
        self.services: dict[str, Service] = {}

    def __enter__(self) -> Self:
        if self.redis is not None:
            self.redis.start()
            self._redis_url = self.redis.url
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for service in self.services.values():  # all at once
            service.terminate()
        for service in self.services.values():
            service.ended()
        if self.redis is not None:
            self.redis.close()
        self._folder.cleanup()

    def start(self, name: str, kind: str, **settings: Any) -> Service:
        """Start a service; ``settings`` override those of the lab. Does not wait until ready."""
        port, metrics_port = ports = free_ports(2, LOCAL, self._ports)
        self._ports += ports
        given = {
            "id": name,
            "port": port,
            "metrics_port": metrics_port,
            "redis_url": self._redis_url,
            **self._common,
            **settings,
        }
        outside = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        ours = {PREFIX + key.upper(): str(value) for key, value in given.items()}
        service = Service(
            name=name,
            kind=kind,
            env={**outside, **ours},
            url=f"http://{LOCAL}:{port}",
            metrics_url=f"http://{LOCAL}:{metrics_port}",
            log=Path(self._folder.name) / f"{name}.log",
        )
        self.services[name] = service
        return service.start()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        for service in self.services.values():
            service.wait_ready(timeout_s)

    def wait_hubs(self, timeout_s: float = 30.0) -> None:
        """Every target has been welcomed by a hub. Raises DeadlineError."""
        deadline = time.monotonic() + timeout_s
        targets = [service for service in self.services.values() if service.kind == "target"]
        while not all(target.hubs_usable for target in targets):
            if time.monotonic() > deadline:
                raise DeadlineError("no hub has welcomed every target")
            time.sleep(POLL_S)

"""Who is in the star: each pod's facts under a key that expires, listed in one sorted set."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import msgspec
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from starsd.bus.address import parse_address
from starsd.errors import TransportError
from starsd.protocol.keys import Keys
from starsd.protocol.pods import HubPod, Pod, TargetPod

log = structlog.get_logger()

TIMEOUT_S = 1.0
MAX_PODS = 1024
MAX_FACTS_BYTES = 8 * 1024
"""Of one pod; with MAX_PODS of them a front's ``Hubs`` frame stays within its own bound."""
LIST_TTL_MS = 3_600_000
"""The list of a star whose last pod was killed goes after this."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Pod] = msgspec.json.Decoder(HubPod | TargetPod)


class Registry:
    """The star's registry in Redis. Every method raises TransportError when Redis is unusable.

    Times are the server's, so pods' clocks need not agree. Any Redis settings besides those in
    ``url`` are fixed: RESP2, no retries, one second for anything.
    """

    def __init__(self, url: str, namespace: str) -> None:
        """Raises ConfigError for a bad URL; connects at first use."""
        parse_address(url)
        self._keys = Keys(namespace)
        self._redis: Redis = Redis.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
        )

    async def publish(self, pod: Pod, ttl_s: float) -> None:
        """Write the pod and its expiry anew (nothing is assumed to be still there), and remove
        those that have expired: readers may not write."""
        ttl_ms = int(ttl_s * 1000)
        async with self._errors_mapped():
            now = await self._now_ms()
            async with self._redis.pipeline(transaction=False) as batch:
                batch.set(self._keys.pod(pod.id), _encoder.encode(pod), px=ttl_ms)
                batch.zadd(self._keys.pods, {pod.id: now + ttl_ms})
                batch.zremrangebyscore(self._keys.pods, "-inf", now)
                batch.pexpire(self._keys.pods, LIST_TTL_MS)
                await batch.execute()

    async def withdraw(self, pod_id: str) -> None:
        """Leave at once; unknown ids are fine."""
        async with self._errors_mapped(), self._redis.pipeline(transaction=False) as batch:
            batch.zrem(self._keys.pods, pod_id)
            batch.delete(self._keys.pod(pod_id))
            await batch.execute()

    async def pods(self) -> list[Pod]:
        """Live pods, at most MAX_PODS. Entries that do not decode are logged and skipped."""
        async with self._errors_mapped():
            now = await self._now_ms()
            listed = await self._redis.zrangebyscore(
                self._keys.pods, f"({now}", "+inf", start=0, num=MAX_PODS
            )
            ids = [cast(bytes, name).decode(errors="replace") for name in listed]
            facts = await self._redis.mget([self._keys.pod(name) for name in ids]) if ids else []
        found = (_read(name, cast(bytes, data)) for name, data in zip(ids, facts, strict=True))
        return [pod for pod in found if pod is not None]

    async def close(self) -> None:
        async with self._errors_mapped():
            await self._redis.aclose()

    async def _now_ms(self) -> int:
        seconds, micros = await self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    @asynccontextmanager
    async def _errors_mapped(self) -> AsyncIterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:  # TimeoutError is an OSError
            raise TransportError(f"registry: {type(error).__name__}: {error}") from error


def _read(name: str, data: bytes | None) -> Pod | None:
    if data is None:
        return None
    try:
        if len(data) > MAX_FACTS_BYTES:
            raise msgspec.DecodeError(f"{len(data)} bytes; the limit is {MAX_FACTS_BYTES}")
        return _decoder.decode(data)
    # Hostile nesting exhausts the decoder's recursion limit even inside fields it would skip.
    except (msgspec.MsgspecError, RecursionError) as error:
        log.warning("undecodable pod in the registry", pod=name, reason=str(error))
        return None

"""What only a real server can show of the arms: time, memory, credentials, TLS, a frozen peer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from redis import Redis

from starsd.bus.hub import RedisHubBus
from starsd.bus.hygiene import HygieneTimes
from starsd.bus.interface import Garbage, Reconnected
from starsd.bus.server import EmbeddedRedis
from starsd.bus.target import RedisTargetBus
from starsd.process.ports import free_ports
from starsd.protocol.codec import encode
from starsd.protocol.keys import FIELD, GROUP
from starsd.protocol.messages import Proposal
from tests.integration.bus.arms import KEYS, OFFER, Hub, Target, for_a_while, turn, until
from tests.integration.bus.conftest import binary
from tests.unit.protocol.samples import REPLY_KEY, proposal, propose

Q_IN = KEYS.offer_queue(OFFER)
STICKY = KEYS.hub_queue("h1")
QUICK = HygieneTimes(tick_s=0.05, min_idle_s=0.2, consumer_idle_s=0.1)


@pytest.fixture
def redis(redis_server: EmbeddedRedis) -> Iterator[Redis]:
    with Redis.from_url(redis_server.url, protocol=2) as client:
        yield client


def make_target(url: str, stack: ExitStack) -> Target:
    bus = RedisTargetBus(url, KEYS, "t1", "b1", tick_s=0.05)
    stack.callback(bus.close)
    return Target(bus)


def make_hub(url: str, stack: ExitStack, boot: str = "hb1") -> Hub:
    bus = RedisHubBus(url, KEYS, "h1", boot, OFFER, times=QUICK)
    stack.callback(bus.close)
    return Hub(bus)


@pytest.fixture
def both(redis_server: EmbeddedRedis) -> Iterator[tuple[Target, Hub]]:
    with ExitStack() as stack:
        target = make_target(redis_server.url, stack)
        hub = make_hub(redis_server.url, stack)
        until(lambda: target.bus.connected and hub.bus.connected, target, hub)
        for_a_while(0.03, target, hub)
        target.events.clear()
        yield target, hub


def go_round(target: Target, hub: Hub, seq: str = "s1") -> None:
    until(lambda: target.bus.connected and hub.bus.connected, target, hub)
    target.bus.send_hub("h1", propose(seq=seq))
    until(lambda: any(job.message.seq == seq for job in hub.jobs), target, hub)  # type: ignore[union-attr]
    hub.bus.reply(REPLY_KEY, proposal(seq=seq))
    hub.bus.done(hub.jobs[-1])
    until(lambda: proposal(seq=seq) in target.events, target, hub)


def test_every_key_of_the_star_expires(both: tuple[Target, Hub], redis: Redis) -> None:
    target, hub = both
    redis.xadd(STICKY, {FIELD: b"garbage"})
    until(lambda: hub.bad, target, hub)
    until(lambda: redis.exists(KEYS.dead_letters), target, hub)
    for key in (Q_IN, STICKY, REPLY_KEY):
        assert 50_000 < int(redis.pttl(key)) <= 60_000
    assert 0 < int(redis.ttl(KEYS.dead_letters)) <= 24 * 3600


def test_a_frozen_server_is_noticed_and_its_return_too(
    redis_server: EmbeddedRedis, both: tuple[Target, Hub]
) -> None:
    target, hub = both
    assert redis_server.pid is not None
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        until(lambda: not (target.bus.connected or hub.bus.connected), target, hub)
        started = time.monotonic()
        for _ in range(100):
            turn(target, hub)
        assert time.monotonic() - started < 1, "a dead server must not block the loops"
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    until(lambda: target.bus.connected and hub.bus.connected, target, hub)
    assert Reconnected() in target.events
    go_round(target, hub, "after")


def test_a_cursor_ahead_of_the_stream_starts_anew(both: tuple[Target, Hub], redis: Redis) -> None:
    """As after a failover to a server that never saw the entries we read."""
    target, hub = both
    redis.xadd(REPLY_KEY, {FIELD: encode(proposal(seq="future"))}, id="99999999999999-0")
    until(lambda: target.events, target, hub)
    redis.delete(REPLY_KEY)
    redis.xadd(REPLY_KEY, {"boot": ""})
    redis.client_kill_filter(_type="normal", skipme=True)
    until(lambda: Reconnected() in target.events, target, hub)
    go_round(target, hub)


def test_groups_are_made_again_on_the_same_connection(
    both: tuple[Target, Hub], redis: Redis
) -> None:
    target, hub = both

    def connections() -> int:
        return int(redis.info("stats")["total_connections_received"])

    before = connections()
    redis.flushall()
    until(lambda: redis.exists(Q_IN, STICKY) == 2, target, hub)
    target.bus.send_hub("h1", propose())
    until(lambda: hub.jobs, target, hub)
    assert connections() == before


def test_what_comes_while_the_hub_computes_is_all_there_at_its_next_look(
    both: tuple[Target, Hub],
) -> None:
    """One by one, and a burst: no read has to be posted in between."""
    target, hub = both
    for_a_while(0.05, hub)
    for number in range(5):
        target.bus.send_hub("h1", propose(seq=f"single {number}"))
        target.bus.flush()
        time.sleep(0.02)
    for number in range(20):
        target.bus.send_hub("h1", propose(seq=f"burst {number}"))
    target.bus.flush()
    time.sleep(0.1)
    assert len(hub.bus.receive(0.0, want_first=0)) == 25


def test_what_was_lost_with_a_connection_comes_with_the_next(
    redis_server: EmbeddedRedis, redis: Redis
) -> None:
    times = HygieneTimes(min_idle_s=60)
    with closing(RedisHubBus(redis_server.url, KEYS, "h1", "hb1", OFFER, times=times)) as bus:
        hub = Hub(bus)
        until(lambda: bus.connected, hub, want_first=0)
        for number in range(100):
            redis.xadd(Q_IN, {FIELD: encode(propose(seq=str(number)))})
        redis.xreadgroup(GROUP, "h1:hb1", {Q_IN: ">"}, count=100)
        redis.client_kill_filter(_type="normal", skipme=True)
        until(lambda: len(hub.jobs) == 100, hub, want_first=0)
    seqs = [job.message.seq for job in hub.jobs]  # type: ignore[union-attr]
    assert seqs == [str(number) for number in range(100)]


def test_age_is_by_server_clock(both: tuple[Target, Hub], redis: Redis) -> None:
    target, hub = both
    for_a_while(0.2, target, hub)
    redis.delete(STICKY)
    now_ms = int(redis.time()[0]) * 1000
    redis.xadd(STICKY, {FIELD: encode(propose())}, id=f"{now_ms - 20_000}-0")
    until(lambda: hub.jobs, target, hub)
    assert 19 < hub.jobs[0].age_s < 25


def test_what_lies_unread_for_a_minute_is_removed(
    redis: Redis, redis_server: EmbeddedRedis
) -> None:
    now_ms = int(redis.time()[0]) * 1000
    for number in range(40):
        redis.xadd(Q_IN, {FIELD: encode(propose(seq="old"))}, id=f"{now_ms - 90_000}-{number + 1}")
    redis.xadd(Q_IN, {FIELD: encode(propose(seq="young"))})
    with ExitStack() as stack:
        hub = make_hub(redis_server.url, stack)
        until(lambda: redis.xlen(Q_IN) <= 1, hub, want_first=0)
        for_a_while(0.2, hub, want_first=0)
        until(lambda: hub.jobs, hub, want_first=1)
    assert [job.message.seq for job in hub.jobs] == ["young"]  # type: ignore[union-attr]


def test_consumers_of_crashed_hubs_are_forgotten(both: tuple[Target, Hub], redis: Redis) -> None:
    target, hub = both
    redis.xgroup_createconsumer(Q_IN, GROUP, "crashed:1")

    def names() -> list[bytes]:
        return [row["name"] for row in redis.xinfo_consumers(Q_IN, GROUP)]

    until(lambda: names() == [b"h1:hb1"], target, hub)
    hub.bus.close()
    assert names() == []


def test_a_full_server_is_no_draft_and_no_crash(both: tuple[Target, Hub], redis: Redis) -> None:
    target, hub = both
    redis.config_set("maxmemory", "1")
    target.bus.send_hub("h1", propose())
    until(lambda: target.events, target, hub)
    assert isinstance(target.events[0], Garbage)
    assert "OOM" in target.events[0].reason
    redis.config_set("maxmemory", "0")
    go_round(target, hub)


def test_a_replica_is_left_and_a_master_found_again(both: tuple[Target, Hub], redis: Redis) -> None:
    target, hub = both
    redis.replicaof("127.0.0.1", str(free_ports(1, "127.0.0.1")[0]))
    target.bus.send_hub("h1", propose(seq="lost"))
    until(lambda: not target.bus.connected, target, hub)
    redis.replicaof("NO", "ONE")
    until(lambda: target.bus.connected and hub.bus.connected, target, hub)
    go_round(target, hub)


def test_reply_streams_stay_short_when_the_target_is_stuck(
    both: tuple[Target, Hub], redis: Redis
) -> None:
    _, hub = both
    for _ in range(6000):
        hub.bus.reply(REPLY_KEY, proposal())
    until(lambda: int(redis.xlen(REPLY_KEY)) > 3000, hub)
    for_a_while(0.3, hub)
    assert int(redis.xlen(REPLY_KEY)) <= 4096 + 200


def test_password_and_database() -> None:
    with EmbeddedRedis(options=(("requirepass", "s3cret"),)) as server, ExitStack() as stack:
        path = server.url.removeprefix("unix://")
        right, wrong = f"unix://:s3cret@{path}?db=2", f"unix://:wrong@{path}?db=2"
        target, hub = make_target(right, stack), make_hub(right, stack)
        stranger = RedisTargetBus(wrong, KEYS, "t2", "b1")
        stack.callback(stranger.close)
        go_round(target, hub)
        assert stranger.receive() == []
        assert not stranger.connected
        with Redis.from_url(right, protocol=2) as client:
            assert client.exists(Q_IN)


def certificate(folder: Path) -> tuple[Path, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    form: tuple[str | Path, ...] = (
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-keyout",
        key,
        "-out",
        cert,
    )
    command = ["openssl", "req", *form, *subject]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return key, cert


@pytest.mark.skipif(
    shutil.which("openssl") is None and "CI" not in os.environ, reason="no openssl here"
)
def test_tls(tmp_path: Path) -> None:
    key, cert = certificate(tmp_path)
    port = free_ports(1, "127.0.0.1")[0]
    options = (
        ("tls-port", str(port)),
        ("tls-cert-file", str(cert)),
        ("tls-key-file", str(key)),
        ("tls-auth-clients", "no"),
    )
    url = f"rediss://localhost:{port}?ssl_ca_certs={cert}"
    with EmbeddedRedis(binary=binary("redis-tls"), options=options), ExitStack() as stack:
        target, hub = make_target(url, stack), make_hub(url, stack)
        go_round(target, hub)
        target.bus.send_hub("h1", propose(seq="big", features=b"f" * 200_000))
        until(lambda: len(hub.jobs) == 2, target, hub)
        with closing(RedisTargetBus(f"rediss://localhost:{port}", KEYS, "t2", "b1")) as wary:
            for_a_while(0.3, Target(wary))
            assert not wary.connected, "nobody vouches for that certificate"


def test_proposals_are_what_a_target_gets(both: tuple[Target, Hub]) -> None:
    """A thousand rounds in order through one pair, nothing lost, nothing twice."""
    target, hub = both
    for number in range(100):
        for seq in range(10):
            target.bus.send_hub("h1", propose(seq=f"{number}.{seq}"))
        until(lambda: len(hub.jobs) == 10, target, hub)
        for job in hub.jobs:
            hub.bus.reply(REPLY_KEY, proposal(seq=job.message.seq))  # type: ignore[union-attr]
            hub.bus.done(job)
        hub.jobs.clear()
    until(lambda: len(target.events) >= 1000, target, hub)
    seqs = [event.seq for event in target.events if isinstance(event, Proposal)]
    assert seqs == [f"{number}.{seq}" for number in range(100) for seq in range(10)]

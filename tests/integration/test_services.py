"""Settings whose effect only whole processes show: two stars on one Redis, differently set."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator

import httpx
import psutil
import pytest
from redis import Redis

from starsd.bus.registry import Registry
from starsd.check.lab import Lab, Service
from starsd.protocol.pods import Pod
from tests.livestar import eventually, loop_of

CORES = sorted(os.sched_getaffinity(0))
QUIET = {"namespace": "two", "log_level": "error"}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Star "one" is a hub and a target, pinned and logging JSON; "two" a target and a gateway."""
    noisy = {"namespace": "one", "log_json": True}
    with Lab(scripted="tests.scripted:EchoModel", heartbeat_s=0.1) as lab:
        lab.start("hub", "draft", cores=CORES[0], boot="h1", **noisy)
        lab.start("pinned", "target", cores=CORES[-1], **noisy)
        lab.start("alone", "target", served_model_name="echo", **QUIET)
        lab.start("gateway", "gateway", **QUIET)
        lab.wait_ready(60)
        eventually(lambda: lab.services["pinned"].hubs_usable == 1, "the hub is found")
        yield lab


def pods(lab: Lab, namespace: str) -> dict[str, Pod]:
    assert lab.redis is not None
    url = lab.redis.url

    async def listed() -> dict[str, Pod]:
        registry = Registry(url, namespace)
        try:
            return {pod.id: pod for pod in await registry.pods()}
        finally:
            await registry.close()

    return asyncio.run(listed())


@pytest.mark.skipif(len(CORES) < 2, reason="one core: nothing to choose")
@pytest.mark.parametrize(("name", "core"), [("hub", CORES[0]), ("pinned", CORES[-1])])
def test_cores_pin_the_loop_and_not_the_front(lab: Lab, name: str, core: int) -> None:
    service = lab.services[name]
    assert loop_of(service).cpu_affinity() == [core]
    assert service.process is not None
    assert psutil.Process(service.process.pid).cpu_affinity() == CORES


def lines(service: Service) -> list[str]:
    return service.log.read_text().splitlines()


@pytest.mark.parametrize(("name", "kind"), [("hub", "draft"), ("pinned", "target")])
def test_log_json_of_both_processes(lab: Lab, name: str, kind: str) -> None:
    told = [json.loads(line) for line in lines(lab.services[name])]
    assert {line["service"] for line in told} == {kind, f"{kind}-loop"}


@pytest.mark.parametrize("name", ["alone", "gateway"])
def test_log_level(lab: Lab, name: str) -> None:
    assert lines(lab.services[name]) == []


def test_namespaces_keep_stars_apart(lab: Lab) -> None:
    assert set(pods(lab, "one")) == {"hub", "pinned"}
    assert set(pods(lab, "two")) == {"alone"}
    assert lab.services["alone"].hubs_usable == 0
    assert lab.redis is not None
    with Redis.from_url(lab.redis.url, protocol=2) as redis:
        keys = list(redis.scan_iter())
        streams = {key.split(b":")[0] for key in keys if redis.type(key) == b"stream"}
    assert {key.split(b":")[0] for key in keys} == {b"{one}", b"{two}"}
    assert b"{one}" in streams


def test_a_gateway_finds_the_targets_of_its_own_star(lab: Lab) -> None:
    gateway = lab.services["gateway"]
    models = httpx.get(f"{gateway.url}/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["echo"]
    ready = httpx.get(f"{gateway.url}/health/ready").json()
    assert ready["targets_known"] == 1
    body = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
    response = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=30)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert answer["starsd"]["target"] == "alone"

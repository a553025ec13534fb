"""Health on both ports, metrics on their own, the list of models, the API's description."""

from __future__ import annotations

import asyncio
import random

import httpx

from services.gateway.gateway import running_gateway
from starsd.settings.gateway import GatewaySettings
from starsd.settings.loading import load
from tests.fake_target import FakeTarget
from tests.integration.gateway.star import live, star


async def test_ready_follows_the_targets() -> None:
    async with FakeTarget().serving() as a, star([a, "http://127.0.0.1:9"]) as s:
        for port in (s.gateway.port, s.gateway.metrics_port):
            url = f"http://127.0.0.1:{port}/health"
            ready = await s.client.get(f"{url}/ready")
            assert ready.status_code == 200
            assert ready.json()["status"] == "degraded"
            assert (ready.json()["targets_live"], ready.json()["targets_known"]) == (1, 2)
    async with star(["http://127.0.0.1:9"]) as s:
        assert (await s.client.get("/health/ready")).status_code == 503
        assert (await s.client.get("/health/live")).status_code == 200


async def test_not_ready_from_the_stop_signal_on() -> None:
    stop = asyncio.Event()
    async with FakeTarget().serving() as target:
        settings = load(GatewaySettings, port=0, metrics_port=0, targets=(target.url,))
        async with (
            running_gateway(settings, None, stop=stop, rng=random.Random(1)) as gateway,
            httpx.AsyncClient(trust_env=False) as client,
        ):
            url = f"http://127.0.0.1:{gateway.port}/health/ready"
            assert (await client.get(url)).status_code == 200
            stop.set()
            assert (await client.get(url)).status_code == 503


async def test_models() -> None:
    async with (
        FakeTarget().serving() as a,
        FakeTarget(name="t1", model="org/big").serving() as b,
        star([a, b]) as s,
    ):
        listed = (await s.client.get("/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["org/big", "tiny"]
        assert listed["data"][0]["max_model_len"] == 512
        one = await s.client.get("/v1/models/org/big")
        assert one.json() == listed["data"][0]
        missing = await s.client.get("/v1/models/huge")
        assert missing.json()["error"]["code"] == "model_not_found"


async def test_metrics_of_an_answer() -> None:
    async with FakeTarget().serving() as target, star([target]) as s:
        await s.chat()
        await s.chat(max_tokens=0)
        text = await s.metrics()
    for line in (
        'starsd:requests_total{outcome="ok"} 1.0',
        'starsd:requests_total{outcome="rejected"} 1.0',
        "starsd:time_to_first_token_seconds_count 1.0",
        "starsd:inter_token_latency_seconds_count 1.0",
        "starsd:generation_tokens_total 2.0",
        "starsd:prompt_tokens_total 3.0",
        "starsd:targets_live 1.0",
    ):
        assert line in text


async def test_the_docs_describe_the_request() -> None:
    async with star() as s:
        assert (await s.client.get("/docs")).status_code == 200
        description = (await s.client.get("/openapi.json")).json()
    operation = description["paths"]["/v1/chat/completions"]["post"]
    reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = description["components"]["schemas"][reference.rpartition("/")[2]]
    assert {"model", "messages", "seed", "stop", "stream_options"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
    assert set(operation["responses"]) == {"200", "default"}


async def test_live_counts_fall_when_a_target_does() -> None:
    async with FakeTarget().serving() as target, star([target], connect_timeout_s=0.1) as s:
        target.mute = True
        await live(s.gateway.pool, 0)
        assert "starsd:targets_live 0.0" in await s.metrics()

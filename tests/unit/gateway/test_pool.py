"""Choice of a target: liveness, power of two choices, unknown and unserved models."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from msgspec import structs

from services.gateway.pool import Pool, Served, Target
from starsd.errors import ConfigError, UnavailableError, UnknownModelError
from starsd.protocol.pods import PodState, TargetPod


def pod(
    name: str, *, running: int = 0, model: str = "tiny", state: PodState = PodState.READY
) -> TargetPod:
    return TargetPod(
        id=name,
        boot="b",
        state=state,
        url=f"http://{name}/",
        model=model,
        max_length=64,
        running=running,
        capacity=4,
    )


def pool_of(*pods: TargetPod) -> Pool:
    pool = Pool((), random.Random(3))
    pool.update(pods)
    for target, facts in zip(pool.targets, pods, strict=True):
        pool.heard(target, facts)
    return pool


def drawn(pool: Pool, times: int = 3000) -> Counter[str]:
    return Counter(pool.choose("tiny").name for _ in range(times))


def test_the_less_loaded_of_two_wins() -> None:
    assert drawn(pool_of(pod("a", running=3), pod("b", running=1))) == {"b": 3000}


def test_two_are_drawn_not_all() -> None:
    """With three, the middle one wins when drawn with the fullest: a third of the time."""
    counts = drawn(pool_of(pod("a", running=3), pod("b", running=2), pod("c", running=1)))
    assert counts["a"] == 0
    assert counts["b"] == pytest.approx(1000, abs=150)
    assert counts["c"] == pytest.approx(2000, abs=150)


def test_equals_share() -> None:
    counts = drawn(pool_of(pod("a"), pod("b")))
    assert counts["a"] == pytest.approx(1500, abs=150)


async def test_own_requests_count_before_they_are_reported() -> None:
    pool = pool_of(pod("a"), pod("b"))
    a, b = pool.targets
    async with a.carrying():
        assert drawn(pool, 50) == {"b": 50}
        async with b.carrying(), b.carrying():
            assert drawn(pool, 50) == {"a": 50}
    assert (a.in_flight, b.in_flight) == (0, 0)


def test_a_failed_target_gets_nothing_until_heard_again() -> None:
    pool = pool_of(pod("a"), pod("b"))
    a, _ = pool.targets
    pool.failed(a, "broken")
    assert drawn(pool, 50) == {"b": 50}
    pool.heard(a, pod("a"))
    assert drawn(pool, 50).keys() == {"a", "b"}


@pytest.mark.parametrize("state", [PodState.STARTING, PodState.DRAINING])
def test_only_ready_targets_are_live(state: PodState) -> None:
    pool = pool_of(pod("a", state=state))
    with pytest.raises(UnavailableError):
        pool.choose("tiny")


def test_unknown_model_lists_what_is_served() -> None:
    pool = pool_of(pod("a"), pod("b", model="big"))
    with pytest.raises(UnknownModelError, match=r"'huge'.*big, tiny") as caught:
        pool.choose("huge")
    assert caught.value.body().code == "model_not_found"
    assert pool.choose("big").name == "b"


def test_known_model_without_live_target_is_unavailable() -> None:
    pool = pool_of(pod("a"))
    pool.failed(pool.targets[0], "gone")
    with pytest.raises(UnavailableError) as caught:
        pool.choose("tiny")
    assert caught.value.retry_after_s
    with pytest.raises(UnknownModelError):
        pool.choose("huge")


def test_a_target_never_heard_of_may_serve_any_model() -> None:
    for pool in (Pool(()), Pool(["http://a"])):
        with pytest.raises(UnavailableError):
            pool.choose("tiny")
        with pytest.raises(UnknownModelError):
            pool.choose("")


def test_models_are_those_of_live_targets() -> None:
    pool = pool_of(pod("a"), pod("b", model="big"))
    assert pool.models == {"tiny": Served("tiny", 64), "big": Served("big", 64)}
    pool.failed(pool.targets[1], "gone")
    assert pool.models == {"tiny": Served("tiny", 64)}


def urls(pool: Pool) -> set[str]:
    return {target.url for target in pool.targets}


def test_an_unlisted_target_stays_while_it_answers() -> None:
    pool = pool_of(pod("a"))
    pool.update([])
    assert urls(pool) == {"http://a"}
    pool.failed(pool.targets[0], "gone")
    pool.update([])
    assert urls(pool) == set()


def test_static_targets_stay() -> None:
    pool = Pool(["http://s/"])
    pool.update([pod("a")])
    pool.update([])
    assert urls(pool) == {"http://s"}


def test_static_and_registered_are_one() -> None:
    pool = Pool(["http://a"])
    pool.update([pod("a")])
    assert urls(pool) == {"http://a"}
    assert pool.targets[0].name == "a"


def test_bad_urls() -> None:
    with pytest.raises(ConfigError, match="ftp://x"):
        Pool(["ftp://x"])
    pool = Pool(())
    for url in ("x", "http://", "http://a:99999", "http://a:0", "http://[::1", "http://xn--"):
        bad = TargetPod(id="a", boot="b", state=PodState.READY, url=url, model="m", max_length=1)
        pool.update([bad])
        assert urls(pool) == set()
        with pytest.raises(ConfigError):
            Pool([url])


async def test_lose_ends_what_the_target_carries() -> None:
    target = Target("http://a", static=True)

    async def lost() -> None:
        async with target.carrying():
            target.lose()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await lost()
    assert target.in_flight == 0
    target.lose()
    async with target.carrying():
        await asyncio.sleep(0)


def aliased(name: str, model: str, *aliases: str) -> TargetPod:
    return structs.replace(pod(name, model=model), aliases=aliases)


def test_aliases_are_names_of_a_model() -> None:
    pool = pool_of(aliased("a", "tiny", "gpt", "best"), pod("b", model="big"))
    assert pool.choose("gpt").name == "a"
    assert pool.models == {
        "tiny": Served("tiny", 64),
        "gpt": Served("tiny", 64),
        "best": Served("tiny", 64),
        "big": Served("big", 64),
    }
    with pytest.raises(UnknownModelError, match="best, big, gpt, tiny"):
        pool.choose("none")


def test_a_models_own_name_is_no_others_alias() -> None:
    pool = pool_of(aliased("a", "tiny", "big"), pod("b", model="big"))
    assert {pool.choose("big").name for _ in range(100)} == {"b"}
    assert pool.models["big"] == Served("big", 64)
    pool.failed(pool.targets[1], "gone")
    with pytest.raises(UnavailableError):
        pool.choose("big")

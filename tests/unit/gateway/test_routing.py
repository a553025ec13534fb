"""Sessions and texts find the target that knows them, while it lives and is not clearly busier."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from services.gateway import routing
from services.gateway.pool import Pool
from services.gateway.routing import Reason, Router
from starsd.errors import UnavailableError, UnknownModelError
from starsd.protocol.events import Generate
from starsd.protocol.sampling import SamplingParams
from tests.unit.gateway.test_pool import pod

LONG = "star " * 100
OTHERS = 40


def ask(*texts: str, **fields: Any) -> Generate:
    """A chat in which user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    given = {"id": "r", "model": "tiny", "messages": messages, **fields}
    return Generate(sampling=SamplingParams(seed=1), **given)


def router_of(*names: str, margin: float = 0.5) -> Router:
    pool = Pool((), random.Random(3))
    pool.update([pod(name) for name in names])
    for target, name in zip(pool.targets, names, strict=True):
        pool.heard(target, pod(name))
    return Router(pool, margin)


def heard(router: Router, name: str, **facts: Any) -> None:
    (target,) = (target for target in router._pool.targets if target.name == name)
    router._pool.heard(target, pod(name, **facts))


def answered(router: Router, request: Generate, name: str) -> None:
    (target,) = (target for target in router._pool.targets if target.name == name)
    router.answered(request, target)


def chosen(router: Router, request: Generate, times: int = OTHERS) -> Counter[tuple[str, Reason]]:
    choices = (router.choose(request) for _ in range(times))
    return Counter((target.name, reason) for target, reason in choices)


def test_an_unknown_text_goes_by_load() -> None:
    router = router_of("a", "b")
    heard(router, "a", running=1)
    assert chosen(router, ask(LONG)) == {("b", Reason.LOAD): OTHERS}


def test_the_next_turn_goes_where_the_last_was_answered() -> None:
    router = router_of("a", "b", "c")
    answered(router, ask(LONG), "b")
    for request in (ask(LONG), ask(LONG, "hi"), ask(LONG, LONG[:300], "and?")):
        assert chosen(router, request) == {("b", Reason.PREFIX): OTHERS}


def test_the_longest_beginning_decides() -> None:
    router = router_of("a", "b")
    answered(router, ask(LONG, LONG, "one"), "a")
    answered(router, ask(LONG, LONG, "two"), "b")
    assert chosen(router, ask(LONG, LONG, "one", "1", "more")) == {("a", Reason.PREFIX): OTHERS}
    assert chosen(router, ask(LONG, LONG, "two", "2", "more")) == {("b", Reason.PREFIX): OTHERS}
    assert chosen(router, ask(LONG, LONG, "new")) == {("b", Reason.PREFIX): OTHERS}


@pytest.mark.parametrize(
    "request_",
    [
        ask("hi"),
        ask(LONG, salt="other"),
        ask(LONG + "!"),
        ask(LONG, LONG * 3),
        ask("x", LONG),
        ask(prompt=LONG),
    ],
    ids=["short", "tenant", "other message", "mostly new", "other beginning", "no chat"],
)
def test_what_is_too_little_or_another_goes_by_load(request_: Generate) -> None:
    router = router_of("a", "b")
    for known in (ask(LONG), ask("hi")):
        answered(router, known, "a")
    heard(router, "a", running=1)
    assert chosen(router, request_) == {("b", Reason.LOAD): OTHERS}


@pytest.mark.parametrize("text", [LONG * 9, list(range(2000))], ids=["text", "ids"])
def test_prompts_have_beginnings_too(text: Any) -> None:
    router = router_of("a", "b")
    answered(router, ask(prompt=text), "b")
    assert chosen(router, ask(prompt=text + text[:400])) == {("b", Reason.PREFIX): OTHERS}


def test_prefix_margin() -> None:
    """Requests per slot, of four."""
    for margin, most in ((0.5, 2), (0.0, 0), (1.0, 4)):
        router = router_of("a", "b", margin=margin)
        answered(router, ask(LONG), "a")
        for running in range(6):
            heard(router, "a", running=running)
            want = ("a", Reason.PREFIX) if running <= most else ("b", Reason.LOAD)
            assert chosen(router, ask(LONG)) == {want: OTHERS}


def test_a_new_holder_takes_the_place_of_the_old() -> None:
    router = router_of("a", "b")
    answered(router, ask(LONG), "a")
    answered(router, ask(LONG, "more", "text"), "b")
    assert chosen(router, ask(LONG)) == {("b", Reason.PREFIX): OTHERS}


def test_a_session_begins_at_the_same_target_for_every_gateway() -> None:
    homes = []
    for index in range(60):
        request = ask("hi", session=f"s{index}")
        choices = [chosen(router_of(*order), request) for order in ("abc", "cab")]
        assert choices[0] == choices[1]
        ((home, reason),) = choices[0]
        assert reason is Reason.SESSION
        homes.append(home)
    assert all(count > 8 for count in Counter(homes).values())
    assert len(set(homes)) == 3


def test_only_sessions_of_the_dead_move() -> None:
    for index in range(30):
        request = ask("hi", session=f"s{index}")
        router = router_of("a", "b", "c")
        (before,) = chosen(router, request)
        router._pool.failed(router._pool.targets[0], "gone")
        (after,) = chosen(router, request)
        assert (after == before) == (before[0] != "a")


def test_a_session_stays_at_home_whatever_its_load_and_moves_when_it_dies() -> None:
    router = router_of("a", "b")
    request = ask("hi", session="s")
    answered(router, request, "a")
    heard(router, "a", running=50)
    assert chosen(router, ask("other", session="s")) == {("a", Reason.SESSION): OTHERS}
    router._pool.failed(router._pool.targets[0], "gone")
    assert chosen(router, request) == {("b", Reason.SESSION): OTHERS}
    answered(router, request, "b")
    heard(router, "a")
    assert chosen(router, request) == {("b", Reason.SESSION): OTHERS}


def test_a_session_does_not_begin_where_it_is_clearly_busier() -> None:
    router = router_of("a", "b")
    ((home, _),) = chosen(router, ask("hi", session="s"))
    heard(router, home, running=3)
    other = {"a": "b", "b": "a"}[home]
    assert chosen(router, ask("hi", session="s")) == {(other, Reason.LOAD): OTHERS}


def test_who_refused_is_not_asked_again() -> None:
    router = router_of("a", "b")
    a = router._pool.targets[0]
    for request in (ask(LONG), ask("hi", session="s")):
        answered(router, request, "a")
        assert {router.choose(request, but=(a,)).target.name for _ in range(OTHERS)} == {"b"}


def test_errors_are_the_pools() -> None:
    router = router_of("a")
    with pytest.raises(UnknownModelError):
        router.choose(ask("hi", model="huge"))
    answered(router, ask(LONG, session="s"), "a")
    router._pool.failed(router._pool.targets[0], "gone")
    for session in ("", "s"):
        with pytest.raises(UnavailableError):
            router.choose(ask(LONG, session=session))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each request, and of all; what is used stays."""
    router = router_of("a", "b")
    answered(router, ask(*["x"] * 1000), "a")
    answered(router, ask("x" * 4_000_000), "a")
    assert len(router._urls) == 2 * routing.MAX_PIECES
    monkeypatch.setattr(routing, "MAX_REMEMBERED", 50)
    for index in range(300):
        answered(router, ask(LONG), "a")
        answered(router, ask(f"{LONG} {index}", session=f"s{index}"), "b")
        assert len(router._urls) <= 50
    assert chosen(router, ask(LONG)) == {("a", Reason.PREFIX): OTHERS}
    assert chosen(router, ask("hi", session="s299")) == {("b", Reason.SESSION): OTHERS}

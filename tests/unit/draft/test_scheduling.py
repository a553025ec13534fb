"""Who computes next: fairness, deadlines, prefixes beside short rows, the paper's baseline.

Time is simulated: a step takes a millisecond and a little for each of its tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest

from starsd.drafters.interface import DraftSequence
from starsd.protocol.messages import Proposal, Status
from tests.unit.draft.recording import CHUNK, Desktop, make_hello, make_job

BASE_S, TOKEN_S = 1e-3, 1e-5
QUIET, FLOOD = "quiet", "flood"


class Timed(Desktop):
    """Steps take time. ``left`` are targets' sequences that ask again as soon as answered."""

    def __init__(self, *, token_s: float = TOKEN_S, **settings: Any) -> None:
        super().__init__(slots=40, kv_blocks=400, length=256, prefill_chunk=CHUNK, **settings)
        self.steps: list[float] = []
        self.rounds = count()
        step = self.drafter.step

        def timed(sequences: list[DraftSequence]) -> int:
            tokens = step(sequences)
            self.steps.append(BASE_S + token_s * tokens)
            self.clock.now += self.steps[-1]
            return tokens

        self.drafter.step = timed  # type: ignore[method-assign]

    def greet(self, *targets: str) -> None:
        for target in targets:
            hello = make_hello(f"{target}:b", target=target)
            self.send(hello)
        self.run()

    def job(self, target: str, seq: str, tokens: Sequence[int] = (1,), **changes: Any) -> None:
        session = f"{target}:b"
        given: dict[str, Any] = {"session": session, "reply_key": f"out:{session}"}
        given |= {"seq": f"{target} {seq}", "ttl_ms": 60_000, "round": next(self.rounds), **changes}
        self.send(make_job(list(tokens), **given))

    def answered(self) -> list[Proposal]:
        replies = [reply for _, reply in self.bus.replies if isinstance(reply, Proposal)]
        self.bus.replies.clear()
        return replies


@pytest.fixture
def make_hub() -> Iterator[Any]:
    made: list[Timed] = []

    def make(*targets: str, **settings: Any) -> Timed:
        hub = Timed(**settings)
        made.append(hub)
        hub.greet(*targets)
        return hub

    yield make
    for hub in made:
        hub.close()


def serve_closed(
    hub: Timed, sizes: dict[str, int], rounds: int, **changes: Any
) -> dict[str, list[Proposal]]:
    """Each target has so many sequences, each of which asks again when it is answered; until the
    first target has had so many answers."""
    heard: dict[str, list[Proposal]] = {target: [] for target in sizes}
    for target, size in sizes.items():
        for number in range(size):
            hub.job(target, str(number), **changes)
    while len(next(iter(heard.values()))) < rounds:
        assert hub.hub.step(), "it computes while a job waits"
        for reply in hub.answered():
            target, _, seq = reply.seq.partition(" ")
            heard[target].append(reply)
            hub.job(target, seq, **changes)
    hub.run()
    return heard


def p95_queue_s(heard: Sequence[Proposal]) -> float:
    waits = sorted(one.queue_us / 1e6 for one in heard)
    return waits[int(0.95 * (len(waits) - 1))]


# -- fairness ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [16, 512])
def test_a_flooding_neighbour_costs_a_quiet_target_two_steps_at_most(
    make_hub: Any, limit: int
) -> None:
    """16 sequences against 1, also where a step has room for a small part of them."""
    waits = []
    for sizes in ({QUIET: 1}, {QUIET: 1, FLOOD: 16}):
        hub = make_hub(*sizes, step_tokens=limit)
        waits.append(p95_queue_s(serve_closed(hub, sizes, 60)[QUIET]))
    assert waits[1] <= waits[0] + 2 * max(hub.steps) + 1e-6


def test_busy_targets_get_equal_shares(make_hub: Any) -> None:
    sizes = {QUIET: 20, FLOOD: 19}
    heard = serve_closed(make_hub(*sizes, step_tokens=16), sizes, 200)
    assert len(heard[FLOOD]) == pytest.approx(200, abs=20)


def test_weights(make_hub: Any) -> None:
    sizes = {"a": 20, "b": 20}
    hub = make_hub(*sizes, step_tokens=16, weights={"a": 3.0})
    heard = serve_closed(hub, sizes, 300)
    assert len(heard["b"]) == pytest.approx(100, abs=20)


def test_what_targets_are_owed_is_forgotten_with_their_work(make_hub: Any) -> None:
    hub = make_hub("a", "b")
    serve_closed(hub, {"a": 2, "b": 2}, 10)
    hub.run()
    hub.hub.step()
    assert not hub.hub._scheduler._short._granted


# -- inside a target -----------------------------------------------------------------------------


def first_batch(hub: Timed) -> list[str]:
    """Sequence names of the next step."""
    hub.hub._admit()
    return [one.id for one in hub.hub._batch()]


def test_the_earliest_deadline_goes_first(make_hub: Any) -> None:
    hub = make_hub("t", step_tokens=16)
    for seq, ttl_ms in (("late", 900), ("soon", 30), ("middle", 400)):
        hub.job("t", seq, [1] * 8, ttl_ms=ttl_ms)
    assert first_batch(hub) == ["t soon", "t middle", "t late"]


def test_a_job_that_waited_too_long_costs_no_drafting(make_hub: Any) -> None:
    hub = make_hub("t", step_tokens=16, scheduler="fifo")
    hub.job("t", "first", depth=8)
    hub.job("t", "second", ttl_ms=2)
    while hub.hub.step():
        pass
    by_seq = {reply.seq: reply for reply in hub.answered()}
    assert by_seq["t second"].status is Status.EXPIRED
    assert by_seq["t second"].have.length == 1
    assert by_seq["t second"].queue_us > 2000
    assert by_seq["t second"].service_us == 0
    assert len(by_seq["t first"].tokens) == 4 * 8


def test_a_draft_that_has_begun_is_ended_though_it_is_late(make_hub: Any) -> None:
    hub = make_hub("t")
    hub.job("t", "s", depth=8, ttl_ms=3)
    while hub.hub.step():
        pass
    (reply,) = hub.answered()
    assert (reply.status, len(reply.tokens)) == (Status.OK, 4 * 8)


# -- prefixes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [16, 64])
def test_long_prefixes_keep_short_jobs_for_no_step_and_go_on_beside_them(
    make_hub: Any, limit: int
) -> None:
    hub = make_hub(QUIET, FLOOD, step_tokens=limit)
    for number in range(4):
        hub.job(FLOOD, str(number), [1] * 200, depth=0)
    hub.hub.step()
    hub.answered()
    heard = serve_closed(hub, {QUIET: 1}, 30)
    assert max(one.queue_us for one in heard[QUIET]) == 0
    assert not hub.hub._sessions.waiting()


def test_a_prefix_is_chosen_in_every_step_whatever_else_there_is(make_hub: Any) -> None:
    hub = make_hub("a", "b", step_tokens=16)
    hub.job("b", "long", [1] * 200, depth=0)
    for number in range(30):
        hub.job("a", str(number), depth=8)
    for _ in range(5):
        assert "b long" in first_batch(hub)
        hub.hub.step()


# -- the baseline --------------------------------------------------------------------------------


@pytest.mark.parametrize(("scheduler", "sizes"), [("fair", {3}), ("fifo", {1})])
def test_scheduler(make_hub: Any, scheduler: str, sizes: set[int]) -> None:
    hub = make_hub("a", "b", scheduler=scheduler)
    for target, seq in (("a", "1"), ("b", "2"), ("a", "3")):
        hub.job(target, seq, depth=3)
    while hub.hub.step():
        pass
    assert {len(batch) for batch in hub.drafter.batches} == sizes


def test_fifo_serves_whole_jobs_in_order_of_arrival(make_hub: Any) -> None:
    hub = make_hub("a", "b", scheduler="fifo")
    for seq, tokens in (("1", [1] * 30), ("2", [1]), ("3", [1])):
        hub.job("ab"[int(seq) % 2], seq, tokens, depth=2)
    while hub.hub.step():
        pass
    served = [batch[0] for batch in hub.drafter.batches]
    assert served == sorted(served)
    first, second, third = hub.answered()
    assert [first.seq, second.seq, third.seq] == ["b 1", "a 2", "b 3"]
    assert first.queue_us == 0 < second.queue_us < third.queue_us
    assert second.service_us == third.service_us < first.service_us


def test_queue_and_service_add_up_to_the_time_at_the_hub(make_hub: Any) -> None:
    hub = make_hub("t", scheduler="fifo")
    started = hub.clock.now
    hub.job("t", "1")
    hub.job("t", "2")
    while hub.hub.step():
        pass
    last = hub.answered()[-1]
    assert (last.queue_us + last.service_us) / 1e6 == pytest.approx(hub.clock.now - started)


# -- depth ---------------------------------------------------------------------------------------


def depths_told(hub: Timed, sequences: int) -> list[int]:
    heard = serve_closed(hub, {"t": sequences}, 40 * sequences, ttl_ms=40)
    return [one.max_depth for one in heard["t"]]


def test_an_overloaded_hub_asks_for_less_depth_and_for_all_again_when_it_is_over(
    make_hub: Any,
) -> None:
    hub = make_hub("t", token_s=1e-3, max_depth=4)
    assert depths_told(hub, 1)[-1] == 4
    assert depths_told(hub, 20)[-1] < 4
    assert depths_told(hub, 1)[-1] == 4


def test_the_baseline_drafts_as_deep_as_ever(make_hub: Any) -> None:
    hub = make_hub("t", token_s=1e-3, max_depth=4, scheduler="fifo")
    assert set(depths_told(hub, 20)) == {4}

"""What a hub does while nobody waits: it answers the next job at once if it foresaw it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.draft.pace import TRIES, Pace
from starsd.drafters.ahead import STEPS, TOLD, Foreseen
from starsd.drafters.interface import DraftSequence
from starsd.errors import EngineError
from starsd.protocol.messages import Foresight, Proposal, Status
from starsd.protocol.pods import Needs
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokens import unpack_tokens
from tests.unit.draft.recording import VOCAB, Desktop, make_close, make_hello, make_job

LENGTH = 128


@pytest.fixture
def make_desk() -> Iterator[Any]:
    made: list[Desktop] = []

    def make(**settings: Any) -> Desktop:
        desk = Desktop(**{"length": LENGTH, **settings})
        made.append(desk)
        desk.send(make_hello())
        desk.run()
        return desk

    yield make
    for desk in made:
        desk.close()


def idle(desk: Desktop) -> int:
    """Steps of run-ahead until there is nothing more to foresee."""
    steps = 0
    while desk.hub.run_ahead():
        steps += 1
    return steps


def counted(desk: Desktop) -> dict[tuple[str, str], float]:
    """Run-ahead's counters that are not 0, by name and label."""
    text = desk.hub._stats.exposition().decode()
    return {
        (sample.name.removeprefix("starsd:hub_run_ahead_"), "".join(sample.labels.values())): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("starsd:hub_run_ahead") and sample.value
        if sample.labels
    }


def test_a_job_that_was_foreseen_takes_no_step(make_desk: Any) -> None:
    """All of its proposal came true, and what was likely after that."""
    desk = make_desk()
    desk.ask(make_job([1, 2, 3], depth=2))
    assert idle(desk) > 0
    steps = len(desk.drafter.batches)
    (reply,) = desk.ask(make_job([3, 4, 5], [1, 2, 3], round=1, depth=2))
    assert len(desk.drafter.batches) == steps
    assert (reply.status, unpack_tokens(reply.tokens)) == (Status.OK, [6, 7])
    assert (reply.have.length, reply.service_us) == (6, 0)
    assert counted(desk)["jobs_total", "hit"] == 1


def test_what_was_foreseen_in_part_is_drafted_on(make_desk: Any) -> None:
    desk = make_desk()
    desk.ask(make_job([1, 2, 3], depth=2))
    for _ in range(3):
        desk.hub.run_ahead()
    steps = len(desk.drafter.batches)
    (reply,) = desk.ask(make_job([3], [1, 2, 3], round=1, depth=4))
    assert unpack_tokens(reply.tokens) == [4, 5, 6, 7]
    assert len(desk.drafter.batches) - steps == 2
    assert counted(desk)["jobs_total", "part"] == 1


@pytest.mark.parametrize(
    ("run_ahead", "foresight", "runs"),
    [("auto", False, False), ("auto", True, True), ("on", False, True), ("off", True, False)],
)
def test_a_head_runs_ahead_for_who_reads_it(
    make_desk: Any, run_ahead: str, foresight: bool, runs: bool
) -> None:
    desk = make_desk(needs=Needs(hidden_size=2, layers=(1,), revision="r"), run_ahead=run_ahead)
    desk.send(make_hello(foresight=foresight))
    desk.ask(make_job([1, 2, 3], depth=2, features=bytes(8)))
    assert (idle(desk) > 0) == runs


def test_a_miss_is_drafted_as_ever(make_desk: Any) -> None:
    desk = make_desk()
    desk.ask(make_job([1, 2, 3], depth=2))
    idle(desk)
    (reply,) = desk.ask(make_job([3, 77], [1, 2, 3], round=1, depth=2))
    assert unpack_tokens(reply.tokens) == [5, 6]
    assert counted(desk)["jobs_total", "miss"] == 1


def test_other_sampling_was_not_foreseen(make_desk: Any) -> None:
    desk = make_desk()
    desk.ask(make_job([1, 2, 3], depth=2))
    idle(desk)
    other = SamplingParams(seed=2, temperature=0.0)
    desk.ask(make_job([3, 4, 5], [1, 2, 3], round=1, depth=2, sampling=other))
    assert counted(desk)["jobs_total", "miss"] == 1


def test_tokens_are_used_or_wasted(make_desk: Any) -> None:
    desk = make_desk()
    desk.ask(make_job([1, 2, 3], depth=2))
    spent = idle(desk)
    desk.ask(make_job([3, 4, 5], [1, 2, 3], round=1, depth=2))
    assert counted(desk)["tokens_total", "used"] == 2
    assert counted(desk)["tokens_total", "wasted"] == spent - 2
    spent += idle(desk)
    desk.ask(make_close())
    found = counted(desk)
    assert found["tokens_total", "used"] + found["tokens_total", "wasted"] == spent


def test_whoever_waits_goes_first(make_desk: Any) -> None:
    """After any step of run-ahead, jobs that came meanwhile are taken and drafted for."""
    desk = make_desk()
    desk.ask(make_job([1, 2, 3], seq="a", depth=2))
    assert desk.hub.run_ahead()
    desk.send(make_job([1], seq="b", depth=3))
    ahead = len(desk.drafter.foreseen)
    assert [desk.hub.step() for _ in range(4)] == [True, True, True, False]
    assert len(desk.drafter.foreseen) == ahead
    assert desk.hub.run_ahead()


def test_a_sequence_with_a_job_is_never_run_ahead_of(make_desk: Any) -> None:
    desk = make_desk()
    desk.send(make_job([1, 2, 3], depth=3))
    desk.hub.step()
    assert not desk.hub.run_ahead()


@pytest.mark.parametrize(("run_ahead", "some"), [("auto", True), ("on", True), ("off", False)])
def test_run_ahead(make_desk: Any, run_ahead: str, some: bool) -> None:
    desk = make_desk(run_ahead=run_ahead)
    desk.ask(make_job([1, 2, 3], depth=2))
    assert bool(idle(desk)) is some


@pytest.mark.parametrize(
    ("run_ahead", "expected", "answer"), [("auto", 0.5, [4, 5]), ("auto", 3, [9]), ("on", 0.5, [9])]
)
def test_guesses_that_know_less_are_sent_where_they_are_worth_it(
    make_desk: Any, monkeypatch: pytest.MonkeyPatch, run_ahead: str, expected: float, answer: Any
) -> None:
    """A round takes 30 ms of which drafting, which finds two tokens, is 6."""
    desk = make_desk(run_ahead=run_ahead)
    desk.ask(make_job([1, 2, 3], depth=2))
    desk.hub._desk._pace = pace = Pace(max_depth=8)
    pace.asked(0.030)
    pace.answered(0.0, 0.006, 4, 2.0)
    ahead = Foreseen([9], [], expected, exact=False)
    monkeypatch.setattr(DraftSequence, "foresee", lambda *_: ahead)
    desk.hub.run_ahead()
    (reply,) = desk.ask(make_job([3], [1, 2, 3], round=1, depth=2))
    assert unpack_tokens(reply.tokens) == answer
    assert counted(desk)["jobs_total", "spared" if answer == [4, 5] else "hit"] == 1


@pytest.mark.parametrize(("run_ahead", "some"), [("auto", False), ("on", True)])
def test_what_was_never_of_use_is_left_alone(make_desk: Any, run_ahead: str, some: bool) -> None:
    desk = make_desk(run_ahead=run_ahead)
    desk.ask(make_job([1], depth=2))
    for number in range(1, TRIES + 1):
        assert desk.hub.foresee()
        desk.ask(make_job([77], [1] + [77] * (number - 1), round=number, depth=2))
    assert counted(desk)["jobs_total", "miss"] == TRIES
    assert desk.hub.foresee() is some


def test_few_rows_a_step_so_that_whoever_comes_waits_little(make_desk: Any) -> None:
    desk = make_desk(slots=5)
    for seq in "abcde":
        desk.ask(make_job([1, 2, 3], seq=seq, depth=2))
    idle(desk)
    assert max(len(batch) for batch in desk.drafter.foreseen) == 2
    assert {slot for batch in desk.drafter.foreseen for slot in batch} == {0, 1, 2, 3, 4}


def test_it_takes_no_memory_from_anyone(make_desk: Any) -> None:
    """Not even for a row: 50 positions and 32 more take two blocks."""
    desk = make_desk(kv_blocks=1)
    desk.ask(make_job([1] * 50, depth=2))
    assert idle(desk) == 0
    desk = make_desk(kv_blocks=2)
    desk.ask(make_job([1] * 50, depth=2))
    assert idle(desk) > 0
    desk.ask(make_close())
    assert desk.hub._sessions.budget.used == 0


def test_nor_is_there_any_beyond_the_end_of_a_slot(make_desk: Any) -> None:
    desk = make_desk()
    desk.ask(make_job([1] * (LENGTH - 31), depth=2))
    assert idle(desk) == 0


def test_a_long_prefix_is_read_before_anything_is_foreseen(make_desk: Any) -> None:
    desk = make_desk()
    desk.send(make_job([1] * 40, depth=0))
    desk.hub.step()
    assert not desk.hub.run_ahead()


def test_a_failure_forgets_its_sequences_and_the_hub_goes_on(
    make_desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make_desk()
    desk.ask(make_job([1, 2, 3], depth=2))

    def fail(sequences: object) -> int:
        raise EngineError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(desk.drafter, "run_ahead", fail)
        assert desk.hub.run_ahead()
    assert desk.drafter.released == [0]
    (reply,) = desk.ask(make_job([4], [1, 2, 3], round=1))
    assert reply.status is Status.NEED_PREFIX


# -- what targets are told -----------------------------------------------------------------------


def told(desk: Desktop) -> list[Foresight]:
    """What leaves while the hub is idle."""
    while desk.hub.run_ahead():
        desk.hub.step()
    found = [message for _, message in desk.bus.replies if isinstance(message, Foresight)]
    desk.bus.replies.clear()
    return found


@pytest.mark.parametrize("reads", [True, False])
def test_a_session_that_reads_it_is_told_what_is_foreseen(make_desk: Any, reads: bool) -> None:
    desk = make_desk()
    desk.ask(make_hello(foresight=reads), make_job([1, 2, 3], round=4, depth=2))
    found = told(desk)
    assert bool(found) is reads
    if reads:
        newest = found[-1]
        assert (newest.session, newest.seq, newest.epoch, newest.round) == ("t:b", "s", 0, 4)
        assert (newest.hub, newest.hub_boot) == ("hub", "h1")
        tokens = unpack_tokens(newest.tokens)
        assert tokens == [*range(3, 3 + len(tokens))]
        assert newest.parents == [*range(-1, len(tokens) - 1)]


def test_now_and_then_and_at_the_end(make_desk: Any) -> None:
    desk = make_desk()
    desk.ask(make_hello(foresight=True), make_job([1, 2, 3], depth=2))
    assert [len(one.parents) for one in told(desk)] == [*sorted(TOLD), STEPS]


def test_a_job_that_asks_for_nothing_is_run_ahead_of_at_once(make_desk: Any) -> None:
    """Its target verifies what it was told."""
    desk = make_desk()
    desk.ask(make_hello(foresight=True), make_job([1, 2, 3], depth=2))
    told(desk)
    (reply,) = desk.ask(make_job([3, 4, 5], [1, 2, 3], round=1, depth=0, max_nodes=4))
    assert (reply.status, reply.tokens, reply.have.length) == (Status.OK, b"", 6)
    assert counted(desk)["jobs_total", "taken"] == 1
    assert counted(desk)["tokens_total", "used"] == 4
    assert {one.round for one in told(desk)} == {1}


def test_what_is_told_is_of_the_prefix_that_is_held(make_desk: Any) -> None:
    """A job whose prefix is not known here changes nothing."""
    desk = make_desk()
    desk.ask(make_hello(foresight=True), make_job([1, 2, 3], depth=2))
    (reply,) = desk.ask(make_job([9], [7, 7, 7, 7], round=1, depth=2))
    assert reply.status is Status.NEED_PREFIX
    assert {one.round for one in told(desk)} == {0}


# -- what it costs and brings, in simulated time -------------------------------------------------

STEP_S, VERIFY_S = 0.0015, 0.024


def rounds_per_s(desk: Desktop, sequences: int, said: list[int], rounds: int = 600) -> float:
    """Targets' sequences that verify for a while and then ask again. ``said`` are the tokens of
    each round but those that were proposed."""
    drafter, clock = desk.drafter, desk.clock
    for name in ("step", "run_ahead"):
        setattr(drafter, name, timed(getattr(drafter, name), clock))
    texts = {str(number): [number] for number in range(sequences)}
    due = [(0.0003 * number, str(number), [number]) for number in range(sequences)]
    answered, order = 0, 0
    while answered < rounds:
        for job in [job for job in due if job[0] <= clock.now]:
            due.remove(job)
            _, seq, new = job
            base, order = texts[seq][: len(texts[seq]) - len(new)], order + 1
            desk.send(make_job(new, base, seq=seq, round=order, depth=4, ttl_ms=60_000))
        worked = desk.hub.step() or bool(desk.bus.replies) or desk.hub.run_ahead()
        for _, reply in desk.bus.replies:
            assert isinstance(reply, Proposal)
            assert reply.status is Status.OK
            new = [
                len(texts[reply.seq]) + more if one < 0 else one for more, one in enumerate(said)
            ]
            texts[reply.seq] = texts[reply.seq] + new
            if len(texts[reply.seq]) > 0.9 * VOCAB:
                texts[reply.seq], new = new, new
            due.append((clock.now + VERIFY_S, reply.seq, new))
            answered += 1
        desk.bus.replies.clear()
        if not worked:
            clock.now = max(clock.now, min(job[0] for job in due))
    return answered / clock.now


def timed(function: Any, clock: Any) -> Any:
    def taking_time(sequences: list[DraftSequence]) -> int:
        clock.now += STEP_S
        return int(function(sequences))

    return taking_time


@pytest.mark.parametrize("scheduler", ["fair", "fifo"])
def test_at_saturation_it_costs_less_than_a_fiftieth(make_desk: Any, scheduler: str) -> None:
    """Nothing that is foreseen comes true."""
    rates = []
    for run_ahead in ("off", "on"):
        settings = {"run_ahead": run_ahead, "scheduler": scheduler, "max_sequences": 24}
        desk = make_desk(slots=24, kv_blocks=2000, length=2000, **settings)
        rates.append(rounds_per_s(desk, 24, [900, 901]))
    assert rates[1] > 0.98 * rates[0]


def test_alone_it_takes_the_hub_out_of_rounds_that_were_foreseen(make_desk: Any) -> None:
    """All comes true: a round takes a verify step."""
    rates = []
    for run_ahead in ("off", "auto"):
        desk = make_desk(kv_blocks=2000, length=2000, run_ahead=run_ahead)
        rates.append(rounds_per_s(desk, 1, [-1] * 3))
    assert rates[0] == pytest.approx(1 / (VERIFY_S + 4 * STEP_S), rel=0.01)
    assert rates[1] > 0.97 / VERIFY_S

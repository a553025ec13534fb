"""Whatever happens to a request, it ends once, and its place is free again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from services.target.assembly import Assembly
from services.target.requests import Answer, Requests
from starsd.errors import (
    EngineError,
    OverloadedError,
    RequestError,
    TransportError,
    UnavailableError,
)
from starsd.metrics import Outcome, RequestMetrics
from starsd.protocol.events import Begin, Delta, Done, Error, Event, Usage
from starsd.protocol.frames import (
    Admitted,
    Cancel,
    Emitted,
    Failed,
    Finished,
    FinishReason,
    Origin,
    RequestStats,
    Submit,
    ToLoop,
)
from starsd.protocol.sampling import SamplingParams
from tests.unit.process.fakeloop import eventually
from tests.unit.target.bytetext import EOS, ByteText, ByteTokenizer

BEGIN = Begin(prompt_ids=[1, 2, 3], seed=1, fingerprint="fp")
STATS = RequestStats(rounds=2, proposed=4, accepted=3, cached_tokens=2)


class Desk:
    """Requests, what the loop would have got, and the metrics."""

    def __init__(self, *, max_events: int = 8, timeout_s: float = 60.0) -> None:
        self.sent: list[ToLoop] = []
        self.registry = CollectorRegistry()
        self.requests = Requests(
            self.send,
            RequestMetrics(self.registry),
            max_waiting=1,
            timeout_s=timeout_s,
            max_events=max_events,
        )
        self.requests.capacity = 2
        self.dead = False

    def send(self, message: ToLoop) -> None:
        if self.dead:
            raise TransportError("the step loop is gone")
        self.sent.append(message)

    def open(self, stops: Sequence[str] = (), choices: int = 1) -> Answer:
        answer = self.requests.admit(choices)
        submits = [submit(choice.id) for choice in answer.choices]
        assemblies = [Assembly(ByteTokenizer(), stops, (EOS,), n) for n in range(choices)]
        self.requests.submit(answer, submits, assemblies, BEGIN)
        if self.requests.running < self.requests.capacity:
            self.let_in(answer)
        return answer

    def let_in(self, answer: Answer, choice: int = 0) -> None:
        self.requests.handle(Admitted(id=answer.choices[choice].id))

    def emit(self, answer: Answer, tokens: bytes, choice: int = 0) -> None:
        origins = [Origin.PLAIN] * len(tokens)
        key = answer.choices[choice].id
        self.requests.handle(Emitted(id=key, tokens=list(tokens), origins=origins))

    def finish(
        self, answer: Answer, reason: FinishReason = FinishReason.LENGTH, choice: int = 0
    ) -> None:
        key = answer.choices[choice].id
        self.requests.handle(Finished(id=key, reason=reason, stats=STATS))

    def cancels(self) -> list[str]:
        return [message.id for message in self.sent if isinstance(message, Cancel)]

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"starsd:{name}", labels)

    def outcome(self, outcome: Outcome) -> float | None:
        return self.sample("requests_total", outcome=outcome)


def submit(key: str) -> Submit:
    sampling = SamplingParams(seed=1)
    return Submit(id=key, prompt=[1, 2, 3], sampling=sampling, max_tokens=9, eos=(EOS,))


async def read(answer: Answer) -> list[Event]:
    return [event async for batch in answer.read() for event in batch]


async def test_an_answer_from_begin_to_done() -> None:
    desk = Desk()
    answer = desk.open()
    desk.emit(answer, b"ab")
    desk.emit(answer, b"c")
    desk.finish(answer)
    begin, first, second, done = await read(answer)
    assert begin == BEGIN
    plain = [Origin.PLAIN] * 2
    assert first == Delta(ids=list(b"ab"), origins=plain, text="ab", lengths=[1, 1])
    assert isinstance(second, Delta)
    assert done == Done(
        text="",
        reason=FinishReason.LENGTH,
        usage=Usage(prompt_tokens=3, completion_tokens=3, cached_tokens=2),
        stats=STATS,
    )
    assert desk.requests.running == 0
    assert desk.outcome(Outcome.OK) == 1
    assert desk.sample("num_requests_running") == 0
    assert desk.sample("time_to_first_token_seconds_count") == 1
    assert desk.sample("time_per_output_token_seconds_count") == 1
    assert desk.sample("inter_token_latency_seconds_count") == 1
    assert desk.sample("prompt_tokens_total") == 3
    assert desk.sample("generation_tokens_total") == 3
    assert desk.cancels() == []


async def test_a_stop_string_cancels_the_loop_and_waits_for_its_word() -> None:
    desk = Desk()
    answer = desk.open(stops=["bc"])
    desk.emit(answer, b"abcd")
    assert desk.cancels() == [answer.id]
    desk.emit(answer, b"ef")  # computed before the cancel arrived
    assert desk.requests.running == 1
    desk.finish(answer, FinishReason.CANCELLED)
    _, delta, done = await read(answer)
    assert isinstance(delta, Delta)
    assert (delta.text, delta.ids) == ("a", list(b"abc"))
    assert isinstance(done, Done)
    assert (done.reason, done.usage.completion_tokens) == (FinishReason.STOP, 3)
    assert done.stats == STATS
    assert desk.cancels() == [answer.id]


async def test_a_reader_that_left_is_cancelled_once_and_forgotten() -> None:
    desk = Desk()
    answer = desk.open()
    desk.emit(answer, b"a")
    desk.requests.abandon(answer)
    desk.requests.abandon(answer)
    desk.emit(answer, b"b")
    assert desk.cancels() == [answer.id]
    assert desk.requests.running == 1  # it has its slot until the loop has stopped
    desk.finish(answer, FinishReason.CANCELLED)
    assert desk.requests.running == 0
    assert desk.outcome(Outcome.CANCELLED) == 1


async def test_leaving_after_the_end_changes_nothing() -> None:
    desk = Desk()
    answer = desk.open()
    desk.finish(answer)
    desk.requests.abandon(answer)
    assert desk.cancels() == []
    assert desk.outcome(Outcome.CANCELLED) == 0


async def test_f6_a_slow_reader_does_not_grow_memory() -> None:
    desk = Desk(max_events=8)
    answer = desk.open()
    for _ in range(1000):
        desk.emit(answer, b"a")
    assert answer.events.qsize() == 9
    assert desk.cancels() == [answer.id]
    desk.finish(answer, FinishReason.CANCELLED)
    *shown, last = await read(answer)
    assert len(shown) == 8
    assert isinstance(last, Error)
    assert last.error.code == "transport_error"
    assert desk.outcome(Outcome.ERROR) == 1


async def test_a_stop_completed_as_the_queue_fills_ends_once() -> None:
    desk = Desk(max_events=2)
    answer = desk.open(stops=["c"])
    for byte in b"abc":
        desk.emit(answer, bytes([byte]))
    desk.finish(answer, FinishReason.CANCELLED)
    assert [type(event) for event in await read(answer)] == [Begin, Delta, Error]
    assert desk.cancels() == [answer.id]


async def test_a_request_has_a_deadline() -> None:
    desk = Desk(timeout_s=0.01)
    answer = desk.open()
    _, last = await read(answer)
    assert isinstance(last, Error)
    assert (last.error.code, last.error.status) == ("timeout", 504)
    assert desk.cancels() == [answer.id]


async def test_the_loop_may_fail_one_request() -> None:
    desk = Desk()
    answer, other = desk.open(), desk.open()
    error = EngineError("NaN").body()
    desk.requests.handle(Failed(id=answer.id, error=error))
    assert (await read(answer))[-1] == Error(error=error)
    assert desk.requests.running == 1
    desk.finish(other)
    assert isinstance((await read(other))[-1], Done)


async def test_a_dead_loop_ends_all_requests() -> None:
    desk = Desk()
    answers = [desk.open(), desk.open(), desk.open()]
    desk.dead = True
    error = EngineError("gone").body()
    desk.requests.fail_all(error)
    assert [(await read(answer))[-1] for answer in answers] == [Error(error=error)] * 3
    assert (desk.requests.running, desk.requests.waiting) == (0, 0)


async def test_a_loop_that_cancels_on_its_own_is_an_error() -> None:
    desk = Desk()
    answer = desk.open()
    desk.finish(answer, FinishReason.CANCELLED)
    assert isinstance((await read(answer))[-1], Error)


async def test_a_request_that_cannot_be_detokenised_fails_alone() -> None:
    class Broken(ByteText):
        def push(self, token: int) -> str:
            raise IndexError(token)

    class BrokenTokenizer(ByteTokenizer):
        def text_stream(self, *, special: bool = False) -> ByteText:
            return Broken({})

    desk = Desk()
    answer, other = desk.open(), desk.open()
    answer.choices[0].assembly = Assembly(BrokenTokenizer(), (), ())
    desk.emit(answer, b"a")
    last = (await read(answer))[-1]
    assert isinstance(last, Error)
    assert last.error.code == "internal_error"
    assert desk.cancels() == [answer.id]
    desk.emit(other, b"a")
    assert other.events.qsize() == 2


async def test_frames_about_unknown_requests_are_dropped() -> None:
    desk = Desk()
    answer = desk.open()
    desk.finish(answer)
    desk.emit(answer, b"a")
    desk.finish(answer)
    desk.requests.handle(Failed(id="other", error=EngineError("x").body()))
    assert len(await read(answer)) == 2


async def test_the_queue_is_bounded_and_counted() -> None:
    desk = Desk()
    first, _, third = desk.open(), desk.open(), desk.open()
    assert (desk.requests.running, desk.requests.waiting) == (2, 1)
    assert desk.sample("request_queue_time_seconds_count") == 2
    with pytest.raises(OverloadedError) as caught:
        desk.requests.admit()
    assert caught.value.retry_after_s is not None
    desk.finish(first)
    assert (desk.requests.running, desk.requests.waiting) == (1, 1)
    desk.let_in(third)
    assert (desk.requests.running, desk.requests.waiting) == (2, 0)
    assert desk.sample("request_queue_time_seconds_count") == 3
    assert desk.requests.admit()


async def test_a_waiting_request_that_leaves_gives_nobody_a_slot() -> None:
    desk = Desk()
    _, _, third = desk.open(), desk.open(), desk.open()
    desk.requests.abandon(third)
    desk.finish(third, FinishReason.CANCELLED)
    assert not third.choices[0].running
    assert desk.sample("request_queue_time_seconds_count") == 2


async def test_a_refused_request_gives_its_place_back() -> None:
    desk = Desk()
    answer = desk.requests.admit()
    desk.requests.refuse(answer, Outcome.REJECTED)
    assert desk.requests.running == 0
    assert desk.outcome(Outcome.REJECTED) == 1
    assert desk.sent == []


async def test_a_request_whose_loop_died_before_it_was_submitted() -> None:
    desk = Desk()
    answer = desk.requests.admit()
    desk.requests.fail_all(EngineError("gone").body())
    assembly = Assembly(ByteTokenizer(), (), ())
    with pytest.raises(UnavailableError):
        desk.requests.submit(answer, [submit(answer.id)], [assembly], BEGIN)
    desk.requests.refuse(answer, Outcome.ERROR)
    assert desk.outcome(Outcome.ERROR) == 1
    assert desk.sample("num_requests_running") == 0


async def test_draining_waits_for_the_open_and_then_ends_them() -> None:
    desk = Desk()
    answer = desk.open()
    await desk.requests.drained(0.01)
    last = (await read(answer))[-1]
    assert isinstance(last, Error)
    assert last.error.status == 503
    other = desk.open()
    desk.finish(other)
    await desk.requests.drained(60.0)
    assert isinstance((await read(other))[-1], Done)


async def test_the_deadline_of_an_ended_request_is_void() -> None:
    desk = Desk(timeout_s=0.02)
    answer = desk.open()
    desk.finish(answer)
    late = desk.open()
    await eventually(lambda: late.ended)
    assert [type(event) for event in await read(answer)] == [Begin, Done]


# -- several choices ---------------------------------------------------------------------------


async def test_each_choice_ends_by_itself_and_the_last_ends_the_answer() -> None:
    desk = Desk()
    answer = desk.open(choices=2)
    desk.let_in(answer, 1)
    desk.emit(answer, b"b", choice=1)
    desk.emit(answer, b"a", choice=0)
    desk.finish(answer, choice=1)
    assert desk.outcome(Outcome.OK) == 0
    desk.finish(answer, choice=0)
    _, *events = await read(answer)
    assert [(type(event), getattr(event, "choice", None)) for event in events] == [
        (Delta, 1),
        (Delta, 0),
        (Done, 1),
        (Done, 0),
    ]
    assert desk.outcome(Outcome.OK) == 1
    assert desk.sample("request_queue_time_seconds_count") == 1
    assert (desk.requests.running, desk.cancels()) == (0, [])


async def test_a_choice_that_fails_ends_the_others() -> None:
    desk = Desk()
    answer = desk.open(choices=2)
    first, second = (choice.id for choice in answer.choices)
    desk.requests.handle(Failed(id=first, error=EngineError("x").body()))
    assert isinstance((await read(answer))[-1], Error)
    assert desk.cancels() == [second]
    desk.finish(answer, FinishReason.CANCELLED, choice=1)
    assert desk.outcome(Outcome.ERROR) == 1
    assert (desk.requests.running, desk.requests.waiting) == (0, 0)


async def test_a_stop_string_ends_its_choice_alone() -> None:
    desk = Desk()
    answer = desk.open(stops=["b"], choices=2)
    desk.emit(answer, b"ab", choice=1)
    assert desk.cancels() == [answer.choices[1].id]
    desk.finish(answer, FinishReason.CANCELLED, choice=1)
    desk.emit(answer, b"a", choice=0)
    desk.finish(answer, choice=0)
    ends = [event for event in await read(answer) if isinstance(event, Done)]
    assert [(end.choice, end.reason) for end in ends] == [
        (1, FinishReason.STOP),
        (0, FinishReason.LENGTH),
    ]


async def test_a_reader_that_leaves_cancels_what_is_still_computed() -> None:
    desk = Desk()
    answer = desk.open(choices=3)
    desk.finish(answer, choice=1)
    desk.requests.abandon(answer)
    assert desk.cancels() == [answer.choices[0].id, answer.choices[2].id]


async def test_choices_take_places_and_too_many_never_fit() -> None:
    desk = Desk()
    desk.open(choices=2)
    with pytest.raises(OverloadedError):
        desk.requests.admit(2)
    with pytest.raises(RequestError, match="n=4: this target holds 3"):
        desk.requests.admit(4)
    assert desk.requests.admit(1)

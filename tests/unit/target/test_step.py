"""The target's step loop: admission, packing, ends and failures, on scripted models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from starsd.engine.interface import Logits, Row, SlotState
from starsd.errors import EngineError
from starsd.protocol.frames import FinishReason, Origin, Submit
from starsd.protocol.sampling import SamplingParams
from starsd.settings.target import TargetSettings
from tests.ministar import Answer, MiniStar, Pod
from tests.scripted import EOS, VOCAB, HashModel, ScriptedRunner, ScriptModel

PLAIN: dict[str, Any] = {"drafting": False}


class Spy(ScriptedRunner):
    """Remembers the rows of every forward, and can be told to fail."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.batches: list[list[Row]] = []
        self.fail_at = -1
        self.poison = -1

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        self.batches.append(list(rows))
        if len(self.batches) - 1 == self.fail_at:
            raise EngineError("out of memory")
        logits = super().forward(rows)
        for row, scores in zip(rows, logits, strict=True):
            if row.slot == self.poison:
                scores[:] = np.nan
        return logits


def make_runner(slots: int = 4, length: int = 128, model: Any = HashModel) -> Spy:
    return Spy(model(TargetSettings(max_sequences=slots, max_length=length)))


@pytest.fixture
def runner() -> Spy:
    return make_runner()


@pytest.fixture
def star(runner: Spy) -> Iterator[MiniStar]:
    with MiniStar([runner], target=PLAIN) as star:
        yield star


@pytest.fixture
def pod(star: MiniStar) -> Pod:
    return star.pods[0]


def request(
    name: str, prompt: int = 5, max_tokens: int = 8, changes: dict[str, Any] | None = None
) -> Submit:
    fields: dict[str, Any] = {
        "id": name,
        "prompt": [(7 * index + len(name)) % 256 for index in range(prompt)],
        "sampling": SamplingParams(seed=1, prompt_len=prompt),
        "max_tokens": max_tokens,
        "eos": (EOS,),
    }
    return Submit(**fields | (changes or {}))


def serve(runner: Spy, *requests: Submit, **settings: Any) -> list[Any]:
    with MiniStar([runner], target={**PLAIN, **settings}) as star:
        return list(star.run(requests))


# -- packing -------------------------------------------------------------------------------------


def test_prompt_is_prefilled_in_chunks(runner: Spy) -> None:
    serve(runner, request("a", prompt=20, max_tokens=1), prefill_chunk=8)
    (rows,) = zip(*runner.batches, strict=True)
    packed = [(row.start, len(row.tokens), row.want) for row in rows]
    assert packed == [(0, 8, 0), (8, 8, 0), (16, 4, 1)]


def test_text_does_not_depend_on_the_chunk(runner: Spy) -> None:
    whole = serve(runner, request("a", prompt=40), prefill_chunk=128)
    parts = serve(make_runner(), request("a", prompt=40), prefill_chunk=3)
    assert whole[0].tokens == parts[0].tokens


def test_prompt_comes_whole_where_chunks_are_dear(runner: Spy) -> None:
    """However long; decoding rows still go first, and other prompts wait for the next step."""
    runner.state = SlotState.STEPS
    requests = [request("a", prompt=70, max_tokens=2), request("b", prompt=60, max_tokens=2)]
    serve(runner, *requests, prefill_chunk=8, step_tokens=32)
    packed = [[(row.slot, row.start, len(row.tokens)) for row in rows] for rows in runner.batches]
    assert packed == [[(0, 0, 70)], [(0, 70, 1), (1, 0, 60)], [(1, 60, 1)]]


def test_long_prompt_delays_others_by_one_chunk_at_most(
    runner: Spy, star: MiniStar, pod: Pod
) -> None:
    pod.submit(request("short", max_tokens=60))
    for _ in range(3):
        star.step()
    pod.submit(request("long", prompt=100, max_tokens=1))
    before = len(runner.batches)
    star.serve()
    slot = runner.batches[0][0].slot
    assert all(
        any(row.slot == slot for row in rows) for rows in runner.batches[before : before + 5]
    )


def test_tokens_of_a_step_are_bounded_and_decoding_goes_first(runner: Spy) -> None:
    requests = [request(name, prompt=30, max_tokens=6) for name in "abcd"]
    serve(runner, *requests, step_tokens=32, prefill_chunk=30)
    assert all(sum(len(row.tokens) for row in rows) <= 32 for rows in runner.batches)
    mixed = [rows for rows in runner.batches if {row.want for row in rows} == {0, 1}]
    assert mixed
    assert all(rows[0].want == 1 for rows in mixed)


def test_more_requests_than_slots_wait_their_turn(runner: Spy) -> None:
    answers = serve(runner, *[request(f"r{index}") for index in range(11)])
    assert [len(answer.tokens) for answer in answers] == [8] * 11
    assert all(len(rows) <= 4 for rows in runner.batches)


# -- ends ----------------------------------------------------------------------------------------


def test_end_of_sequence_is_the_last_token() -> None:
    runner = make_runner(model=ScriptModel)
    (answer,) = serve(runner, request("a", max_tokens=100))
    assert bytes(answer.tokens[:-1]).decode().endswith(ScriptModel.text[5:])
    assert answer.tokens[-1] == EOS
    assert answer.reason is FinishReason.STOP


def test_context_ends_the_answer(runner: Spy) -> None:
    (answer,) = serve(runner, request("a", prompt=120, max_tokens=1000))
    assert len(answer.tokens) == 8
    assert answer.reason is FinishReason.LENGTH


def test_plain_tokens_say_so(runner: Spy) -> None:
    (answer,) = serve(runner, request("a"))
    assert answer.origins == [Origin.PLAIN] * 8
    assert answer.stats.fallbacks == 0


def test_cancelled_while_running_frees_its_slot_at_once(
    runner: Spy, star: MiniStar, pod: Pod
) -> None:
    pod.submit(request("a", max_tokens=100))
    for _ in range(5):
        star.step()
    pod.cancel("a")
    star.serve()
    answer = pod.answers["a"]
    assert (answer.reason, answer.ends) == (FinishReason.CANCELLED, 1)
    assert 0 < len(answer.tokens) < 10
    pod.submit(request("b"))
    star.serve()
    assert runner.batches[-1][0].slot == 0


def test_cancelled_while_waiting_never_runs(star: MiniStar, pod: Pod) -> None:
    for name in "abcde":
        pod.submit(request(name))
    star.step()
    pod.cancel("e")
    star.serve()
    assert (pod.answers["e"].reason, pod.answers["e"].tokens) == (FinishReason.CANCELLED, [])


def test_cancelling_the_unknown_is_harmless(star: MiniStar, pod: Pod) -> None:
    pod.submit(request("a"))
    pod.cancel("nobody")
    star.serve()
    assert pod.answers["a"].reason is FinishReason.LENGTH


# -- failures ------------------------------------------------------------------------------------


def test_failed_forward_fails_its_requests_and_no_later_one(runner: Spy) -> None:
    runner.fail_at = 3
    requests = [request(name) for name in "abcdef"]
    answers = serve(runner, *requests)
    errors = [answer.error.message if answer.error else None for answer in answers]
    assert errors == ["out of memory"] * 4 + [None] * 2
    assert all(answer.ends == 1 for answer in answers)


def test_row_that_cannot_be_sampled_fails_alone(runner: Spy) -> None:
    runner.poison = 1
    answers = serve(runner, *[request(name) for name in "abc"])
    assert [answer.error is not None for answer in answers] == [False, True, False]


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"prompt": []}, "invalid_value", "empty"),
        ({"prompt": [1] * 128}, "context_length_exceeded", "128"),
        ({"prompt": [1, VOCAB]}, "invalid_value", str(VOCAB)),
        ({"prompt": [-1]}, "invalid_value", str(VOCAB)),
        ({"sampling": SamplingParams(seed=2**64)}, "invalid_value", "64 bits"),
    ],
    ids=["empty", "too long", "vocabulary", "negative", "seed"],
)
def test_what_could_hurt_the_engine_never_reaches_it(
    runner: Spy, star: MiniStar, pod: Pod, changes: dict[str, Any], code: str, said: str
) -> None:
    submit = request("a", changes=changes)
    pod.answers["a"] = Answer()
    pod.loop._submit(submit)  # as a frame could not: msgpack carries no seed over 64 bits
    star.serve()
    error = pod.answers["a"].error
    assert error is not None
    assert error.code == code
    assert said in error.message
    assert runner.batches == []


def test_queue_has_a_bound_of_its_own(pod: Pod) -> None:
    limit = TargetSettings().max_waiting + 4
    for index in range(limit + 2):
        pod.submit(request(f"r{index}", max_tokens=1))
    pod.loop.drain()
    pod.read()
    failed = [answer.error.code for answer in pod.answers.values() if answer.error]
    assert failed == ["overloaded"]


def test_loop_ends_when_its_front_is_gone(pod: Pod) -> None:
    pod._front.close()
    pod.loop.run()

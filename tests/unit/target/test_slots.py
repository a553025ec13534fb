"""Memory for more sequences than fit: who is admitted, who makes room, what is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from starsd.engine.interface import KV_BLOCK
from starsd.protocol.frames import FinishReason, Submit
from starsd.protocol.messages import Propose, ToHub
from starsd.protocol.sampling import SamplingParams
from starsd.settings.target import TargetSettings
from tests.identity.scripted_star import PATIENT, draft_runner
from tests.ministar import Answer, MiniStar, Pod
from tests.scripted import EOS, POSITION_BYTES, HashModel
from tests.unit.target.test_step import PLAIN, Spy

PREEMPTIONS = "starsd:preemptions_total"
REUSED = "starsd:prefix_tokens_reused_total"


def make_runner(blocks: int = 64, slots: int = 8, length: int = 256) -> Spy:
    memory = blocks * KV_BLOCK * POSITION_BYTES
    given: dict[str, Any] = {"max_sequences": slots, "max_length": length, "kv_memory": memory}
    return Spy(HashModel(TargetSettings(**given)))


def make_request(name: str, prompt: list[int], max_tokens: int = 8, seed: int = 1) -> Submit:
    sampling = SamplingParams(seed=seed, prompt_len=len(prompt))
    return Submit(id=name, prompt=prompt, sampling=sampling, max_tokens=max_tokens, eos=(EOS,))


def numbers(count: int, step: int = 7) -> list[int]:
    return [step * index % 256 for index in range(count)]


def different(count: int, prompt: int, max_tokens: int) -> list[Submit]:
    """No two begin alike."""
    return [
        make_request(f"r{index}", [index, *numbers(prompt - 1)], max_tokens, seed=index)
        for index in range(count)
    ]


def alone(request: Submit) -> list[int]:
    """Its text when nobody else is there."""
    with MiniStar([make_runner()], target=PLAIN) as star:
        return star.run([request])[0].tokens


def texts(answers: list[Answer]) -> list[list[int]]:
    assert all(answer.error is None and answer.ends == 1 for answer in answers)
    return [answer.tokens for answer in answers]


def running(pod: Pod) -> list[str]:
    return list(pod.loop._running)


def waiting(pod: Pod) -> list[str]:
    return [sequence.id for sequence in pod.loop._waiting]


@pytest.fixture
def small() -> Iterator[MiniStar]:
    """A target with 8 slots of 4 blocks, and memory for two of them."""
    with MiniStar([make_runner(blocks=8)], target=PLAIN) as star:
        yield star


# -- admission -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocks", "most"), [(4, 2), (8, 4), (12, 6)])
def test_kv_memory_bounds_who_runs(blocks: int, most: int) -> None:
    """Each needs two blocks for its prompt, and its answer fits in."""
    with MiniStar([make_runner(blocks)], target=PLAIN) as star:
        (pod,) = star.pods
        for request in different(7, prompt=100, max_tokens=20):
            pod.submit(request)
        star.step()
        assert (len(running(pod)), len(waiting(pod))) == (most, 7 - most)
        star.serve()
        assert pod.metric(PREEMPTIONS) == 0


def test_nobody_overtakes_a_long_prompt(small: MiniStar) -> None:
    (pod,) = small.pods
    for name, prompt, step in (("a", 200, 3), ("b", 60, 5), ("long", 250, 7), ("short", 5, 9)):
        pod.submit(make_request(name, numbers(prompt, step), max_tokens=4))
    small.step()
    assert (running(pod), waiting(pod)) == (["a", "b"], ["long", "short"])
    while "long" in waiting(pod):
        assert "short" in waiting(pod)
        small.step()
    assert "a" not in running(pod)
    small.serve()


def test_one_that_takes_all_memory_is_served() -> None:
    with MiniStar([make_runner(blocks=4)], target=PLAIN) as star:
        (answer,) = star.run([make_request("a", numbers(250), 100)])
        assert (len(answer.tokens), answer.reason) == (6, FinishReason.LENGTH)


# -- preemption ----------------------------------------------------------------------------------


def test_more_than_fits_is_served_in_full_and_says_the_same() -> None:
    requests = different(10, prompt=30, max_tokens=150)
    expected = [alone(request) for request in requests]
    runner = make_runner(blocks=8)
    with MiniStar([runner], target=PLAIN) as star:
        answers = star.run(requests)
        assert texts(answers) == expected
        assert star.pods[0].metric(PREEMPTIONS) > 3
        assert [answer.stats.cached_tokens for answer in answers] == [0] * 10
        assert star.pods[0].loop._slots.blocks_used == 0
    assert sum(map(len, runner.held)) <= 4 * KV_BLOCK  # half of it, by prefixes


def test_the_youngest_makes_room_and_goes_on_first(small: MiniStar) -> None:
    (pod,) = small.pods
    for request in different(4, prompt=60, max_tokens=120):
        pod.submit(request)
    while not pod.metric(PREEMPTIONS):
        small.step()
    assert (running(pod), waiting(pod)) == (["r0", "r1"], ["r2", "r3"])
    pod.submit(make_request("new", [99], 4))
    line, served = ["r2", "r3", "new"], list[str]()
    while small.step():
        left = waiting(pod)
        assert left == line[len(line) - len(left) :]
        served += [name for name, one in pod.answers.items() if one.ends and name not in served]
    assert served[:2] == ["r0", "r1"]


def test_a_preempted_request_can_be_cancelled(small: MiniStar) -> None:
    (pod,) = small.pods
    for request in different(4, prompt=60, max_tokens=120):
        pod.submit(request)
    while not pod.metric(PREEMPTIONS):
        small.step()
    assert pod.loop.open_requests == 4
    pod.cancel("r3")
    small.step()
    answer = pod.answers["r3"]
    assert (answer.reason, answer.ends) == (FinishReason.CANCELLED, 1)
    assert len(answer.tokens) > 0
    assert "r3" not in waiting(pod)
    small.serve()
    assert pod.loop.open_requests == 0


def test_proposals_take_no_memory_from_others() -> None:
    """Both get to the end of their two blocks, and there are no more: proposals are cut."""
    with MiniStar([make_runner(blocks=4)], draft_runner(), target=PATIENT) as star:
        (pod,) = star.pods
        requests = different(2, prompt=60, max_tokens=100)
        for request in requests:
            pod.submit(request)
        before = [0]
        while not pod.metric(PREEMPTIONS):
            before = [len(sequence.tokens) for sequence in pod.loop._running.values()]
            star.step()
        assert len(before) == 2
        assert max(before) == 2 * KV_BLOCK + 1
        star.serve()
        assert texts(list(pod.answers.values())) == [alone(request) for request in requests]


def test_the_hub_keeps_a_preempted_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its prefix is sent once, and its proposals are still right."""
    requests = different(6, prompt=50, max_tokens=120)
    jobs: list[Propose] = []
    with MiniStar([make_runner(blocks=8)], draft_runner(), target=PATIENT) as star:
        (pod,) = star.pods
        for name in ("send_first", "send_hub"):
            monkeypatch.setattr(pod.bus, name, recorded(jobs, getattr(pod.bus, name)))
        answers = star.run(requests)
        assert pod.metric(PREEMPTIONS) > 0
    assert texts(answers) == [alone(request) for request in requests]
    assert sum(job.base == 0 for job in jobs) == len(requests)
    assert {job.epoch for job in jobs} == {0}
    assert sum(answer.stats.accepted for answer in answers) > 100


def recorded(jobs: list[Propose], send: Callable[[str, ToHub], None]) -> Callable[..., None]:
    """``send``, which also notes what it sends."""

    def note(key: str, message: ToHub) -> None:
        if isinstance(message, Propose):
            jobs.append(message)
        send(key, message)

    return note


# -- common beginnings ---------------------------------------------------------------------------


def computed(runner: Spy) -> int:
    return sum(len(row.tokens) for rows in runner.batches for row in rows)


def test_samples_of_one_prompt_compute_it_once() -> None:
    requests = [make_request(f"r{seed}", numbers(200), 10, seed) for seed in range(6)]
    runner = make_runner()
    with MiniStar([runner], target=PLAIN) as star:
        answers = star.run(requests)
        assert texts(answers) == [alone(request) for request in requests]
        assert len({tuple(answer.tokens) for answer in answers}) == 6
        assert [answer.stats.cached_tokens for answer in answers] == [0] + [199] * 5
        assert star.pods[0].metric(REUSED) == 5 * 199
    assert computed(runner) == 200 + 5 + 6 * 9


def test_a_newcomer_takes_over_what_a_resident_has() -> None:
    """A common beginning of 40 tokens; one of 15 is not worth a copy."""
    runner = make_runner()
    first = make_request("first", numbers(60), 50)
    second = make_request("second", [*numbers(40), 255, 254, 253])
    third = make_request("third", [*numbers(15), 255, 254, 253])
    with MiniStar([runner], target=PLAIN) as star:
        (pod,) = star.pods
        pod.submit(first)
        for _ in range(3):
            star.step()
        pod.submit(second)
        pod.submit(third)
        star.serve()
        assert [pod.answers[one].stats.cached_tokens for one in ("second", "third")] == [40, 0]
        assert pod.answers["second"].tokens == alone(second)
        assert pod.answers["third"].tokens == alone(third)


def test_a_newcomer_waits_no_longer_than_the_common_part_takes() -> None:
    """100 of 250 tokens, chunks of 20: after five steps the second goes its own way."""
    runner = make_runner()
    first = make_request("first", numbers(250), 4)
    second = make_request("second", [*numbers(100), *numbers(30, 11)], 4)
    with MiniStar([runner], target=PLAIN | {"prefill_chunk": 20}) as star:
        answers = star.run([first, second])
        assert texts(answers) == [alone(first), alone(second)]
    begun = [number for number, rows in enumerate(runner.batches) if len(rows) == 2]
    assert begun[0] == 2  # 40 computed: the 60 left are not worth waiting for
    assert answers[1].stats.cached_tokens == 40


def test_who_waits_for_one_that_leaves_computes_alone() -> None:
    requests = [make_request(f"r{seed}", numbers(200), 4, seed) for seed in range(3)]
    with MiniStar([make_runner()], target=PLAIN | {"prefill_chunk": 20}) as star:
        (pod,) = star.pods
        for request in requests:
            pod.submit(request)
        star.step()
        pod.cancel("r0")
        star.serve()
        assert [pod.answers[f"r{i}"].tokens for i in (1, 2)] == [alone(r) for r in requests[1:]]
        assert pod.answers["r1"].stats.cached_tokens == 0
        assert pod.answers["r2"].stats.cached_tokens == 140  # of 199: the rest is little


# -- long prompts --------------------------------------------------------------------------------


def test_a_4k_prompt_delays_the_next_token_of_others_by_one_chunk() -> None:
    """On a clock that runs with the tokens computed."""
    runner = make_runner(blocks=200, slots=4, length=8192)
    with MiniStar([runner], target=PLAIN | {"prefill_chunk": 128, "step_tokens": 160}) as star:
        (pod,) = star.pods
        for request in different(2, prompt=8, max_tokens=60):
            pod.submit(request)
        for _ in range(4):
            star.step()
        pod.submit(make_request("long", numbers(4096), 2))
        before = len(runner.batches)
        star.serve()
    prefill = [rows for rows in runner.batches[before:] if any(not row.want for row in rows)]
    assert len(prefill) == 31  # and a last chunk, which wants logits
    for rows in prefill:
        assert [len(row.tokens) for row in rows] == [1, 1, 128]


def test_step_tokens_bounds_a_step_of_many_prompts() -> None:
    runner = make_runner(blocks=200, slots=8, length=8192)
    with MiniStar([runner], target=PLAIN | {"prefill_chunk": 128, "step_tokens": 300}) as star:
        texts(star.run(different(8, prompt=700, max_tokens=3)))
    sizes = [sum(len(row.tokens) for row in rows) for rows in runner.batches]
    assert max(sizes) == 300
    assert max(len(row.tokens) for rows in runner.batches for row in rows) == 128

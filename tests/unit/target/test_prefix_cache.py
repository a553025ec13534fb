"""What ended requests leave in their slots: for whom, for how long, and at whose expense."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from starsd.engine.interface import KV_BLOCK
from starsd.protocol.frames import Submit
from starsd.settings.target import TargetSettings
from tests.headstar import HeadStar, features
from tests.headstar import make_request as make_head_request
from tests.headstar import plain as plain_of_head
from tests.identity.scripted_star import PATIENT, draft_runner
from tests.ministar import Answer, MiniStar, Pod
from tests.scripted import GrowingModel
from tests.scripted_head import features_of, make_head, make_target, state_after
from tests.unit.target.test_slots import (
    PREEMPTIONS,
    REUSED,
    alone,
    computed,
    different,
    make_request,
    make_runner,
    numbers,
    texts,
)
from tests.unit.target.test_step import PLAIN

HITS = "starsd:prefix_cache_hits_total"
EVICTED = "starsd:prefix_cache_evicted_blocks_total"
ALL: dict[str, Any] = PLAIN | {"prefix_cache": 1.0}


def of(request: Submit, salt: str) -> Submit:
    return msgspec.structs.replace(request, salt=salt)


def next_turn(before: Submit, answer: Answer, name: str, more: int = 10) -> Submit:
    """As a chat goes on: what was asked, what was said, and something new."""
    prompt = [*before.prompt, *answer.tokens, *numbers(more, 11)]
    return of(make_request(name, prompt), before.salt)


def ask(star: MiniStar, request: Submit) -> Answer:
    (answer,) = star.run([request])
    assert answer.error is None
    return answer


def kept(pod: Pod) -> dict[int, int]:
    """Tokens by slot, the oldest first."""
    found = pod.loop._slots._prefixes._kept.values()
    return {prefix.slot: len(prefix.tokens) for prefix in found}


# -- who finds what ------------------------------------------------------------------------------


def test_prefix_cache() -> None:
    """A second turn computes only what is new, in the slot where the first was."""
    for share, reused in ((1.0, 107), (0.0, 0)):
        runner = make_runner()
        with MiniStar([runner], target=PLAIN | {"prefix_cache": share}) as star:
            first = make_request("first", numbers(100))
            second = next_turn(first, ask(star, first), "second")
            before = computed(runner)
            answer = ask(star, second)
            assert answer.tokens == alone(second)
            assert answer.stats.cached_tokens == reused
            assert computed(runner) - before == 118 - reused + 7
            assert star.pods[0].metric(REUSED) == reused
            assert star.pods[0].metric(HITS) == (reused > 0)
            assert runner.batches[-1][0].slot == 0


def test_the_same_question_computes_one_token() -> None:
    runner = make_runner()
    with MiniStar([runner], target=ALL) as star:
        answers = [ask(star, make_request(f"r{seed}", numbers(100), 8, seed)) for seed in range(3)]
        assert [answer.stats.cached_tokens for answer in answers] == [0, 99, 99]
        assert computed(runner) == 100 + 1 + 1 + 3 * 7
        assert len(kept(star.pods[0])) == 1  # nearly nothing is lost by taking it over


def test_what_is_not_taken_over_is_given_back() -> None:
    runner = make_runner()
    with MiniStar([runner], target=ALL) as star:
        (pod,) = star.pods
        ask(star, make_request("first", numbers(90)))
        assert pod.loop._slots.blocks_kept == 2
        pod.submit(make_request("second", [*numbers(50), *[1] * 5], 4))
        star.step()
        assert (pod.loop._slots.blocks_used, pod.loop._slots.blocks_kept) == (1, 0)
        assert runner.batches[-1][0].start == 50
        star.serve()


def test_tenants_share_nothing() -> None:
    """Neither what is left behind nor what is being computed."""
    with MiniStar([make_runner()], target=ALL) as star:
        first = of(make_request("first", numbers(100)), "one")
        ask(star, first)
        for name, salt, cached in (("a", "two", 0), ("b", "", 0), ("c", "one", 99)):
            answer = ask(star, of(make_request(name, numbers(100)), salt))
            assert answer.stats.cached_tokens == cached
    with MiniStar([make_runner()], target=PLAIN) as star:
        requests = [of(make_request(f"r{i}", numbers(100)), salt) for i, salt in enumerate("aab")]
        answers = star.run(requests)
        assert [answer.stats.cached_tokens for answer in answers] == [0, 99, 0]


def test_a_common_beginning_is_copied_and_stays_with_the_first() -> None:
    """A system prompt of 80 tokens; both chats go on afterwards."""
    runner = make_runner()
    with MiniStar([runner], target=ALL) as star:
        chats = [make_request(f"r{i}", [*numbers(80), *[i] * 90]) for i in (1, 2)]
        first, second = ask(star, chats[0]), ask(star, chats[1])
        assert (first.stats.cached_tokens, second.stats.cached_tokens) == (0, 80)
        for chat, answer in zip(chats, (first, second), strict=True):
            again = next_turn(chat, answer, f"{chat.id} again")
            later = ask(star, again)
            assert later.stats.cached_tokens == 177
            assert later.tokens == alone(again)
        assert list(kept(star.pods[0])) == [0, 1]


def test_several_go_on_from_one_prefix() -> None:
    """Samples of a second turn: one goes on in the first's slot, the others copy it from there."""
    with MiniStar([make_runner()], target=ALL) as star:
        first = make_request("first", numbers(100))
        prompt = next_turn(first, ask(star, first), "").prompt
        requests = [make_request(f"r{seed}", prompt, 8, seed) for seed in range(4)]
        answers = star.run(requests)
        assert texts(answers) == [alone(request) for request in requests]
        assert [answer.stats.cached_tokens for answer in answers] == [107] * 4


def test_what_was_cancelled_is_of_use() -> None:
    with MiniStar([make_runner()], target=ALL | {"prefill_chunk": 20}) as star:
        (pod,) = star.pods
        pod.submit(make_request("gone", numbers(200)))
        for _ in range(3):
            star.step()
        pod.cancel("gone")
        star.serve()
        request = make_request("again", numbers(200))
        answer = ask(star, request)
        assert answer.stats.cached_tokens == 60
        assert answer.tokens == alone(request)


def test_what_failed_is_not_used_again() -> None:
    runner = make_runner()
    with MiniStar([runner], target=ALL) as star:
        runner.fail_at = 3
        (failed,) = star.run([make_request("bad", numbers(100))])
        assert failed.error is not None
        assert not kept(star.pods[0])
        assert not any(runner.held)
        assert ask(star, make_request("good", numbers(100))).stats.cached_tokens == 0


def test_a_state_that_does_not_roll_back_is_not_kept() -> None:
    runner = GrowingModel(TargetSettings(max_sequences=2, max_length=256)).runner()
    with MiniStar([runner], target=ALL) as star:
        first = make_request("first", numbers(100))
        answer = ask(star, next_turn(first, ask(star, first), "second"))
        assert answer.stats.cached_tokens == 0
        assert not any(runner.held)


# -- who makes room ------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.25, 0.6, 1.0])
def test_the_bound_holds_over_many_requests(share: float) -> None:
    """40 chats of 1 to 3 turns in 8 slots and 16 blocks, two at a time."""
    choose = random.Random(share)
    runner = make_runner(blocks=16)
    with MiniStar([runner], target=PLAIN | {"prefix_cache": share}) as star:
        (pod,) = star.pods
        slots = pod.loop._slots

        def check() -> None:
            held = sum(-(-len(tokens) // KV_BLOCK) for tokens in runner.held)
            assert held <= slots._budget.used == slots.blocks_used + slots.blocks_kept <= 16
            assert slots.blocks_kept <= int(share * 16)
            assert len(slots._free) + len(kept(pod)) + len(slots.running) == 8
            for slot, length in kept(pod).items():
                prefix = slots._prefixes._kept[slot]
                assert runner.held[slot] == prefix.tokens
                assert len(prefix.tokens) == length

        star.on_step = check
        chats = [make_request(f"c{i}", [i, *numbers(choose.randint(5, 90))]) for i in range(4)]
        for turn in range(20):
            pair = choose.sample(range(4), 2)
            asked = [msgspec.structs.replace(chats[i], id=f"{turn}.{i}") for i in pair]
            answers = star.run(asked)
            assert texts(answers) == [alone(request) for request in asked]
            for i, answer in zip(pair, answers, strict=True):
                chats[i] = next_turn(chats[i], answer, "")
                if len(chats[i].prompt) > 200:
                    chats[i] = make_request("", [turn + 10, *numbers(40)])
        assert pod.metric(HITS) > 0
        assert pod.metric(EVICTED) > 0


def test_the_slot_used_least_recently_goes_first() -> None:
    """Four slots, of which the second is used again before a fifth chat comes."""
    with MiniStar([make_runner(slots=4)], target=ALL) as star:
        (pod,) = star.pods
        chats = [make_request(f"r{i}", [i, *numbers(99)]) for i in range(4)]
        answers = [ask(star, chat) for chat in chats]
        ask(star, next_turn(chats[0], answers[0], "again"))
        assert list(kept(pod)) == [1, 2, 3, 0]
        ask(star, make_request("new", [9, *numbers(99)]))
        assert list(kept(pod)) == [2, 3, 0, 1]
        for i, cached in ((2, 107), (3, 107), (1, 0)):
            answer = ask(star, next_turn(chats[i], answers[i], f"r{i} again"))
            assert answer.stats.cached_tokens == cached


def test_memory_comes_from_the_ends_of_the_oldest() -> None:
    """8 blocks, of which 3 + 3 are kept; a newcomer needs 4, and one to grow."""
    with MiniStar([make_runner(blocks=8)], target=ALL) as star:
        (pod,) = star.pods
        for i in (1, 2):
            ask(star, make_request(f"r{i}", [i, *numbers(169)]))
        assert kept(pod) == {0: 177, 1: 177}
        pod.submit(make_request("new", [3, *numbers(245)]))
        star.step()
        assert kept(pod) == {0: 64, 1: 177}
        assert pod.metric(EVICTED) == 2
        star.serve()
        assert ask(star, make_request("r1 again", [1, *numbers(169)])).stats.cached_tokens == 64


def test_a_prefix_that_cannot_stay_beside_its_copy_is_taken_over() -> None:
    """4 blocks kept of 6: what shares 130 tokens of them needs 3 and one to grow."""
    runner = make_runner(blocks=6)
    with MiniStar([runner], target=ALL) as star:
        ask(star, make_request("first", numbers(240)))
        second = make_request("second", [*numbers(130), *[1] * 50])
        answer = ask(star, second)
        assert answer.stats.cached_tokens == 130
        assert answer.tokens == alone(second)
        assert kept(star.pods[0]) == {0: 187}


def test_prefixes_make_room_before_anybody_is_preempted() -> None:
    requests = different(4, prompt=100, max_tokens=20)
    with MiniStar([make_runner(blocks=8)], target=ALL) as star:
        texts(star.run(different(4, prompt=60, max_tokens=5)))
        assert star.pods[0].loop._slots.blocks_kept > 0
        assert texts(star.run(requests)) == [alone(request) for request in requests]
        assert star.pods[0].metric(PREEMPTIONS) == 0


def test_who_was_preempted_goes_on_from_what_is_left() -> None:
    requests = different(4, prompt=60, max_tokens=120)
    sizes = []
    for share in (0.0, 1.0):
        runner = make_runner(blocks=8)
        with MiniStar([runner], target=PLAIN | {"prefix_cache": share}) as star:
            answers = star.run(requests)
            assert texts(answers) == [alone(request) for request in requests]
            assert star.pods[0].metric(PREEMPTIONS) > 0
            assert [answer.stats.cached_tokens for answer in answers] == [0] * 4
        sizes.append(computed(runner))
    assert sizes[1] < sizes[0]


def test_prefixes_make_room_for_proposals() -> None:
    """All memory is full of them, and yet as much is accepted as without any."""
    request = different(1, prompt=60, max_tokens=100)
    accepted = []
    for share in (0.0, 1.0):
        with MiniStar(
            [make_runner(blocks=4, slots=2)],
            draft_runner(),
            target=PATIENT | {"prefix_cache": share},
        ) as star:
            (answer,) = star.run([make_request("full", [*[9] * 250], 6)])
            (answer,) = star.run(request)
            accepted.append((answer.tokens, answer.stats.accepted, answer.stats.fallbacks))
    assert accepted[0] == accepted[1]


def test_the_same_is_said_with_proposals() -> None:
    """Trees of what was accepted leave the right prefixes behind."""
    with MiniStar([make_runner()], draft_runner(), target=PATIENT) as star:
        asked = make_request("first", numbers(60), 40)
        for turn in range(3):
            answer = ask(star, asked)
            assert answer.tokens == alone(asked)
            assert answer.stats.accepted > 0
            assert (answer.stats.cached_tokens > 60) == (turn > 0)
            asked = msgspec.structs.replace(next_turn(asked, answer, f"{turn}"), max_tokens=40)


# -- hidden states -------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [16, 128])
def test_a_head_accepts_as_much_with_kept_prefixes(chunk: int) -> None:
    """Every state of every position is there, of the beginning taken over as of the one copied,
    and the hub gets to see as much of it as of a text that was computed at once."""
    first = make_head_request("first", numbers(90), 30)
    (told,) = plain_of_head([first])
    asked = [
        make_head_request("next", [*first.prompt, *told, *numbers(9)], 30),
        make_head_request("other", [*numbers(70), *[3] * 20], 30),
    ]
    results = []
    for share in (0.0, 1.0):
        target = {"prefix_cache": share, "prefill_chunk": chunk, "draft_context": 40}
        with HeadStar(make_head(wrong=0.3), runners=[make_target()], target=target) as star:
            star.run([first])
            answers = [star.run([one])[0] for one in asked]
            cached = [answer.stats.cached_tokens for answer in answers]
            assert cached == ([119, 70] if share else [0, 0])
            assert star.checked > 100
            results.append([(answer.tokens, answer.stats.accepted) for answer in answers])
            if share:
                windows = features(star.pods[0])._windows.values()
                assert all(window.begin == 0 for window in windows)
    assert results[0] == results[1]
    assert all(accepted > 10 for _, accepted in results[0])


def test_states_of_kept_prefixes_are_those_of_their_tokens() -> None:
    """After chats that took over, copied and were cut."""
    with HeadStar(make_head(), runners=[make_target(slots=3)]) as star:
        choose = random.Random(4)
        for turn in range(12):
            start = choose.choice([30, 64, 100])
            prompt = [*numbers(start), *choose.choices(range(256), k=30)]
            star.run([make_head_request(f"r{turn}", prompt, 20)])
        pod = star.pods[0]
        assert pod.metric(HITS) > 5
        for prefix in pod.loop._slots._prefixes._kept.values():
            window = features(pod)._windows[prefix.slot]
            assert (window.begin, window.end) == (0, len(prefix.tokens))
            states = [state_after(prefix.tokens[:end]) for end in range(1, window.end + 1)]
            want = np.stack([features_of(state) for state in states])
            np.testing.assert_array_equal(window.read(0, window.end), want)

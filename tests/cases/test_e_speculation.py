"""Speculation changes nothing (rows E of the cases): asked with it and without, through hubs."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starsd.protocol.messages import Proposal
from tests.cases.star import (
    CHAT,
    ECHO,
    HASH,
    Cases,
    chat_body,
    message_of,
    parsed,
    reasons_of,
    text_of,
)

SHORT = "a short text that ends where it should"
OFF = {"starsd": {"speculation": "off"}}
TRIES = 20
LOGPROBS = {"logprobs": True, "top_logprobs": 3}


def whole(cases: Cases, content: str, **fields: Any) -> tuple[list[Any], dict[str, Any]]:
    """Choices and usage; ``cached_tokens`` depend on who came before."""
    body = cases.chat(content, **{"model": HASH, "max_tokens": 30, **fields})
    usage = body["usage"]
    usage.pop("prompt_tokens_details")
    return body["choices"], usage


def with_and_without(cases: Cases, content: str, **fields: Any) -> list[Any]:
    """The choices, asked with speculation and without."""
    choices, usage = whole(cases, content, **fields)
    assert (choices, usage) == whole(cases, content, **fields, **OFF)
    return choices


def speculated(cases: Cases, content: str, **fields: Any) -> dict[str, int]:
    """What the star did for it; once more if the hub was too late for all of an answer, as it may
    be on a busy machine."""
    asked = {"model": HASH, "max_tokens": 30, **fields}
    for _ in range(TRIES):
        stats: dict[str, int] = cases.chat(content, **asked)["starsd"]
        if stats["accepted"]:
            break
    return stats


def test_e1_greedy_text_is_the_same_with_and_without(cases: Cases) -> None:
    for number in range(20):
        with_and_without(cases, f"question {number}")
    stats = speculated(cases, "question 1")
    assert 0 < stats["accepted"] < stats["proposed"]


def test_e5_nothing_comes_after_the_end(cases: Cases) -> None:
    """The hub proposes the end and three more, which the target would accept too."""
    assert speculated(cases, SHORT, model=ECHO)["accepted"] > 0
    assert message_of(cases.chat(SHORT)) == text_of(cases.frames(SHORT)) == SHORT


def test_e7_text_tokens_logprobs_and_usage_end_together(cases: Cases) -> None:
    """The stop completes at the third token of an accepted proposal."""
    asked = {"stop": ["3"], "starsd": {"speculation": 8}, **LOGPROBS}
    body = cases.chat("1 2 3 4 5 6 7", **asked)
    (choice,) = body["choices"]
    tokens = [token["token"] for token in choice["logprobs"]["content"]]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("1 2 ", "stop")
    assert "".join(tokens) == "1 2 3"
    assert body["usage"]["completion_tokens"] == len(tokens) == 5
    frames = cases.frames("1 2 3 4 5 6 7", stream_options={"include_usage": True}, **asked)
    assert streamed_logprobs(frames) == choice["logprobs"]["content"]
    assert frames[-1]["usage"]["completion_tokens"] == 5


def streamed_logprobs(frames: list[dict[str, Any]], index: int = 0) -> list[Any]:
    chosen = [c for frame in frames for c in frame["choices"] if c["index"] == index]
    return [token for c in chosen if c["logprobs"] for token in c["logprobs"]["content"]]


def test_e8_only_delivered_tokens_are_counted(cases: Cases) -> None:
    assert cases.chat(SHORT)["usage"]["completion_tokens"] == len(SHORT) + 1
    assert speculated(cases, SHORT, model=ECHO)["accepted"] <= len(SHORT) + 1


def test_e10_logprobs_are_the_targets_own(cases: Cases) -> None:
    (choice,) = with_and_without(cases, "how likely", temperature=0.9, seed=4, **LOGPROBS)
    content = choice["logprobs"]["content"]
    assert len(content) == 30
    assert all(token["logprob"] < 0 for token in content)
    for token in content:
        best = [top["logprob"] for top in token["top_logprobs"]]
        assert best == sorted(best, reverse=True)
        assert len(best) == 3
        assert token["logprob"] <= best[0]
    assert any(token["logprob"] < token["top_logprobs"][0]["logprob"] for token in content)
    assert speculated(cases, "how likely", temperature=0.9, seed=4, **LOGPROBS)["accepted"] > 0


def test_e11_asking_for_logprobs_keeps_speculation_on(cases: Cases) -> None:
    assert speculated(cases, "on", temperature=0.9, seed=4, **LOGPROBS)["accepted"] > 0


SAMPLING: list[dict[str, Any]] = [
    {"frequency_penalty": 1.5},
    {"presence_penalty": 1.5},
    {"repetition_penalty": 1.8},
    {"logit_bias": {"101": 6, "32": -100}},
    {"top_k": 3},
    {"top_p": 0.4},
    {"min_p": 0.3},
    {"temperature": 1.7},
    {"seed": 12},
    {"stop": ["Z", "N3w"]},
    {"stop_token_ids": list(range(40, 44))},
    {"max_tokens": 9},
    {"ignore_eos": True},
]


@pytest.mark.parametrize("field", SAMPLING, ids=lambda field: next(iter(field)))
def test_e13_each_field_is_honoured_and_speculation_goes_on(
    cases: Cases, field: dict[str, Any]
) -> None:
    common = {"temperature": 1.0, "seed": 11, "max_tokens": 60}
    choices = with_and_without(cases, "each field", **{**common, **field})
    assert choices != whole(cases, "each field", **common)[0] or "ignore_eos" in field
    assert speculated(cases, "each field", **{**common, **field})["rounds"] > 0


@pytest.mark.parametrize("speculation", ["off", 0])
def test_e13_speculation_can_be_declined_and_bounded(cases: Cases, speculation: Any) -> None:
    stats = cases.chat("plainly", model=HASH, starsd={"speculation": speculation})["starsd"]
    assert (stats["rounds"], stats["proposed"], stats["fallbacks"]) == (0, 0, 0)
    one = speculated(cases, "plainly", starsd={"speculation": 1})
    assert one["proposed"] == one["rounds"] > 0


@pytest.mark.parametrize("field", ["presence_penalty", "frequency_penalty"])
def test_e14_rejected_tokens_leave_no_mark_in_penalties(cases: Cases, field: str) -> None:
    stats = speculated(cases, "penalised", **{field: 2.0})
    assert stats["accepted"] < stats["proposed"]
    with_and_without(cases, "penalised", **{field: 2.0})


def test_e14_the_hub_mirrors_penalties_and_bias(cases: Cases) -> None:
    """Where it did not, what the target says would hardly ever be proposed."""
    asked = {"max_tokens": 100, "temperature": 0.9, "seed": 3}
    heavy = {"presence_penalty": 2.0, "repetition_penalty": 2.0, "logit_bias": {"7": 9, "8": 9}}

    def acceptance(**fields: Any) -> float:
        stats = speculated(cases, "mirrored", **asked, **fields)
        return stats["accepted"] / stats["proposed"]

    assert acceptance(**heavy) > 0.7 * acceptance()


def test_e15_the_seed_holds_with_speculation(cases: Cases) -> None:
    asked = {"temperature": 0.9, "seed": 5}
    assert whole(cases, "seeded", **asked) == whole(cases, "seeded", **asked)


def test_e18_no_probability_travels() -> None:
    """One rule accepts: equality with the target's own sample. Nothing else could be used."""
    assert not [
        name for name, kind in get_type_hints(Proposal).items() if float in [kind, *get_args(kind)]
    ]
    assert get_type_hints(Proposal)["tokens"] is bytes


def test_e26_each_round_brings_a_token(cases: Cases) -> None:
    """A hub that is often wrong, or that has nothing to say, costs no token."""
    for speculation in (1, 8, "auto"):
        body = cases.chat("x", model=HASH, max_tokens=40, starsd={"speculation": speculation})
        stats, tokens = body["starsd"], body["usage"]["completion_tokens"]
        assert tokens == 40
        assert stats["rounds"] + stats["accepted"] <= tokens


def test_statistics_are_in_body_and_headers(cases: Cases) -> None:
    response = cases.http.post(CHAT, json=chat_body("stats", model=HASH, max_tokens=20))
    stats = response.json()["starsd"]
    assert stats["target"] == HASH
    for name, value in stats.items():
        assert response.headers[f"X-Starsd-{name}"] == str(value)
    streamed = cases.http.post(CHAT, json=chat_body("stats", model=HASH, stream=True))
    assert streamed.headers["X-Starsd-Target"] == HASH
    assert [f["starsd"]["target"] for f in parsed(streamed) if "starsd" in f] == [HASH]


def test_origins_say_how_each_piece_came(cases: Cases) -> None:
    for _ in range(TRIES):
        frames = cases.frames(SHORT, starsd={"origins": True})
        texts = [frame for frame in frames if frame["choices"][0]["delta"].get("content")]
        pieces = [piece for frame in texts for piece in frame["starsd"]["pieces"]]
        if any(piece["origin"] == "accepted" for piece in pieces):
            break
    assert "".join(piece["text"] for piece in pieces) == SHORT
    origins = {piece["origin"] for piece in pieces}
    assert "accepted" in origins
    assert origins <= {"accepted", "recovered", "bonus", "plain"}


# -- any request ---------------------------------------------------------------------------------


def fields_of_requests() -> st.SearchStrategy[dict[str, Any]]:
    """Everything that shapes an answer; each may be absent."""
    number = st.floats(0.1, 1.9).map(lambda value: round(value, 2))
    return st.fixed_dictionaries(
        {"seed": st.integers(-(2**63), 2**63 - 1), "max_tokens": st.integers(1, 24)},
        optional={
            "temperature": st.sampled_from([0, 1e-6, 0.3, 1.0, 1.8]),
            "top_p": st.sampled_from([1e-9, 0.3, 0.9, 1.0]),
            "top_k": st.sampled_from([-1, 0, 1, 5, 200]),
            "min_p": st.sampled_from([0.0, 0.05, 0.5, 1.0]),
            "frequency_penalty": number,
            "presence_penalty": number,
            "repetition_penalty": number,
            "logit_bias": st.dictionaries(
                st.integers(0, 255).map(str), st.integers(-100, 100), max_size=5
            ),
            "stop": st.lists(st.sampled_from(["a", "\ufffd", "E2", "\x00"]), max_size=3),
            "stop_token_ids": st.lists(st.integers(0, 255), max_size=4),
            "n": st.integers(1, 3),
            "logprobs": st.booleans(),
        },
    )


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.text(max_size=12), fields=fields_of_requests())
def test_any_request_is_answered_the_same_with_and_without_streamed_and_whole(
    cases: Cases, content: str, fields: dict[str, Any]
) -> None:
    choices = with_and_without(cases, content, **fields)
    frames = cases.frames(content, model=HASH, **{"temperature": 1.0, **fields})
    plain, _ = whole(cases, content, **{"temperature": 1.0, **fields})
    for choice in plain:
        index = choice["index"]
        assert text_of(frames, index) == choice["message"]["content"]
        assert reasons_of(frames, index)[-1] == choice["finish_reason"]
        if choice["logprobs"]:
            assert streamed_logprobs(frames, index) == choice["logprobs"]["content"]
    assert len(choices) == fields.get("n", 1)

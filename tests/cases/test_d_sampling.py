"""Sampling and determinism (rows D of the cases)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.sampler import sample
from tests.cases.star import HASH, Cases, chat_body, error_of, message_of


@pytest.mark.parametrize("fields", [{"temperature": 1e-30}, {"temperature": 1e-4}, {"top_p": 1e-9}])
def test_d1_tiny_temperature_and_top_p_are_greedy(cases: Cases, fields: dict[str, float]) -> None:
    asked = {"model": HASH, "max_tokens": 20, "seed": 1}
    greedy = message_of(cases.chat("text", **asked))
    assert len(greedy) > 5
    assert message_of(cases.chat("text", **asked, **{"temperature": 1.0, **fields})) == greedy


def test_d1_top_p_0_is_refused(cases: Cases) -> None:
    assert error_of(cases.post(chat_body("x", top_p=0)))["param"] == "top_p"


def test_d3_neighbours_do_not_change_a_seeded_request(cases: Cases) -> None:
    asked = {"model": HASH, "max_tokens": 40, "seed": 5, "temperature": 0.8}
    alone = message_of(cases.chat("seeded", **asked))
    with ThreadPoolExecutor(8) as pool:
        others = [
            pool.submit(cases.chat, f"other {place}", model=HASH, max_tokens=40, temperature=0.8)
            for place in range(7)
        ]
        crowded = message_of(pool.submit(cases.chat, "seeded", **asked).result())
        assert len({message_of(other.result()) for other in others}) == 7
    assert crowded == alone


def test_d4_the_same_body_gives_the_same_text(cases: Cases) -> None:
    asked = {"model": HASH, "max_tokens": 40, "temperature": 0.8}
    first, again = (message_of(cases.chat("x", **asked, seed=5)) for _ in range(2))
    assert first == again
    assert message_of(cases.chat("x", **asked, seed=6)) != first
    unseeded = {message_of(cases.chat("x", **asked)) for _ in range(3)}
    assert len(unseeded) == 3


def test_d4_each_choice_has_a_seed_of_its_own_and_the_first_the_requests(cases: Cases) -> None:
    asked = {"model": HASH, "max_tokens": 20, "temperature": 0.8, "seed": 5}
    texts = [message_of(cases.chat("x", **asked, n=4), index) for index in range(4)]
    assert texts[0] == message_of(cases.chat("x", **asked))
    assert len(set(texts)) == 4
    assert [message_of(cases.chat("x", **asked, n=2), index) for index in range(2)] == texts[:2]


@pytest.mark.parametrize("temperature", [1e-4, 0.5, 2.0])
def test_d6_huge_logits_are_no_nan(temperature: float) -> None:
    logits = np.array([65504.0, 65503.0, -65504.0], dtype=np.float32)
    params = SamplingParams(seed=3, temperature=temperature)
    assert {sample(logits, params, position, ()) for position in range(50)} <= {0, 1}
    logits[1] = 3.0e38
    assert sample(logits, params, 1, ()) == 1

"""The text's own proposals change no text, whatever a hub does beside them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from starsd.engine.interface import Runner
from starsd.protocol.frames import Submit
from tests.identity.scripted_star import make_requests, plain_tokens, target_runner, tokens
from tests.identity.support import make_requests as tiny_requests
from tests.identity.test_adversaries import Twist, lost, silence, twisted
from tests.identity.test_matrix import STAR, outcomes, plain
from tests.identity.test_trees import TREES, grove
from tests.ministar import Answer, MiniStar
from tests.tiny import LAYERS_DRAFT

FEW = dict.fromkeys(range(10, 14), 20.0)
"""A bias to four tokens, so that n-grams come again, and go on as before or not."""


def repeating(requests: list[Submit]) -> list[Submit]:
    return [
        msgspec.structs.replace(one, sampling=msgspec.structs.replace(one.sampling, bias=FEW))
        for one in requests
    ]


def repeated(answers: list[Answer]) -> int:
    return sum(answer.stats.repeated for answer in answers)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_without_a_hub_the_text_is_plain_decoding(
    targets: list[Runner], temperature: float
) -> None:
    requests = repeating(tiny_requests(8, temperature))
    with MiniStar([targets[0]]) as star:
        answers = star.run(requests)
    assert outcomes(answers) == plain(targets[0], requests)
    assert repeated(answers) > 20
    assert sum(one.stats.proposed for one in answers) > repeated(answers) + 20


@pytest.mark.parametrize("draft", [{}, TREES], ids=["chains", "trees"])
def test_beside_a_hub_the_text_is_plain_decoding(
    targets: list[Runner], drafts: dict[str, Runner], draft: dict[str, Any]
) -> None:
    requests = repeating(tiny_requests(8, 0.8))
    with MiniStar(targets, drafts[LAYERS_DRAFT], target={**STAR, "ngram": 4}, draft=draft) as star:
        answers = star.run(requests)
    assert outcomes(answers) == plain(targets[0], requests)
    assert repeated(answers) > 10
    assert sum(one.stats.accepted for one in answers) > repeated(answers) + 10


@pytest.mark.parametrize("twist", [silence, lost], ids=lambda twist: twist.__name__)
def test_in_place_of_lost_proposals(twist: Twist) -> None:
    requests = repeating(make_requests())
    with MiniStar([target_runner()], target={"drafting": False}) as star:
        expected = tokens(star.run(requests))
    with grove(target={"probe_interval_s": 0.02}, bus_type=twisted(twist)) as star:
        answers = star.run(requests)
        local = sum(
            pod.metric("starsd:spec_decode_num_drafts_by_source_total", source="ngram")
            for pod in star.pods
        )
    assert tokens(answers) == expected
    assert local > 15


def test_ngrams_that_are_all_wrong_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "starsd.drafters.ngram.Ngrams.propose", lambda self, tokens, least=0: [least, 1, 2, 3]
    )
    requests = make_requests()
    with grove() as star:
        answers = star.run(requests)
    assert tokens(answers) == plain_tokens(requests)
    assert sum(one.stats.proposed for one in answers) > 300

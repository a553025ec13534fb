"""A hub that answers from what it foresaw: text is plain decoding's, and chains are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from services.draft.step import HubLoop
from starsd.engine.interface import Runner
from tests.headstar import HeadStar
from tests.headstar import make_requests as head_requests
from tests.headstar import plain as plain_heads
from tests.identity.support import make_requests
from tests.identity.test_matrix import STAR, TEMPERATURES, outcomes, plain
from tests.ministar import Answer, MiniStar
from tests.scripted_head import make_head
from tests.tiny import LAYERS_DRAFT

REQUESTS = 6


class Foreseeing:
    """A hub with a little idle time after each of its steps."""

    def __init__(self, hub: HubLoop, steps: int) -> None:
        self._hub, self._steps = hub, steps

    def step(self) -> bool:
        worked = self._hub.step()
        for _ in range(self._steps):
            self._hub.foresee()
        self._hub._flush()  # what is to be told leaves
        return worked


def ask(
    targets: list[Runner],
    draft: Runner,
    temperature: float,
    steps: int,
    target: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[list[Answer], bytes]:
    given = {**STAR, "ngram": 0, **(target or {})}
    with MiniStar(targets, draft, target=given, draft=settings) as star:
        star.hub = Foreseeing(star.real_hub, steps)
        answers = star.run(make_requests(REQUESTS, temperature))
        return answers, star.hub_stats.exposition()


def hits(exposition: bytes, result: str = "hit") -> float:
    name = f'starsd:hub_run_ahead_jobs_total{{result="{result}"}}'.encode()
    found = [line for line in exposition.splitlines() if line.startswith(name)]
    return float(found[0].split()[-1]) if found else 0.0


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_chains_that_were_foreseen_are_those_that_are_drafted(
    targets: list[Runner], drafts: dict[str, Runner], temperature: float, steps: int
) -> None:
    """So every round accepts what it would have."""
    without, _ = ask(targets, drafts[LAYERS_DRAFT], temperature, 0)
    answers, seen = ask(targets, drafts[LAYERS_DRAFT], temperature, steps, run_ahead="on")
    assert outcomes(answers) == outcomes(without)
    assert outcomes(answers) == plain(targets[0], make_requests(REQUESTS, temperature))
    assert [one.stats for one in answers] == [one.stats for one in without]
    assert hits(seen) > 0


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_trees_that_were_foreseen_leave_the_text_alone(
    targets: list[Runner], drafts: dict[str, Runner], temperature: float
) -> None:
    settings: dict[str, Any] = {"trees": "on", "run_ahead": "on"}
    answers, seen = ask(targets, drafts[LAYERS_DRAFT], temperature, 4, **settings)
    assert outcomes(answers) == plain(targets[0], make_requests(REQUESTS, temperature))
    assert hits(seen) > 0


@pytest.mark.parametrize("trees", ["on", "off"])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_what_a_target_was_told_leaves_the_text_alone(
    targets: list[Runner], drafts: dict[str, Runner], temperature: float, trees: str
) -> None:
    told = {"run_ahead": "on"}
    answers, seen = ask(targets, drafts[LAYERS_DRAFT], temperature, 8, told, trees=trees)
    assert outcomes(answers) == plain(targets[0], make_requests(REQUESTS, temperature))
    assert hits(seen, "taken") > 20
    assert sum(one.stats.accepted for one in answers) > 20


@pytest.mark.parametrize("wrong", [0.0, 0.4])
@pytest.mark.parametrize("run_ahead", ["off", "on"])
@pytest.mark.parametrize("nodes", [0, 15])
def test_a_head_that_foresaw_is_fed_rightly_all_the_same(
    nodes: int, run_ahead: str, wrong: float
) -> None:
    """Also where it was often wrong: true states come with each job and are read in time, whether
    it asks for anything or not."""
    requests, head = head_requests(), make_head(wrong=wrong)
    with HeadStar(
        head,
        targets=2,
        target={"draft_nodes": nodes, "run_ahead": run_ahead},
        draft={"run_ahead": "on"},
    ) as star:
        star.hub = Foreseeing(star.real_hub, 40)
        answers = star.run(requests)
        seen = star.hub_stats.exposition()
    assert [one.tokens for one in answers] == plain_heads(requests)
    assert hits(seen, "hit" if run_ahead == "off" else "taken") > 0
    assert head.torn == 0

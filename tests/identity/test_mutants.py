"""The identity tests can fail: each of these defects must show in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from services.target import verifying
from starsd.drafters import lm
from starsd.engine.interface import Logits, Row, Runner
from starsd.sampling.compiled import Ranked
from starsd.sampling.ranking import rank_all
from starsd.sampling.verification import verify
from tests.identity.scripted_star import (
    PATIENT,
    draft_runner,
    make_requests,
    make_star,
    plain_tokens,
    target_runner,
    tokens,
)
from tests.ministar import MiniStar


def test_without_a_defect_the_text_is_plain() -> None:
    requests = make_requests()
    with make_star() as star:
        answers = star.run(requests)
    assert tokens(answers) == plain_tokens(requests)
    assert sum(answer.stats.accepted for answer in answers) > 50
    assert sum(answer.stats.proposed - answer.stats.accepted for answer in answers) > 50


def test_one_token_too_many_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def accepting_one_more(
        logits: Logits, proposal: list[int], *rest: Any, **more: Any
    ) -> list[int]:
        sampled = verify(logits, proposal, *rest, **more)
        rejected = len(sampled) - 1
        return sampled[:-1] + proposal[rejected : rejected + 1] if proposal else sampled

    requests = make_requests()
    expected = plain_tokens(requests)
    monkeypatch.setattr(verifying, "verify", accepting_one_more)
    with make_star() as star:
        assert [answer.tokens for answer in star.run(requests)] != expected


def test_noise_off_by_one_position(monkeypatch: pytest.MonkeyPatch) -> None:
    def displaced(
        logits: Logits, proposal: list[int], params: Any, position: int, *rest: Any, **more: Any
    ) -> list[int]:
        return verify(logits, proposal, params, position + bool(proposal), *rest, **more)

    requests = make_requests()
    expected = plain_tokens(requests)
    monkeypatch.setattr(verifying, "verify", displaced)
    with make_star() as star:
        assert [answer.tokens for answer in star.run(requests)] != expected


def test_draft_noise_off_by_one_position_costs_acceptance_and_no_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Invariant 1 the other way round: a drafter's defect never shows in the text."""
    requests = make_requests(temperature=1.0)
    with make_star() as star:
        good = star.run(requests)

    def displaced(logits: Logits, params: Any, text: list[int], *rest: Any) -> list[Ranked]:
        return rank_all(logits, params, [*text, 0], *rest)

    monkeypatch.setattr(lm, "rank_all", displaced)
    with make_star() as star:
        bad = star.run(requests)
    assert tokens(bad) == tokens(good)
    sampled = slice(1, None, 2)
    good_sum, bad_sum = (
        sum(answer.stats.accepted for answer in answers[sampled]) for answers in (good, bad)
    )
    assert bad_sum < good_sum / 3


class NeverRollsBack:
    """A runner whose slots only ever grow: rejected tokens stay in the context."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._length = [0] * runner.slots
        self.vocab_size = runner.vocab_size
        self.max_length = runner.max_length
        self.slots = runner.slots
        self.kv_blocks = runner.kv_blocks
        self.state = runner.state
        self.fingerprint = runner.fingerprint
        self.revision = runner.revision
        self.parts = runner.parts
        self.tap, self.features = runner.tap, runner.features

    def forward(self, rows: Sequence[Row]) -> list[Logits]:
        grown = []
        for row in rows:
            start = max(row.start, self._length[row.slot] if row.start else 0)
            self._length[row.slot] = start + len(row.tokens)
            grown.append(Row(row.slot, row.tokens, start, row.want))
        return self._runner.forward(grown)

    def release(self, slot: int, length: int = 0) -> None:
        self._length[slot] = length
        self._runner.release(slot, length)

    def copy(self, source: int, slot: int, length: int) -> None:
        self._length[slot] = length
        self._runner.copy(source, slot, length)

    def compact(self, slot: int, start: int, path: Sequence[int]) -> None:
        self._runner.compact(slot, start, path)


def test_no_rollback() -> None:
    requests = make_requests(4, max_tokens=12)
    expected = plain_tokens(requests)
    with MiniStar([NeverRollsBack(target_runner())], draft_runner(), target=PATIENT) as star:
        assert [answer.tokens for answer in star.run(requests)] != expected

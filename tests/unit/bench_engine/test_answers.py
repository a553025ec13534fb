"""Answers on a scripted model: the same however they were made."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from starsd.bench.engine import answers as module
from starsd.bench.engine.answers import Answer, Answers, Job
from starsd.engine.interface import Runner
from starsd.sampling.sampler import sample
from starsd.settings.target import TargetSettings
from tests.scripted import ByteTokenizer, HashModel, ScriptModel

FOREVER = math.inf


@pytest.fixture(autouse=True)
def short_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte is a token here."""
    monkeypatch.setattr(module, "LENGTH", 700)
    monkeypatch.setattr(module, "MOST_TOKENS", 10)


def runner_of(slots: int = 4) -> Runner:
    return HashModel(TargetSettings(max_sequences=slots, max_length=720)).runner()


def generate(file: Path, tokens: int, slots: int = 4, deadline: float = FOREVER) -> list[Answer]:
    return Answers(file).generate(runner_of(slots), ByteTokenizer(), tokens, deadline)


def test_an_answer_is_the_models_own(tmp_path: Path) -> None:
    """tokens."""
    found = generate(tmp_path / "a", 100)
    assert sum(len(answer.tokens) for answer in found) == 100
    model = HashModel(TargetSettings())
    for answer in found:
        text = list(answer.ids)
        for token in answer.tokens:
            own = sample(model.logits(text), answer.job.sampling, len(text), text)
            assert token == own
            text.append(token)


def test_greedy_and_sampled_take_turns(tmp_path: Path) -> None:
    jobs = [answer.job for answer in generate(tmp_path / "a", 80)]
    by_temperature = [sum(job.temperature == t for job in jobs) for t in (0.0, 0.7)]
    assert by_temperature == [4, 4]
    assert len({job.prompt for job in jobs}) == 4


def test_more_answers_than_prompts_are_sampled_with_other_seeds() -> None:
    jobs = [job for job, _ in itertools.islice(module._jobs(ByteTokenizer()), 250)]
    assert len(set(jobs)) == 250
    assert {job.temperature for job in jobs if job.seed} == {0.7}


def test_the_batch_changes_nothing(tmp_path: Path) -> None:
    wide, narrow = (generate(tmp_path / str(slots), 60, slots) for slots in (6, 1))
    texts = [{answer.job: answer.tokens for answer in one} for one in (wide, narrow)]
    assert texts[0] == texts[1]


def test_what_was_kept_is_not_made_again(tmp_path: Path) -> None:
    file = tmp_path / "a"
    first = generate(file, 40)
    assert len(file.read_text().splitlines()) == 4
    more = generate(file, 60)
    assert more[:4] == first
    assert sum(len(answer.tokens) for answer in more) == 60
    assert generate(file, 60, deadline=0.0) == more
    assert len({answer.job for answer in more}) == len(more) == 6


def test_the_deadline_ends_it(tmp_path: Path) -> None:
    assert generate(tmp_path / "a", 100, deadline=time.monotonic() - 1) == []


def test_what_the_deadline_breaks_off_counts_but_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    found = generate(tmp_path / "a", 100, deadline=13.0)
    assert [len(answer.tokens) for answer in found] == [10, 10, 10, 10, 3, 3, 3, 3]
    assert len((tmp_path / "a").read_text().splitlines()) == 4


def test_an_answer_ends_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_TEXT", "Hi")
    runner = ScriptModel(TargetSettings(max_sequences=2, max_length=720)).runner()
    found = Answers(tmp_path / "a").generate(runner, ByteTokenizer(), 9, FOREVER)
    assert [answer.tokens for answer in found] == [[72, 105, 256]] * 3


def test_no_answer_outgrows_its_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LENGTH", 100)
    found = generate(tmp_path / "a", 50)
    assert found
    assert max(len(answer.ids) for answer in found) <= 90


def test_a_job_is_found_by_its_value() -> None:
    assert {Job("a", 1, 0.7): 1}[Job("a", 1, 0.7)] == 1

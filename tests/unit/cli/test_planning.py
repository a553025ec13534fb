"""``starsd plan``: what was measured, what is typed in, and what follows."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from starsd.cli import main, planning
from starsd.plan.acceptance import Acceptance, constant
from starsd.plan.answers import Answer, Question, answer
from starsd.plan.costs import Costs, straight
from starsd.plan.star import Mode

MEASURED = Costs(straight(0.003, 0.2), straight(0.002, 0.2), straight(0.030, 0.02), 0.004, 0.0005)
ACCEPTANCE = Acceptance((0.7, 0.5), 0.4)
Asked = tuple[Question, Costs, Acceptance]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "costs.json"
    whole = {"kind": "calibrate", "costs": asdict(MEASURED), "acceptance": asdict(ACCEPTANCE)}
    path.write_text(json.dumps(whole))
    return str(path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    seen: list[Asked] = []

    def remember(question: Question, costs: Costs, acceptance: Acceptance) -> Answer:
        seen.append((question, costs, acceptance))
        return answer(Question(Mode.FIFO, (1,), 1), costs, acceptance)

    monkeypatch.setattr(planning, "answer", remember)
    return seen


def run(*options: str) -> Result:
    return CliRunner().invoke(main.app, ["plan", *options])


def test_defaults(asked: list[Asked]) -> None:
    assert run().exit_code == 0
    ((question, costs, acceptance),) = asked
    assert question == Question(Mode.BATCHED, (1, 2, 3, 4, 5, 6, 8), most=32)
    assert (costs.draft_next(1), costs.verify(1), costs.network_s) == (0.002, 0.02, 0.001)
    assert acceptance == constant(0.6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--mode", "runahead"), Question(Mode.RUN_AHEAD, (5,), 8)),
        (("--depths", "2,4"), Question(Mode.BATCHED, (2, 4), 8)),
        (("--targets", "3"), Question(Mode.BATCHED, (5,), 3)),
        (("--sequences", "4"), Question(Mode.BATCHED, (5,), 8, sequences=4)),
        (("--hubs", "2"), Question(Mode.BATCHED, (5,), 8, hubs=2)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_questions(asked: list[Asked], options: tuple[str, ...], expected: Question) -> None:
    """mode, depths, targets, sequences, hubs."""
    assert run("--depths", "5", "--targets", "8", *options).exit_code == 0
    assert asked[0][0] == expected


def test_costs_are_those_of_the_file(asked: list[Asked], file: str) -> None:
    assert run("--costs", file).exit_code == 0
    assert asked[0][1:] == (MEASURED, ACCEPTANCE)


@pytest.mark.parametrize(
    ("options", "look", "expected"),
    [
        (("--draft-ms", "5"), lambda costs: costs.draft_first(2), 0.005 * 1.05),
        (("--draft-ms", "5", "--draft-growth", "1"), lambda costs: costs.draft_next(2), 0.010),
        (("--verify-ms", "70"), lambda costs: costs.verify(2), 0.0707),
        (("--verify-ms", "70", "--verify-growth", "0"), lambda costs: costs.verify(9), 0.070),
        (("--round-trip-ms", "9"), lambda costs: costs.network_s, 0.009),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_typed_in_goes_before_what_was_measured(
    asked: list[Asked], file: str, options: tuple[str, ...], look: Any, expected: float
) -> None:
    """draft-ms, draft-growth, verify-ms, verify-growth, round-trip-ms."""
    assert run("--costs", file, *options).exit_code == 0
    costs = asked[0][1]
    assert look(costs) == pytest.approx(expected)
    assert costs.hub_job_s == MEASURED.hub_job_s


def test_acceptance(asked: list[Asked], file: str) -> None:
    assert run("--costs", file, "--acceptance", "0.3").exit_code == 0
    assert asked[0][2] == constant(0.3)


@pytest.mark.parametrize(
    "options",
    [("--mode", "plain"), ("--depths", "0"), ("--costs", "absent.json"), ("--acceptance", "1.5")],
)
def test_bad_options(asked: list[Asked], options: tuple[str, ...]) -> None:
    assert (run(*options).exit_code, asked) == (2, [])


def test_a_file_of_something_else(asked: list[Asked], tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    path.write_text('{"kind": "speed"}')
    done = run("--costs", str(path))
    assert (done.exit_code, asked) == (2, [])
    assert "not written by starsd bench calibrate" in done.stderr


def test_json_is_the_last_line_and_the_only_one_on_stdout() -> None:
    (line,) = run("--targets", "4", "--depths", "3", "--json").stdout.splitlines()
    found = json.loads(line)
    assert [one["targets"] for one in found["lines"]] == [1, 2, 3, 4]
    assert found["carries"] == 4


def test_plot(tmp_path: Path) -> None:
    path = tmp_path / "plan.png"
    assert run("--targets", "2", "--depths", "3", "--plot", str(path)).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert run("--plot", str(tmp_path / "absent" / "plan.png")).exit_code == 2

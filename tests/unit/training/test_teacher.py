"""What the target makes of a text, computed once and kept for later passes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor

import training.precision
from training.kept import Kept
from training.precision import training_dtype
from training.teacher import Teacher

TEXT = torch.arange(5)
ROWS = torch.arange(30).view(5, 6).bfloat16()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    with closing(Kept(tmp_path, 1e6)) as kept:
        yield kept


def batch() -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(3)
    return torch.randint(300, (3, 12), generator=chance), torch.tensor([12, 7, 9])


@pytest.mark.parametrize("taps", [None, (0, 1)])
def test_a_lesson_is_what_transformers_computes(
    tiny_model: Path, taps: tuple[int, ...] | None
) -> None:
    teacher = Teacher(tiny_model, "cpu", taps)
    tokens, lengths = batch()
    lesson = teacher.lesson(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        with torch.no_grad():
            out = teacher.model(tokens[row : row + 1, :length], output_hidden_states=True)
        wanted = torch.cat([out.hidden_states[tap] for tap in teacher.taps], dim=-1)[0]
        torch.testing.assert_close(lesson.features[row, :length], wanted, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(
            lesson.states[row, :length], out.hidden_states[-1][0], rtol=2e-2, atol=2e-2
        )
        assert torch.equal(lesson.favourites[row, :length], out.logits[0].argmax(-1))
        assert not lesson.features[row, length:].any()


def test_what_is_kept_is_not_computed_again(
    tiny_model: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = Teacher(tiny_model, "cpu")
    teacher.kept = kept
    tokens, lengths = batch()
    first = teacher.lesson(tokens, lengths)
    other = torch.cat([tokens[:2], tokens[:1] + 1])  # two known texts and a new one
    mixed = teacher.lesson(other, lengths[[0, 1, 0]])
    torch.testing.assert_close(mixed.states[:2], first.states[:2], rtol=0, atol=0)
    assert mixed.states[2].any()
    monkeypatch.setattr(teacher, "_computed", lambda _: pytest.fail("computed"))
    again = teacher.lesson(tokens.flip(0), lengths.flip(0))
    for one, same in zip(vars(first).values(), vars(again).values(), strict=True):
        assert torch.equal(one, same.flip(0))


def test_rows_are_known_by_their_text(kept: Kept) -> None:
    kept.put(TEXT, ROWS)
    kept.put(TEXT[:3], ROWS[2:])
    assert torch.equal(kept.get(TEXT, 6), ROWS)  # type: ignore[arg-type]
    assert torch.equal(kept.get(TEXT[:3], 6), ROWS[2:])  # type: ignore[arg-type]
    assert kept.get(TEXT[1:], 6) is None


def test_no_more_than_its_limit_is_kept(tmp_path: Path) -> None:
    with closing(Kept(tmp_path, 100)) as kept:
        kept.put(TEXT, ROWS)  # 60 bytes
        kept.put(TEXT + 1, ROWS)
        kept.put(TEXT[:3], ROWS[:3])  # 36 bytes
        assert kept.get(TEXT + 1, 6) is None
        assert kept.get(TEXT[:3], 6) is not None


def test_a_full_disk_ends_keeping_and_nothing_else(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.put(TEXT, ROWS)
    with monkeypatch.context() as patch:
        patch.setattr("training.kept.os.pwrite", _full)
        kept.put(TEXT + 1, ROWS)
    kept.put(TEXT + 2, ROWS)
    assert kept.get(TEXT + 1, 6) is None
    assert kept.get(TEXT + 2, 6) is None
    assert torch.equal(kept.get(TEXT, 6), ROWS)  # type: ignore[arg-type]


def _full(*_: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("narrow_s", "wanted"), [(1.0, torch.bfloat16), (3.0, torch.float32)])
def test_the_faster_precision_is_trained_in(
    narrow_s: float, wanted: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are timed in turn; once one of them was held up."""
    monkeypatch.setattr(training.precision, "has_bfloat16", lambda _: True)
    took_s = itertools.chain([9.0, 9.0], itertools.cycle([narrow_s, 2.0]))
    times = itertools.accumulate(itertools.chain.from_iterable((0.0, one) for one in took_s))
    assert training_dtype(torch.device("cpu"), times.__next__) is wanted


def test_other_devices_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed() -> float:
        pytest.fail("timed")

    assert training_dtype(torch.device("cuda"), timed) is torch.bfloat16
    monkeypatch.setattr(training.precision, "has_bfloat16", lambda _: False)
    assert training_dtype(torch.device("cpu"), timed) is torch.float32

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from starsd.bench.scale.gaps import Gap, Gaps
from starsd.bench.scale.store import Store
from starsd.errors import ConfigError
from tests.unit.bench_scale.support import SETUP, measured

GAPS = Gaps([Gap(1.0, 2.0, 0.5, 3.0)])


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    store, made = Store(tmp_path / "run", SETUP), list[int]()

    def make() -> Gaps:
        made.append(1)
        return GAPS

    assert store.once("gaps", Gaps, make) == GAPS
    assert Store(tmp_path / "run", SETUP).once("gaps", Gaps, make) == GAPS
    assert made == [1]


def test_points_come_back_as_they_went(tmp_path: Path) -> None:
    store, one = Store(tmp_path, SETUP), measured(sequences=(1, 16), note="flood")
    store.save(one.point.key, one)
    assert one.point.key == "flood-batched-2x16-depth5"
    assert store.has(one.point.key)
    assert store.load(one.point.key, type(one)) == one
    assert [file.suffix for file in tmp_path.iterdir()] == [".json", ".json"]


def test_another_setup_wants_another_folder(tmp_path: Path) -> None:
    """--out may be that of a run that was broken off."""
    Store(tmp_path, SETUP)
    Store(tmp_path, SETUP)
    with pytest.raises(ConfigError, match="a run of other options"):
        Store(tmp_path, replace(SETUP, full_at=5))


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        Store(tmp_path / "file" / "run", SETUP)


def test_a_broken_point(tmp_path: Path) -> None:
    store = Store(tmp_path, SETUP)
    store.path("gaps").write_text("{")
    with pytest.raises(ConfigError, match=r"gaps\.json"):
        store.load("gaps", Gaps)

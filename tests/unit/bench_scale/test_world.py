from __future__ import annotations

from pathlib import Path

import pytest

from starsd.bench.scale.world import read, write
from starsd.errors import ConfigError
from tests.unit.bench_scale.support import make_world


def test_written_and_read(tmp_path: Path) -> None:
    write(make_world(), tmp_path / "world")
    assert read(tmp_path / "world") == make_world()


@pytest.mark.parametrize("content", [None, "{}", "[1"])
def test_no_world(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "world").write_text(content)
    with pytest.raises(ConfigError, match="no recorded world"):
        read(tmp_path / "world")


def test_a_text_is_found_by_how_it_begins() -> None:
    world = make_world()
    text = world.texts[3]
    assert world.find(list(text.prompt)) is text
    assert world.find(text.tokens[:9]) is text
    assert world.find([1, 999]) is None
    assert world.longest == 43

"""Drafts that come with us."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from starsd.engine.checkpoint import BUNDLED
from starsd.engine.drafts import SHIPPED, choose_draft
from starsd.engine.eagle.checkpoint import is_head
from starsd.errors import ConfigError

LARGEST = 48_000_000


def test_auto_is_the_draft_shipped_for_the_model() -> None:
    assert choose_draft("auto", BUNDLED) == str(SHIPPED[BUNDLED])
    with pytest.raises(ConfigError, match=r"none is shipped for '/models/other'.*train-draft"):
        choose_draft("auto", "/models/other")
    assert choose_draft("self", "/models/other") == "self"
    assert choose_draft("layers:3", BUNDLED) == "layers:3"


@pytest.mark.parametrize(("model", "folder"), SHIPPED.items(), ids=list(SHIPPED))
def test_weights_are_there_with_their_card(model: str, folder: Path) -> None:
    assert is_head(folder)
    card = (folder / "README.md").read_text()
    for told in (model, "apache-2.0", "acceptance", "tokens of dialogues"):
        assert told in card
    assert json.loads((folder / "config.json").read_text())["starsd"]["target"] == model
    assert sum(path.stat().st_size for path in folder.iterdir()) < LARGEST

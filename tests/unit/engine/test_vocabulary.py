from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from starsd.engine.vocabulary import vocabulary_fingerprint
from starsd.errors import ConfigError


def test_fingerprint(tiny_model: Path, tmp_path: Path) -> None:
    own = vocabulary_fingerprint(tiny_model)
    assert len(own) == 16
    folder = shutil.copytree(tiny_model, tmp_path / "copy")
    file = folder / "tokenizer.json"
    state = json.loads(file.read_text())
    file.write_text(json.dumps(state, sort_keys=True, indent=7))
    assert vocabulary_fingerprint(folder) == own
    a, b = list(state["model"]["vocab"])[50:52]
    vocab = state["model"]["vocab"]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    file.write_text(json.dumps(state))
    assert vocabulary_fingerprint(folder) != own


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        vocabulary_fingerprint(tmp_path)

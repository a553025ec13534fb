"""Which runner a head gets, and where its checkpoint comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest

from starsd.engine.eagle.loading import head_folder, load_head
from starsd.engine.eagle.native_head import NativeHead
from starsd.engine.eagle.torch_head import TorchHead
from starsd.engine.interface import HeadRow
from starsd.engine.native import loading as native_loading
from starsd.engine.native import store
from starsd.engine.native.packing import pack_model
from starsd.errors import ConfigError
from starsd.settings.draft import DraftSettings
from tests.unit.engine.eagle.heads import EAGLE1, EAGLE3, eagle1, eagle3, random_states, write
from tests.unit.engine.helpers import draft_settings


@pytest.fixture
def settings(tiny_model: Path, native_cache: Path) -> Any:
    def settings(draft: object, **changes: Any) -> DraftSettings:
        return draft_settings(tiny_model, draft=str(draft), cache_dir=native_cache, **changes)

    return settings


def test_the_setting_names_a_head_or_a_language_model(
    settings: Any, tmp_path: Path, tiny_model: Path
) -> None:
    folder = write(tmp_path / "head", eagle3(), EAGLE3)
    assert head_folder(settings(folder)) == folder
    for draft in ("self", "layers:2", tiny_model):
        assert head_folder(settings(draft)) is None
    with pytest.raises(ConfigError, match="no such folder"):
        head_folder(settings(tmp_path / "nowhere"))
    pickled = write(tmp_path / "pickled", eagle1(), EAGLE1, pickled=True)
    assert head_folder(settings(pickled)) == pickled


def test_a_hub_name(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked = write(tmp_path, eagle1(), EAGLE1, pickled=True), []

    def download(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        asked.append((name, revision, allow_patterns[-1]))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert head_folder(settings("org/head", draft_revision="v2")) == folder
    assert asked == [("org/head", "v2", "*.safetensors"), ("org/head", "v2", "*.bin")]


@pytest.mark.parametrize(
    ("changes", "bits"),
    [
        ({"dtype": "bfloat16"}, 16),
        ({"dtype": "auto"}, 8),
        ({"dtype": "auto", "quantize": "int8"}, 8),
        ({"dtype": "auto", "quantize": "int4"}, 4),
        ({"dtype": "bfloat16", "compiled": False}, None),
        ({"dtype": "float32"}, None),
    ],
)
def test_compiled_where_a_model_would_be_and_in_8_bits_unless_told_otherwise(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: Any, bits: int | None
) -> None:
    monkeypatch.setattr(native_loading, "arithmetic", lambda _: "amx")
    folder = write(tmp_path, eagle3(), EAGLE3)
    head = load_head(settings(folder, **changes), folder)
    assert isinstance(head, NativeHead if bits else TorchHead)
    assert not isinstance(head, NativeHead) or head._decoder._weights.bits == bits


def test_torch_where_vectors_are_narrow(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_loading, "arithmetic", lambda _: "portable")
    folder = write(tmp_path, eagle3(), EAGLE3)
    assert isinstance(load_head(settings(folder, dtype="auto"), folder), TorchHead)
    assert isinstance(load_head(settings(folder, dtype="bfloat16"), folder), NativeHead)


def test_what_compiled_code_does_not_know(settings: Any, tmp_path: Path) -> None:
    first = write(tmp_path / "1", eagle1(), EAGLE1)
    assert isinstance(load_head(settings(first, dtype="bfloat16"), first), TorchHead)
    with pytest.raises(ConfigError, match="no EAGLE-1 head"):
        load_head(settings(first, dtype="auto", quantize="int8"), first)


def test_packed_once(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs = []

    def pack(*args: Any) -> None:
        packs.append(args)
        pack_model(*args)

    monkeypatch.setattr(store, "pack_model", pack)
    folder = write(tmp_path, eagle3(seed=9), EAGLE3)
    for _ in range(2):
        load_head(settings(folder, dtype="bfloat16"), folder)
    write(tmp_path, eagle3(seed=10), EAGLE3)
    load_head(settings(folder, dtype="bfloat16"), folder)
    assert len(packs) == 2
    other = write(tmp_path / "other", eagle3(seed=11), EAGLE3)
    for one in (other, folder, other):
        load_head(settings(one, dtype="bfloat16"), one)
    assert len(packs) == 3


def test_positions(settings: Any, tmp_path: Path) -> None:
    """The target's context counts, not what the head's config says of its own."""
    folder = write(tmp_path, eagle3(), {**EAGLE3, "max_position_embeddings": 32})
    for asked, found in ((100, 100), (4096, 512)):
        assert load_head(settings(folder, max_length=asked), folder).max_length == found


def test_a_device_that_is_not_there(settings: Any, tmp_path: Path) -> None:
    folder = write(tmp_path, eagle3(), EAGLE3)
    with pytest.raises(ConfigError, match="STARSD_DEVICE='cuda:77'"):
        load_head(settings(folder, device="cuda:77"), folder)


def test_bfloat16_by_torch(settings: Any, tmp_path: Path) -> None:
    folder = write(tmp_path, eagle3(), EAGLE3)
    exact, brief = (
        load_head(settings(folder, dtype=dtype, compiled=False), folder)
        for dtype in ("float32", "bfloat16")
    )
    row = HeadRow(0, [1, 2, 3], random_states(3, 1), 0, want=3)
    one, other = exact.forward([row])[0], brief.forward([row])[0]
    assert 0 < np.abs(one.logits - other.logits).max() < 0.3

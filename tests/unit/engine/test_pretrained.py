"""What the model settings do to the loaded model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from starsd.engine import pretrained
from starsd.engine.interface import Row
from starsd.errors import ConfigError
from tests.unit.engine.helpers import make_runner, random_tokens


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[torch.nn.Module]:
    """Models that runners would be made of; none is, since it would compute at once."""
    models: list[torch.nn.Module] = []

    def record(model: torch.nn.Module, **_: object) -> SimpleNamespace:
        models.append(model)
        return SimpleNamespace(slots=0, cache_bytes=0)

    monkeypatch.setattr(pretrained, "TorchRunner", record)
    return models


def parameter(folder: Path, loaded: list[torch.nn.Module], **changes: Any) -> torch.Tensor:
    make_runner(folder, **changes)
    return next(loaded[-1].parameters())


def test_device(tiny_model: Path, loaded: list[torch.nn.Module]) -> None:
    assert parameter(tiny_model, loaded).device.type == "cpu"
    assert parameter(tiny_model, loaded, device="meta").device.type == "meta"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype(tiny_model: Path, loaded: list[torch.nn.Module], dtype: str) -> None:
    assert parameter(tiny_model, loaded, dtype=dtype).dtype is getattr(torch, dtype)


DEVICES = ["nonsense", *([] if torch.cuda.is_available() else ["cuda"])]


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_that_is_not_there_is_named(tiny_model: Path, device: str) -> None:
    with pytest.raises(ConfigError, match=f"STARSD_DEVICE='{device}'"):
        make_runner(tiny_model, device=device)


@pytest.fixture
def threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads_restored")
@pytest.mark.parametrize("count", [1, 2])
def test_threads(tiny_model: Path, count: int) -> None:
    make_runner(tiny_model, threads=count)
    assert torch.get_num_threads() == count


def test_batch_invariant(tiny_model: Path) -> None:
    """A row of many tokens and the same ones singly: bit for bit in one mode only."""
    text = random_tokens(40, 3)
    same = []
    for invariant in (True, False):
        runner = make_runner(tiny_model, batch_invariant=invariant)
        (whole,) = runner.forward([Row(0, text, 0, want=40)])
        whole = whole.copy()
        singly = [runner.forward([Row(1, [one], at)])[0].copy() for at, one in enumerate(text)]
        same.append(bool(np.array_equal(whole, np.concatenate(singly))))
        np.testing.assert_allclose(whole, np.concatenate(singly), atol=1e-3)
    assert same == [True, False]

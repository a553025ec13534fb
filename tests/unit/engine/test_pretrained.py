"""What the model settings do to the loaded model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from starsd.engine import pretrained
from starsd.engine.decoder import Decoder
from starsd.engine.interface import Row
from starsd.engine.native import loading
from starsd.engine.native.runner import NativeRunner
from starsd.errors import ConfigError, UnsupportedModelError
from tests.unit.engine.helpers import make_runner, random_tokens
from tests.unit.engine.test_runner import SIZES


@pytest.fixture
def embeddings(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Of models that runners would be made of; none is, since it would compute at once."""
    found: list[torch.Tensor] = []

    def record(forward: Decoder, **_: object) -> SimpleNamespace:
        found.append(forward._embedding)
        return SimpleNamespace(slots=0, max_length=0, cache_bytes=0, revision="r")

    monkeypatch.setattr(pretrained, "TorchRunner", record)
    return found


def embedding(folder: Path, embeddings: list[torch.Tensor], **changes: Any) -> torch.Tensor:
    make_runner(folder, compiled=False, **changes)
    return embeddings[-1]


def test_device(tiny_model: Path, embeddings: list[torch.Tensor]) -> None:
    assert embedding(tiny_model, embeddings).device.type == "cpu"
    assert embedding(tiny_model, embeddings, device="meta").device.type == "meta"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_dtype(tiny_model: Path, embeddings: list[torch.Tensor], dtype: str) -> None:
    assert embedding(tiny_model, embeddings, dtype=dtype).dtype is getattr(torch, dtype)


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


def compiled(folder: Path, cache_dir: Path, **changes: Any) -> bool:
    return isinstance(make_runner(folder, cache_dir=cache_dir, **changes), NativeRunner)


def test_compiled(tiny_model: Path, native_cache: Path) -> None:
    """What is bfloat16 and on a CPU, unless told otherwise."""
    assert compiled(tiny_model, native_cache, dtype="bfloat16")
    assert not compiled(tiny_model, native_cache, dtype="bfloat16", compiled=False)
    assert not compiled(tiny_model, native_cache, dtype="float32")


@pytest.mark.parametrize("found", ["amx", "avx512bf16", "avx512", "avx2", "portable"])
def test_auto_is_compiled_where_vectors_are_wide(
    tiny_model: Path, native_cache: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setattr(loading, "arithmetic", lambda library: found)
    runner = make_runner(tiny_model, cache_dir=native_cache, dtype="auto")
    wide = found != "portable"
    assert isinstance(runner, NativeRunner) == wide
    assert ("bfloat16" if wide else "float32") in runner.fingerprint


def test_auto_without_a_compiler_is_float32(
    tiny_model: Path, native_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "find_compiler", no_compiler)
    runner = make_runner(tiny_model, cache_dir=native_cache, dtype="auto")
    assert "float32/torch" in runner.fingerprint


def no_compiler() -> tuple[str, ...]:
    raise ConfigError("there is none")


def test_unlike_arithmetic_has_unlike_fingerprints(tiny_model: Path, native_cache: Path) -> None:
    kinds: list[dict[str, Any]] = [
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "compiled": False},
        {"quantize": "int8"},
    ]
    found = {make_runner(tiny_model, cache_dir=native_cache, **kind).fingerprint for kind in kinds}
    assert len(found) == 3
    assert sum("/torch/" in one for one in found) == 1


def test_quantize(tiny_model: Path, native_cache: Path) -> None:
    text = random_tokens(30, 4)
    logits = [
        make_runner(tiny_model, cache_dir=native_cache, quantize=kind).forward(
            [Row(0, text, 0, want=30)]
        )[0]
        for kind in ("none", "int8", "int4")
    ]
    off = [float(np.abs(found - logits[0]).mean()) for found in logits[1:]]
    assert 0 < off[0] < off[1] < 1


def test_without_a_compiler(
    tiny_model: Path, native_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 has torch to fall back to, quantised models have nothing."""
    monkeypatch.setattr(loading, "find_compiler", refuse)
    assert not compiled(tiny_model, native_cache, dtype="bfloat16")
    with pytest.raises(ConfigError, match="no compiler"):
        make_runner(tiny_model, cache_dir=native_cache, quantize="int4")


def refuse() -> None:
    raise ConfigError("no compiler")


def test_a_family_that_is_not_compiled(tmp_path: Path, native_cache: Path) -> None:
    torch.manual_seed(0)
    config = Gemma2Config(**SIZES, sliding_window=256, attn_logit_softcapping=None)
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    assert not compiled(tmp_path, native_cache, dtype="bfloat16")
    with pytest.raises(UnsupportedModelError, match="'gemma2'"):
        make_runner(tmp_path, cache_dir=native_cache, quantize="int8")

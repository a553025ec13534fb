"""Hidden states that a forward leaves behind, against those of transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

from starsd.engine.interface import Features, Row, Runner
from starsd.engine.loading import load_runner
from starsd.errors import ConfigError
from tests import tiny
from tests.scripted import HIDDEN, HashModel, state
from tests.unit.engine.helpers import make_replaying, make_runner, random_tokens, settings
from tests.unit.engine.test_runner import SIZES, TREE

TAPS = (0, 2, 3, tiny.LAYERS)
CLOSE = {"torch": 0.005, "replayed": 0.005, "compiled": 0.03, "compiled, 8 bits": 0.03}
"""Root mean square error over that of the states; a bfloat16 itself is off by .002."""

Floats = npt.NDArray[np.float32]
Make = Callable[[str, Path], Runner]


@pytest.fixture(scope="module")
def make(native_cache: Path) -> Make:
    return lambda kind, folder: load(kind, folder, native_cache)


def load(kind: str, folder: Path, cache: Path) -> Runner:
    if kind == "torch":
        return make_runner(folder)
    if kind == "replayed":
        return make_replaying(folder)[0]
    precision = {"quantize": "int8"} if kind.endswith("8 bits") else {"dtype": "bfloat16"}
    return load_runner(folder, settings(folder, cache_dir=cache, **{"dtype": "auto", **precision}))


@pytest.fixture(scope="module", params=list(CLOSE))
def tapped(request: pytest.FixtureRequest, make: Make, tiny_model: Path) -> tuple[Runner, float]:
    runner = make(request.param, tiny_model)
    runner.tap(TAPS)
    return runner, CLOSE[request.param]


def floats(features: Features) -> Floats:
    return (features.astype(np.uint32) << 16).view(np.float32)


def expected(folder: Path, tokens: Sequence[int], taps: Sequence[int] = TAPS) -> Floats:
    """``[len(tokens), taps * hidden]``."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        output = model(torch.tensor([list(tokens)]), use_cache=False, output_hidden_states=True)
    parts: Floats = torch.cat([output.hidden_states[index][0] for index in taps], -1).numpy()
    return parts


def check_close(found: Features, wanted: Floats, bound: float) -> None:
    """Tap by tap, since their sizes differ."""
    assert found.shape == wanted.shape
    width = wanted.shape[1] // len(TAPS)
    for first in range(0, wanted.shape[1], width):
        part = slice(first, first + width)
        error = np.square(floats(found[:, part]) - wanted[:, part]).mean()
        assert np.sqrt(error / np.square(wanted[:, part]).mean()) < bound


@pytest.mark.parametrize("want", [0, 1, 70])
def test_of_all_tokens_whatever_is_wanted(
    tapped: tuple[Runner, float], tiny_model: Path, want: int
) -> None:
    runner, bound = tapped
    tokens = random_tokens(70, 1)
    runner.forward([Row(2, tokens, 0, want=want)])
    check_close(runner.features()[0], expected(tiny_model, tokens), bound)


def test_of_chunks(tapped: tuple[Runner, float], tiny_model: Path) -> None:
    runner, bound = tapped
    tokens, start, parts = random_tokens(60, 2), 0, []
    for size in (33, 1, 5, 21):
        runner.forward([Row(5, tokens[start : start + size], start)])
        parts.append(runner.features()[0].copy())
        start += size
    check_close(np.concatenate(parts), expected(tiny_model, tokens), bound)


def test_of_each_row_in_a_ragged_batch(tapped: tuple[Runner, float], tiny_model: Path) -> None:
    """Slots out of order, so that whose is whose matters."""
    runner, bound = tapped
    texts = {slot: random_tokens(size, slot) for slot, size in ((4, 3), (0, 40), (3, 1), (1, 16))}
    for count in (4, 3):  # a prefill among them, then short rows only
        rows = [Row(slot, text, 0) for slot, text in texts.items() if count == 4 or slot != 0]
        runner.forward(rows)
        for row, found in zip(rows, runner.features(), strict=True):
            check_close(found, expected(tiny_model, row.tokens), bound)


def test_of_trees(tapped: tuple[Runner, float], tiny_model: Path) -> None:
    runner, bound = tapped
    prefix = random_tokens(21, 7)
    tokens, parents = TREE
    runner.forward([Row(0, prefix, 0)])
    runner.forward([Row(0, tokens, 21, want=6, parents=parents)])
    found = runner.features()[0]
    for path in ([0, 1], [0, 2, 3, 5], [4]):
        text = [*prefix, *(tokens[index] for index in path)]
        check_close(found[path], expected(tiny_model, text)[21:], bound)


def test_taps_change_no_logit_and_can_be_changed(make: Make, tiny_model: Path) -> None:
    for kind in CLOSE:
        runner = make(kind, tiny_model)
        row = Row(1, random_tokens(9, 3), 0, want=9)
        plain = runner.forward([row])[0].copy()
        assert runner.features()[0].shape == (9, 0)
        for taps in ((1, 3), (4,), ()):
            runner.tap(taps)
            np.testing.assert_array_equal(runner.forward([row])[0], plain)
            assert runner.features()[0].shape == (9, len(taps) * 64)


def test_of_models_that_transformers_computes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(Gemma2Config(**SIZES))
    model.save_pretrained(tmp_path)
    runner = make_runner(tmp_path)
    runner.tap((1, 2))
    tokens = random_tokens(30, 4)
    runner.forward([Row(3, tokens, 0)])
    wanted = expected(tmp_path, tokens, (1, 2))
    np.testing.assert_allclose(floats(runner.features()[0]), wanted, rtol=0.01, atol=0.02)


@pytest.mark.parametrize("layers", [(-1,), (5,), (2, 2)])
def test_states_that_are_not_there(make: Make, tiny_model: Path, layers: tuple[int, ...]) -> None:
    for kind in ("torch", "compiled"):
        with pytest.raises(ConfigError, match=r"a model of 4 layers: want different ones of 0"):
            make(kind, tiny_model).tap(layers)


def test_scripted_states_are_functions_of_the_history() -> None:
    runner = HashModel(settings("scripted")).runner()
    runner.forward([Row(1, [1, 2, 3], 0)])
    assert runner.features() == []
    runner.tap((0, 7))
    runner.forward([Row(1, [5, 6, 7], 3, parents=[-1, 0, 0])])
    (found,) = runner.features()
    assert found.shape == (3, 2 * HIDDEN)
    np.testing.assert_array_equal(found[2, HIDDEN:], state([1, 2, 3, 5, 7], 7))
    assert len({row.tobytes() for row in found.reshape(-1, HIDDEN)}) == 6

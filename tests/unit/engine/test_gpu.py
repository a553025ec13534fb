"""The CUDA path on a real device: ``pytest -m cuda``. docs/cuda.md says what each test settles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from starsd.engine.checkpoint import BUNDLED
from starsd.engine.eagle.loading import load_head
from starsd.engine.interface import HeadRow, Row
from starsd.engine.loading import PretrainedModel
from starsd.engine.runner import TorchRunner
from tests.unit.engine.eagle.heads import (
    EAGLE1,
    EAGLE3,
    Tensors,
    eagle1,
    eagle3,
    random_features,
    random_states,
    write,
)
from tests.unit.engine.helpers import (
    chunked,
    draft_settings,
    make_runner,
    plain_logits,
    random_tokens,
    settings,
    walk,
)

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]
LONG = {"device": "cuda", "max_length": 512}
CLOSE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""Of logits between -10 and 10: some hundred times the rounding of one product."""


def shapes(runner: TorchRunner) -> int:
    return 0 if runner._replays is None else len(runner._replays._recorded)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_replays_compute_what_steps_as_they_come_do(tiny_model: Path, dtype: str) -> None:
    replaying = make_runner(tiny_model, dtype=dtype, **LONG)
    plain = make_runner(tiny_model, dtype=dtype, cuda_graphs=False, **LONG)
    for found, expected in zip(walk(replaying, 1, 60), walk(plain, 1, 60), strict=True):
        np.testing.assert_allclose(found, expected, atol=CLOSE[dtype])
    assert (shapes(replaying) > 10, shapes(plain)) == (True, 0)


@pytest.mark.parametrize("graphs", [True, False])
def test_float32_is_the_plain_model_on_the_cpu(tiny_model: Path, graphs: bool) -> None:
    text = random_tokens(300, 1)
    runner = make_runner(tiny_model, cuda_graphs=graphs, **LONG)
    found = chunked(runner, 3, text, [200, *[1] * 60, 5, 16, 9, 3, 7])
    np.testing.assert_allclose(found, plain_logits(tiny_model, text), atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batch_invariant_mode_holds(tiny_model: Path, dtype: str) -> None:
    kind = {"dtype": dtype, "batch_invariant": True, **LONG}
    replaying, plain = (make_runner(tiny_model, cuda_graphs=one, **kind) for one in (True, False))
    assert (replaying.invariance_holds, plain.invariance_holds) == (True, True)
    for found, expected in zip(walk(replaying, 2, 40), walk(plain, 2, 40), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.fixture
def waiting_forbidden() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("waiting_forbidden")
@pytest.mark.parametrize("graphs", [True, False])
def test_a_step_waits_for_its_logits_only(tiny_model: Path, graphs: bool) -> None:
    """torch refuses whatever waits on the quiet; the wait in ``to_host`` is explicit."""
    runner = make_runner(tiny_model, cuda_graphs=graphs, **LONG)
    rows = [Row(slot, [1, 2, 3], 40, want=3) for slot in range(3)]
    expected = [part.copy() for part in runner.forward(rows)]
    torch.cuda.set_sync_debug_mode("error")
    for found, part in zip(runner.forward(rows), expected, strict=True):
        np.testing.assert_array_equal(found, part)
    runner.forward([Row(0, random_tokens(60, 1), 0), *rows[1:]])


@pytest.mark.parametrize("graphs", [True, False])
def test_hidden_states_are_those_of_the_cpu(tiny_model: Path, graphs: bool) -> None:
    found = []
    for kind in ({"device": "cpu"}, {**LONG, "cuda_graphs": graphs}):
        runner = make_runner(tiny_model, **kind)
        runner.tap((1, 4))
        for row in (Row(3, random_tokens(40, 1), 0), Row(3, [1, 2, 3], 40, parents=[-1, 0, 0])):
            runner.forward([row, Row(1, [7], 0)])
            found.append((runner.features()[0].astype(np.uint32) << 16).view(np.float32))
    for one, other in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(one, other, rtol=0.02, atol=0.01)


@pytest.mark.parametrize(("tensors", "config"), [(eagle1(), EAGLE1), (eagle3(), EAGLE3)])
def test_a_draft_head_computes_the_same(
    tiny_model: Path, tmp_path: Path, tensors: Tensors, config: dict[str, Any]
) -> None:
    folder = write(tmp_path, tensors, config)
    row = HeadRow(2, random_tokens(40, 1), random_states(40, 2), 0, want=40)
    cpu, cuda = (
        load_head(draft_settings(tiny_model, draft=str(folder), device=device), folder)
        for device in ("cpu", "cuda")
    )
    for one, other in zip(cpu.forward([row])[0], cuda.forward([row])[0], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)
    features = random_features(9, 3, 64 * len(cpu.layers))
    np.testing.assert_allclose(cpu.fuse(features), cuda.fuse(features), atol=1e-3)


@pytest.mark.real
@pytest.mark.timeout(300)
def test_the_default_model_says_the_same() -> None:
    """48 greedy tokens in float32: on the CPU, on CUDA as they come, and replayed."""
    kinds: list[dict[str, Any]] = [
        {"device": "cpu"},
        {"device": "cuda", "cuda_graphs": False},
        {"device": "cuda"},
    ]
    models = [PretrainedModel(settings(BUNDLED, **kind)) for kind in kinds]
    prompt = (
        models[0].tokenizer().encode_chat([{"role": "user", "content": "Why is the sky blue?"}])
    )
    answers = []
    for model in models:
        runner = model.runner()
        text, start = list(prompt), 0
        for _ in range(48):
            logits = runner.forward([Row(0, text[start:], start)])[0]
            start = len(text)
            text.append(int(logits[-1].argmax()))
        answers.append(text)
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]

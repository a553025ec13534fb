"""Draft heads in torch and in compiled code, against a plain forward and against themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from starsd.engine.interface import HeadOutput, HeadRow, HeadRunner
from starsd.errors import ConfigError, EngineError
from tests.unit.engine.eagle.conftest import KINDS, Load
from tests.unit.engine.eagle.heads import (
    EAGLE1,
    EAGLE3,
    HIDDEN,
    TAPS,
    Maker,
    Reference,
    Tensors,
    draft_ids,
    eagle1,
    eagle3,
    random_features,
    random_states,
    with_biases,
    write,
)
from tests.unit.engine.helpers import random_tokens
from tests.unit.engine.test_runner import TREE

CLOSE = {"torch": 1e-5, "torch, invariant": 1e-5, "16 bits": 0.03, "8 bits": 0.03}
"""Root mean square error over that of what is computed."""
LAYERS = ["eagle1", "eagle3"]


def without(tensors: Tensors, *names: str) -> Tensors:
    return {name: one for name, one in tensors.items() if name not in names}


VARIANTS: dict[str, tuple[Callable[[], Tensors], dict[str, Any]]] = {
    "eagle3": (eagle3, EAGLE3),
    "eagle3, the target's embedding": (lambda: without(eagle3(), "embed_tokens.weight"), EAGLE3),
    "eagle3, biases": (lambda: with_biases(eagle3()), EAGLE3),
    "eagle3, a speculator's": (eagle3, {**EAGLE3, "norm_before_residual": True}),
    "eagle3, the target's vocabulary": (
        lambda: without(eagle3(), "lm_head.weight", "d2t", "t2d"),
        {**EAGLE3, "draft_vocab_size": None},
    ),
    "eagle1": (eagle1, EAGLE1),
    "eagle1, without bias": (lambda: without(eagle1(), "fc.bias"), EAGLE1),
    "eagle1, its own embedding": (
        lambda: {**eagle1(), "embed_tokens.weight": Maker(5).matrix(320, HIDDEN) * 8},
        EAGLE1,
    ),
    "eagle1, with a first norm": (
        lambda: {**eagle1(), "layers.0.input_layernorm.weight": Maker(5).norm(HIDDEN)},
        EAGLE1,
    ),
    "eagle1, biases": (lambda: with_biases(eagle1()), EAGLE1),
}


def kinds_of(variant: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith("torch") or variant.startswith("eagle3")]


ALL = [(variant, kind) for variant in VARIANTS for kind in kinds_of(variant)]
PLAIN = [(variant, kind) for variant, kind in ALL if variant in LAYERS]


@pytest.fixture
def make(load: Load, tmp_path: Path, tiny_model: Path) -> Callable[..., Any]:
    """A head and its reference."""

    def make(variant: str, kind: str, **changes: Any) -> tuple[HeadRunner, Reference]:
        tensors, config = VARIANTS[variant][0](), VARIANTS[variant][1]
        folder = write(tmp_path / variant, tensors, config)
        return load(folder, kind, **changes), Reference(tensors, config, tiny_model)

    return make


def check_close(found: HeadOutput, wanted: Any, kind: str, part: slice = slice(None)) -> None:
    for one, other in zip(found, wanted, strict=True):
        expected = other.numpy()[part]
        assert one.shape == expected.shape
        error = np.square(one - expected).mean() / np.square(expected).mean()
        assert np.sqrt(error) < CLOSE[kind]


def whole(
    head: HeadRunner, slot: int, tokens: list[int], states: Any, start: int = 0
) -> HeadOutput:
    """Of all tokens; a copy."""
    row = HeadRow(slot, tokens, states, start, want=len(tokens))
    return copied(head.forward([row])[0])


def copied(output: HeadOutput) -> HeadOutput:
    return HeadOutput(*(part.copy() for part in output))


def check_same(found: HeadOutput, wanted: HeadOutput, kind: str) -> None:
    """Bit by bit, but for torch outside its batch-invariant mode."""
    for one, other in zip(found, wanted, strict=True):
        if kind == "torch":
            np.testing.assert_allclose(one, other, atol=1e-4)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("variant", "kind"), ALL)
def test_it_computes_what_the_papers_say(make: Any, variant: str, kind: str) -> None:
    head, reference = make(variant, kind)
    tokens, states = random_tokens(70, 1), random_states(70, 2)
    check_close(whole(head, 2, tokens, states), reference(tokens, states), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_fused_states(make: Any, kind: str) -> None:
    head, reference = make("eagle3, biases", kind)
    for count in (1, 40):
        features = random_features(count, 3)
        features.flags.writeable = False  # as it comes from a message
        found, expected = head.fuse(features), reference.fuse(features)
        assert found.dtype == np.float32
        error = np.square(found - expected).mean() / np.square(expected).mean()
        assert np.sqrt(error) < CLOSE[kind]


def test_eagle1_reads_the_last_state_as_it_is(make: Any) -> None:
    head, _ = make("eagle1", "torch")
    assert head.layers == (4,)
    features = random_features(5, 1, HIDDEN)
    expected = (features.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(head.fuse(features), expected)


def test_what_a_head_says_of_itself(make: Any) -> None:
    for kind in ("torch", "16 bits"):
        head, _ = make("eagle3", kind)
        assert head.layers == TAPS
        assert head.hidden_size == HIDDEN
        np.testing.assert_array_equal(head.draft_ids, draft_ids().numpy())
        assert (head.vocab_size, head.max_length, head.slots) == (320, 256, 6)
        assert head.kv_blocks == 6 * 4


@pytest.mark.parametrize(("variant", "kind"), PLAIN)
@pytest.mark.parametrize("sizes", [[1] * 70, [16, 17, 5, 32], [3, 64, 3]])
def test_chunks(make: Any, variant: str, kind: str, sizes: list[int]) -> None:
    head, reference = make(variant, kind)
    tokens, states = random_tokens(70, 1), random_states(70, 2)
    start, parts = 0, []
    for size in sizes:
        part = slice(start, start + size)
        parts.append(whole(head, 5, tokens[part], states[part], start))
        start += size
    found = HeadOutput(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    check_close(found, reference(tokens, states), kind)
    check_same(found, whole(head, 0, tokens, states), kind)


@pytest.mark.parametrize(("variant", "kind"), PLAIN)
def test_neighbours(make: Any, variant: str, kind: str) -> None:
    """Slots come out of order, with rows of all sizes beside them."""
    head, _ = make(variant, kind)
    tokens, states = random_tokens(50, 2), random_states(50, 3)
    for count in (1, 7, 40):
        rows = [
            HeadRow(slot, random_tokens(count, slot), random_states(count, slot), 0)
            for slot in (4, 1)
        ]
        rows.insert(1, HeadRow(2, tokens, states, 0, want=50))
        alone = [copied(head.forward([row])[0]) for row in rows]
        for one, other in zip(head.forward(rows), alone, strict=True):
            check_same(one, other, kind)


@pytest.mark.parametrize(("variant", "kind"), PLAIN)
@pytest.mark.parametrize("start", [0, 21])
def test_trees_equal_their_chains(make: Any, variant: str, kind: str, start: int) -> None:
    head, reference = make(variant, kind)
    prefix, given = random_tokens(start, 7), random_states(start, 8)
    tokens, parents = TREE
    states = random_states(len(tokens), 9)
    if start:
        head.forward([HeadRow(0, prefix, given, 0)])
    tree = head.forward([HeadRow(0, tokens, states, start, want=6, parents=parents)])[0]
    for path in ([0, 1], [0, 2, 3, 5], [4]):
        text = [*prefix, *(tokens[index] for index in path)]
        wanted = reference(text, np.concatenate([given, states[path]]))
        found = HeadOutput(tree.logits[path], tree.states[path])
        check_close(found, wanted, kind, slice(start, None))


@pytest.mark.parametrize(("variant", "kind"), PLAIN)
def test_its_own_states_go_on(make: Any, variant: str, kind: str) -> None:
    """A chain of guesses, then true states in their place: rolling back is starting lower."""
    head, reference = make(variant, kind)
    tokens, states = random_tokens(30, 4), random_states(30, 5)
    first = whole(head, 1, tokens[:20], states[:20])
    guess = first.states[-1:]
    for place in range(20, 23):
        guess = whole(head, 1, [tokens[place]], guess, place).states
    expected = reference(tokens[:20], states[:20])[1]
    fed = states[:20]
    for place in range(20, 23):
        fed = np.concatenate([fed, expected[-1:].numpy()])
        expected = reference(tokens[: place + 1], fed)[1]
    error = np.square(guess - expected[-1:].numpy()).mean() / expected[-1:].square().mean()
    assert error.sqrt() < 3 * CLOSE[kind]
    found = whole(head, 1, tokens[20:], states[20:], 20)
    check_close(found, reference(tokens, states), kind, slice(20, None))


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_is_not_finite_ends_with_its_sequence(make: Any, kind: str) -> None:
    head, reference = make("eagle3", kind)
    tokens, states = random_tokens(30, 4), random_states(30, 5)
    bad = np.full_like(states, np.nan)
    head.forward([HeadRow(3, tokens, bad, 0, want=0)])
    found = whole(head, 3, tokens[:5], states[:5])
    check_close(found, reference(tokens[:5], states[:5]), kind)


def test_threads_change_no_bit(make: Any) -> None:
    rows = [HeadRow(slot, random_tokens(9, slot), random_states(9, slot), 0, 9) for slot in (0, 3)]
    one, two = (make("eagle3", "16 bits", threads=count)[0] for count in (1, 2))
    for first, second in zip(one.forward(rows), two.forward(rows), strict=True):
        np.testing.assert_array_equal(first.logits, second.logits)
    features = random_features(20, 1)
    np.testing.assert_array_equal(one.fuse(features), two.fuse(features))


def test_time_is_put_down_to_parts(make: Any) -> None:
    head, _ = make("eagle3", "8 bits")
    assert set(head.parts().values()) == {0}
    whole(head, 0, random_tokens(40, 1), random_states(40, 1))
    assert min(head.parts().values()) > 0


@pytest.mark.parametrize("kind", ["torch", "16 bits"])
def test_impossible_rows_are_refused(make: Any, kind: str) -> None:
    head, _ = make("eagle3", kind)
    assert head.forward([]) == []
    states = random_states(2, 1)
    for row in (
        HeadRow(6, [1], states[:1], 0),
        HeadRow(0, [320], states[:1], 0),
        HeadRow(0, [1, 2], states, 255),
        HeadRow(0, [1, 2], states[:1], 0),
        HeadRow(0, [1], states[:1, :32], 0),
    ):
        with pytest.raises(EngineError):
            head.forward([row])


def test_trees_wider_than_compiled_code_has_bits(make: Any) -> None:
    head, _ = make("eagle3", "16 bits")
    row = HeadRow(0, [1] * 33, random_states(33, 1), 0, parents=[-1] * 33)
    with pytest.raises(EngineError, match="33 tokens; the limit is 32"):
        head.forward([row])


@pytest.mark.parametrize("kind", ["torch", "16 bits"])
def test_memory_for_keys_and_values(make: Any, kind: str) -> None:
    position = 2 * 2 * 16 * (4 if kind == "torch" else 2)
    head, _ = make("eagle3", kind, kv_memory=position * 64 * 9)
    assert (head.slots, head.kv_blocks) == (6, 9)
    with pytest.raises(ConfigError, match="STARSD_KV_MEMORY"):
        make("eagle3", kind, kv_memory=position * 64 * 3)

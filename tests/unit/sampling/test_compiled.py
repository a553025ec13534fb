"""Compiled code names the token that numpy names, or none; and it names one nearly always."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starsd.errors import ConfigError, EngineError
from starsd.protocol.sampling import SamplingParams
from starsd.sampling import compiled
from starsd.sampling.compiled import Ranked
from starsd.sampling.noise import exponential_noise
from starsd.sampling.processing import candidates, top_k
from starsd.sampling.ranking import rank
from starsd.sampling.sampler import perturb, propose, sample
from tests.compilers import COMPILERS, compiled_by

Row = npt.NDArray[np.float32]


@pytest.fixture(scope="module", params=COMPILERS, autouse=True)
def installed(
    by_numpy_alone: None, request: pytest.FixtureRequest, native_cache: Path
) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "library", partial(compiled_by, request.param))
        compiled.install(native_cache)
        assert compiled._draw is not None
        yield


def by_numpy(logits: Row, params: SamplingParams, position: int, considered: int) -> int:
    """Every candidate runs, in float64."""
    kept = top_k(candidates(logits, params, []), considered)
    noise = exponential_noise(params.seed, position, kept.ids)
    return int(kept.ids[perturb(kept.scores, noise).argmax()])


params_of = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([1e-5, 1e-4, 0.3, 0.7, 1.0, 2.0, 100.0]),
    top_k=st.sampled_from([0, 1, 5, 50, 900, 3000, 10**6]),
    top_p=st.sampled_from([0.0, 1e-300, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, 1.0]),
    min_p=st.sampled_from([0.0, 1e-320, 1e-6, 0.05, 0.5, 1.0]),
)
considered_of = st.sampled_from([0, 1, 64, 5000])


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Smooth, tied, masked and mixed in scale; of lengths around those of a chunk."""
    count = draw(st.sampled_from([1, 2, 15, 16, 17, 255, 256, 257, 300, 1000, 5003]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 1e-30, 1e-6, 0.1, 1.0, 4.0, 30.0, 1e4, 1e30, 1e38]))
    logits = rng.normal(0, spread, count)
    if draw(st.booleans()):
        logits = np.round(logits / (spread or 1.0)) * spread  # ties, and -0.0
    logits += draw(st.sampled_from([0.0, 10.0, -1e4, 1e30]))
    logits = logits.clip(-3.4e38, 3.4e38)
    dead = rng.random(count) < draw(st.sampled_from([0.0, 0.0, 0.5, 0.99]))
    dead[rng.integers(count)] = False
    logits[dead] = -np.inf
    for value in draw(st.lists(st.sampled_from([3.4e38, -3.4e38, 0.0, -0.0]), max_size=2)):
        logits[rng.integers(count)] = value
    return logits.astype(np.float32)


@settings(max_examples=400)
@given(rows(), params_of, st.integers(0, 2**32 - 1), considered_of)
def test_it_names_what_numpy_names(
    logits: Row, params: SamplingParams, position: int, considered: int
) -> None:
    named = compiled.draw(logits, params, position, considered)
    assert named in (None, by_numpy(logits, params, position, considered))


@settings(max_examples=100)
@given(rows(), params_of, st.integers(0, 2**32 - 1), considered_of)
def test_proposals_do_not_depend_on_it(
    logits: Row, params: SamplingParams, position: int, considered: int
) -> None:
    ours = propose(logits, params, position, [], considered)
    assert ours == by_numpy(logits, params, position, considered)


def text_like(seed: int, vocab_size: int) -> Row:
    """One or many likely tokens, as the seed has it."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, rng.uniform(2.0, 5.0), vocab_size).astype(np.float32)


LIKELY = [
    {},
    {"top_k": 50},
    {"top_p": 0.95},
    {"top_p": 0.5, "temperature": 2.0},
    {"top_k": 50, "top_p": 0.95},
    {"min_p": 0.05},
    {"min_p": 1.0},
    {"min_p": 1e-4, "top_p": 0.99},
    {"temperature": 0.3},
]


@pytest.mark.parametrize("vocab_size", [20_000, 130_001])
@pytest.mark.parametrize("filters", LIKELY, ids=str)
@pytest.mark.parametrize("considered", [0, 64])
def test_it_is_certain_nearly_always(
    vocab_size: int, filters: dict[str, float], considered: int
) -> None:
    named = 0
    for seed in range(25):
        logits = text_like(seed, vocab_size)
        params = msgspec.structs.replace(SamplingParams(seed=seed), **filters)
        if (token := compiled.draw(logits, params, 7, considered)) is not None:
            assert token == by_numpy(logits, params, 7, considered)
            named += 1
    assert named >= 24


def test_a_race_below_the_floor_is_left_to_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(compiled.SOURCE.parent, tmp_path / "native")
    narrow = tmp_path / "native" / compiled.SOURCE.name
    text = narrow.read_text()
    narrow.write_text(text.replace("#define WIDTH 20.0", "#define WIDTH 0.9"))
    assert narrow.read_text() != text
    monkeypatch.setattr(compiled, "SOURCE", narrow)
    monkeypatch.setattr(compiled, "_draw", None)
    monkeypatch.setattr(compiled, "_rank", None)
    compiled.install(tmp_path)  # now the floor is missed in many races
    logits = np.zeros(600, dtype=np.float32)
    logits[300] = np.log(900.0)  # 60 %: its E is well above its u, where a limit on u misleads
    missed = 0
    for seed in range(300):
        params = SamplingParams(seed=seed)
        named = compiled.draw(logits, params, 4, 0)
        assert named in (None, by_numpy(logits, params, 4, 0))
        missed += named is None
    assert 30 < missed < 270


def test_a_token_on_the_edge_of_the_nucleus_is_left_to_numpy() -> None:
    """Of four equal tokens, half of the mass is two: exactly, so float32 may not tell."""
    logits = np.zeros(4, dtype=np.float32)
    params = [SamplingParams(seed=seed, top_p=0.5) for seed in range(100)]
    named = [compiled.draw(logits, one, 0, 0) for one in params]
    assert set(named) == {0, 1, None}
    assert {propose(logits, one, 0, [], 0) for one in params} == {0, 1}


def test_equal_scores_are_left_to_numpy() -> None:
    """So far from 0 that noise is lost in the sum."""
    logits = np.full(40, 3e38, dtype=np.float32)
    params = SamplingParams(seed=0, temperature=1e-5)
    assert compiled.draw(logits, params, 0, 0) is None
    assert sample(logits, params, 0, []) == 0


@pytest.mark.parametrize("bad", [[0.0, np.nan], [np.nan, np.inf], [-np.inf, -np.inf]])
@pytest.mark.parametrize("place", [0, 255, 299, 4000])
def test_logits_without_a_distribution_are_an_engine_error(bad: list[float], place: int) -> None:
    logits = np.full(4002, -np.inf, dtype=np.float32)
    logits[place : place + 2] = bad
    for filters in ({}, {"top_k": 3}, {"top_p": 0.5}):
        with pytest.raises(EngineError, match="logits"):
            sample(logits, SamplingParams(seed=0, **filters), 0, [])


def test_infinite_logits_take_all() -> None:
    logits = text_like(0, 4000)
    logits[[17, 3000]] = np.inf
    drawn = {sample(logits, SamplingParams(seed=seed), 0, []) for seed in range(40)}
    assert drawn == {17, 3000}


def test_other_layouts_and_seeds_are_left_to_numpy() -> None:
    logits, params = text_like(0, 2000), SamplingParams(seed=2)
    assert compiled.draw(logits, params, 0, 0) is not None
    assert compiled.draw(logits[::2], params, 0, 0) is None
    assert compiled.draw(logits.astype(np.float64), params, 0, 0) is None
    assert compiled.draw(logits, SamplingParams(seed=2**64), 0, 0) is None


# -- ranks ---------------------------------------------------------------------------------------


def agrees(found: Ranked | None, expected: Ranked) -> bool:
    return found is None or (
        found.tokens == expected.tokens
        and found.confidences == pytest.approx(expected.confidences, rel=1e-9, abs=1e-12)
    )


greedy_too = st.one_of(
    params_of, st.builds(SamplingParams, seed=st.just(1), temperature=st.just(0.0))
)


@settings(max_examples=400)
@given(rows(), greedy_too, st.integers(0, 2**32 - 1), considered_of, st.integers(1, 9))
def test_it_ranks_as_numpy_ranks(
    logits: Row, params: SamplingParams, position: int, considered: int, count: int
) -> None:
    (found,) = compiled.rank(logits[None], params, [position], considered, count)
    assert agrees(found, rank(logits, params, position, [], considered, count))
    first = propose(logits, params, position, [], considered)
    assert found is None or found.tokens[0] == first


@given(greedy_too, st.integers(0, 1000), st.integers(1, 80))
def test_it_ranks_rows_of_a_draft_vocabulary(params: SamplingParams, seed: int, size: int) -> None:
    """Parts of longer rows, each at its own position, under the noise of the target's ids."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3.0, (4, 100)).astype(np.float32)[:, :size]
    ids = np.sort(rng.choice(300, size, replace=False))
    positions = [2**32 - 1, 4, 5, 4]
    found = compiled.rank(logits, params, positions, 64, 5, ids)
    for one, row, position in zip(found, logits, positions, strict=True):
        assert agrees(one, rank(row, params, position, [], 64, 5, ids))


@pytest.mark.parametrize("filters", [*LIKELY, {"temperature": 0.0}], ids=str)
@pytest.mark.parametrize("considered", [64, 256])
def test_it_ranks_nearly_always(filters: dict[str, float], considered: int) -> None:
    params = msgspec.structs.replace(SamplingParams(seed=5), **filters)
    logits = np.array([text_like(seed, 8192) for seed in range(25)])
    found = compiled.rank(logits, params, range(25), considered, 4)
    assert sum(one is not None for one in found) >= 24


def test_all_that_passes_is_ranked() -> None:
    (found,) = compiled.rank(text_like(1, 400)[None], SamplingParams(seed=0, top_k=2), [0], 64, 5)
    assert found is not None
    assert len(found.tokens) == len(found.confidences) == 2
    assert sum(found.confidences) == pytest.approx(1.0)


def test_what_it_cannot_rank_is_left_to_numpy() -> None:
    logits, params = np.stack([text_like(0, 2000)] * 2), SamplingParams(seed=2)
    tied = np.zeros((1, 50), dtype=np.float32)
    many = np.full((1, 50), np.nan, dtype=np.float32)
    assert None not in compiled.rank(logits, params, [0, 1], 64, 4)
    assert compiled.rank(logits[:, ::2], params, [0, 1], 64, 4) == [None, None]
    assert compiled.rank(logits.astype(np.float64), params, [0, 1], 64, 4) == [None, None]
    assert compiled.rank(logits, SamplingParams(seed=2**64), [0, 1], 64, 4) == [None, None]
    assert compiled.rank(logits, params, [0, 1], 257, 4) == [None, None]
    assert compiled.rank(tied, SamplingParams(seed=2, temperature=0.0), [0], 64, 4) == [None]
    assert compiled.rank(many, params, [0], 64, 4) == [None]
    assert compiled.rank(many[:, :0], params, [0], 64, 4) == [None]


def test_a_rank_on_the_edge_of_the_nucleus_is_left_to_numpy() -> None:
    """Of four equal tokens, half of the mass is two: exactly, so float32 may not tell."""
    logits = np.zeros((1, 4), dtype=np.float32)
    assert compiled.rank(logits, SamplingParams(seed=0, top_p=0.5), [0], 64, 4) == [None]
    (found,) = compiled.rank(logits, SamplingParams(seed=0, top_p=0.6), [0], 64, 4)
    assert found is not None
    assert sorted(found.tokens) == [0, 1, 2]


# -- without it ----------------------------------------------------------------------------------


def refuse(*_: Path) -> None:
    raise ConfigError("no compiler")


def unwritable(*_: Path) -> None:
    raise PermissionError("read-only")


@pytest.mark.parametrize("failure", [refuse, unwritable])
def test_numpy_goes_on_without_a_compiler(
    failure: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_draw", None)
    monkeypatch.setattr(compiled, "_rank", None)
    monkeypatch.setattr(compiled, "library", failure)
    compiled.install(tmp_path)
    logits, params = text_like(3, 2000), SamplingParams(seed=3)
    assert compiled.rank(logits[None], params, [0], 64, 4) == [None]
    assert compiled.draw(logits, params, 0, 0) is None
    assert sample(logits, params, 0, []) == by_numpy(logits, params, 0, 0)

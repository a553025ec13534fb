from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.errors import EngineError
from starsd.protocol.sampling import Penalties, SamplingParams
from starsd.sampling.processing import Mask
from starsd.sampling.sampler import sample
from starsd.sampling.verification import matched, verify

VOCAB = 12
Rows = npt.NDArray[np.float32]


def model(path: list[int]) -> npt.NDArray[np.float32]:
    """Logits that depend on the whole path."""
    seed = [len(path), *path]
    return np.random.default_rng(seed).normal(0, 1.5, VOCAB).astype(np.float32)


def forward(prefix: list[int], proposal: list[int]) -> Rows:
    return np.stack([model(prefix + proposal[:j]) for j in range(len(proposal) + 1)])


def plain(prefix: list[int], params: SamplingParams, count: int) -> list[int]:
    path = list(prefix)
    for _ in range(count):
        path.append(sample(model(path), params, len(path), path))
    return path[len(prefix) :]


params_of = st.builds(
    SamplingParams,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 0.8, 1.0]),
    top_k=st.sampled_from([0, 5]),
    top_p=st.sampled_from([0.9, 1.0]),
    prompt_len=st.just(2),
    penalties=st.sampled_from([None, Penalties(1.0, 0.5, 1.3), Penalties(-1.0, -1.0, 0.7)]),
)
tokens_of = st.lists(st.integers(0, VOCAB - 1), max_size=5)


@given(params_of, tokens_of, tokens_of, st.integers(0, 5))
def test_verification_emits_plain_decoding_whatever_is_proposed(
    params: SamplingParams, prefix: list[int], noise: list[int], right: int
) -> None:
    proposal = plain(prefix, params, 5)[:right] + noise
    emitted = verify(forward(prefix, proposal), proposal, params, len(prefix), prefix)
    assert emitted == plain(prefix, params, len(emitted))
    accepted = len(emitted) - 1
    assert accepted >= right
    assert emitted[:accepted] == proposal[:accepted]
    assert accepted == len(proposal) or emitted[accepted] != proposal[accepted]


@given(params_of, tokens_of, st.integers(0, 4))
def test_rows_after_the_mismatch_are_never_read(
    params: SamplingParams, prefix: list[int], right: int
) -> None:
    proposal = plain(prefix, params, 5)
    proposal[right] = (proposal[right] + 1) % VOCAB
    logits = forward(prefix, proposal)
    logits[right + 1 :] = np.nan
    emitted = verify(logits, proposal, params, len(prefix), prefix)
    assert emitted == plain(prefix, params, right + 1)
    logits[right] = np.nan
    with pytest.raises(EngineError):
        verify(logits, proposal, params, len(prefix), prefix)


def test_an_empty_proposal_is_a_plain_step() -> None:
    params = SamplingParams(seed=4)
    assert verify(forward([3, 1], []), [], params, 2, [3, 1]) == plain([3, 1], params, 1)


def test_one_token_too_many_or_noise_off_by_one_is_caught() -> None:
    """The two mutants: each would emit something else than plain decoding."""
    params = SamplingParams(seed=6)
    truth = plain([5], params, 12)
    shifted = verify(forward([5], truth[:11]), truth[:11], params, 2, [5])
    assert shifted != truth
    wrong = [*truth[:3], (truth[3] + 1) % VOCAB]
    emitted = verify(forward([5], wrong), wrong, params, 1, [5])
    assert emitted == truth[:4]
    assert emitted != wrong


def test_rejected_tokens_leave_no_mark_in_penalties() -> None:
    """A proposal's tokens count along its own path only, and only where accepted (E14)."""
    params = SamplingParams(
        seed=0, temperature=0.0, prompt_len=1, penalties=Penalties(presence=2.0)
    )
    flat = np.tile(np.array([3.0, 2.0, 1.5, 0.0], dtype=np.float32), (4, 1))
    # plain: 0 (3.0), then 1 (0 is down to 1.0), then 2, then 0 again
    assert verify(flat, [0, 1, 2], params, 1, [0]) == [0, 1, 2, 0]
    history = [0]
    assert verify(flat, [0, 2, 3], params, 1, history) == [0, 1]
    assert history == [0]
    assert verify(flat, [1, 2, 3], params, 2, [0, 0]) == [1, 2, 0]


# -- trees ---------------------------------------------------------------------------------------


def tree_of(truth: list[int], right: int, choose: random.Random) -> tuple[list[int], list[int]]:
    """Up to 15 nodes anywhere, among them the first ``right`` tokens of the truth, shuffled as far
    as parents stay before children."""
    nodes: list[tuple[int, int]] = []
    tip = -1
    while len(nodes) < 15:
        if right and choose.random() < 0.4:
            pair = (tip, truth[0])
            truth, right = truth[1:], right - 1
            tip = nodes.index(pair) if pair in nodes else len(nodes)
        else:
            pair = (choose.randrange(-1, len(nodes)), choose.randrange(VOCAB))
        if pair not in nodes:
            nodes.append(pair)
    return [token for _, token in nodes], [parent for parent, _ in nodes]


def forward_tree(prefix: list[int], tokens: list[int], parents: list[int]) -> Rows:
    paths: list[list[int]] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    return np.stack([model(prefix), *(model(prefix + path) for path in paths)])


@given(params_of, tokens_of, st.integers(0, 5), st.integers(0, 10**6))
def test_a_tree_emits_plain_decoding_and_reads_no_row_beside_the_walk(
    params: SamplingParams, prefix: list[int], right: int, seed: int
) -> None:
    truth = plain(prefix, params, 16)
    tokens, parents = tree_of(truth, right, random.Random(seed))
    logits = forward_tree(prefix, tokens, parents)
    emitted = verify(logits, tokens, params, len(prefix), prefix, parents=parents)
    assert emitted == truth[: len(emitted)]
    path = matched(tokens, parents, emitted)
    assert [tokens[node] for node in path] == emitted[:-1]
    assert [parents[node] for node in path] == [-1, *path][: len(path)]
    assert (path[-1] if path else -1, emitted[-1]) not in zip(parents, tokens, strict=True)
    logits[[row for row in range(1, 16) if row - 1 not in path]] = np.nan
    assert verify(logits, tokens, params, len(prefix), prefix, parents=parents) == emitted


def test_the_sample_of_a_leaf_is_the_bonus() -> None:
    params = SamplingParams(seed=9)
    truth = plain([3], params, 3)
    tokens = [(truth[0] + 1) % VOCAB, truth[0], truth[1]]
    parents = [-1, -1, 1]
    logits = forward_tree([3], tokens, parents)
    assert verify(logits, tokens, params, 1, [3], parents=parents) == truth


def test_masks_apply_row_by_row() -> None:
    """They are asked for along the walk: what is not emitted needs none."""
    params = SamplingParams(seed=0, temperature=0.0)
    logits = np.tile(np.array([3.0, 2.0, 1.0], dtype=np.float32), (3, 1))
    masks = [[True, True, True], [False, True, True], [False, False, True]]
    asked: list[list[int]] = []

    def allowed(emitted: Sequence[int]) -> Mask:
        asked.append([*emitted])
        return np.array(masks[len(emitted)])

    assert verify(logits, [0, 1], params, 0, [], allowed) == [0, 1, 2]
    assert asked == [[], [0], [0, 1]]
    asked.clear()
    assert verify(logits, [0, 0], params, 0, [], allowed) == [0, 1]
    assert asked == [[], [0]]

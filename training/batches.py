"""From dialogues to batches of windows, in an order that a seed decides."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.shards import Dialogue

HELD_OUT = 50
"""Every so manieth dialogue is for judging only."""
OTHERS_WEIGHT = 0.3
"""Of what the user said against what the target answered: less like it, but text all the same."""


Part = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]
"""Tokens of a window, and their weights."""


class Batch(NamedTuple):
    """``tokens [b, t]``, of which ``lengths [b]`` count; ``weights [b, t]`` of each as a label."""

    tokens: Tensor
    lengths: Tensor
    weights: Tensor


def split(dialogues: Sequence[Dialogue]) -> tuple[list[Dialogue], list[Dialogue]]:
    """For training, and held out; a dialogue's side never changes as more are sampled."""
    kept = [one for one in dialogues if one.number % HELD_OUT]
    return kept, [one for one in dialogues if not one.number % HELD_OUT]


def draft_vocabulary(dialogues: Sequence[Dialogue], size: int, target_vocab: int) -> Tensor:
    """The target's ids of the tokens it says most often, ascending: ``[size]``."""
    counts: Counter[int] = Counter()
    for one in dialogues:
        counts.update(one.tokens[one.own].tolist())
    frequent = [token for token, _ in counts.most_common(size)]
    rest = (token for token in range(target_vocab) if token not in counts)
    while len(frequent) < min(size, target_vocab):
        frequent.append(next(rest))
    return torch.tensor(sorted(frequent), dtype=torch.long)


def batches(
    dialogues: Sequence[Dialogue], *, window: int, tokens: int, seed: int
) -> Iterator[Batch]:
    """One pass: each window once, windows of like length together, batches in random order.

    A batch has at most ``tokens`` tokens, padding included; a longer window has one of its own.
    """
    chance = np.random.default_rng(seed)
    windows = [part for one in dialogues for part in _windows(one, window)]
    windows.sort(key=lambda part: len(part[0]) + chance.random() * 16)
    packs: list[list[Part]] = []
    longest = 0
    for part in windows:
        longest = max(longest, len(part[0]))
        if not packs or longest * (len(packs[-1]) + 1) > tokens:
            packs.append([])
            longest = len(part[0])
        packs[-1].append(part)
    for index in chance.permutation(len(packs)):
        yield _batch(packs[index])


def _windows(one: Dialogue, size: int) -> Iterator[Part]:
    """The same in every pass, for what the target computes of them is kept. Cut at a random place
    first, so that no part of a dialogue is always near a window's start."""
    shift = random.Random(one.number).randrange(size)
    weights = np.where(one.own, 1.0, OTHERS_WEIGHT).astype(np.float32)
    starts = [0] if len(one.tokens) <= size else [0, *range(shift, len(one.tokens), size)]
    for start, end in zip(starts, [*starts[1:], len(one.tokens)], strict=True):
        if end - start > 8:
            yield one.tokens[start:end], weights[start:end]


def _batch(parts: list[Part]) -> Batch:
    longest = max(len(tokens) for tokens, _ in parts)
    tokens = np.zeros((len(parts), longest), dtype=np.int64)
    weights = np.zeros((len(parts), longest), dtype=np.float32)
    for row, (ids, weight) in enumerate(parts):
        tokens[row, : len(ids)], weights[row, : len(ids)] = ids, weight
    lengths = torch.tensor([len(ids) for ids, _ in parts])
    return Batch(torch.from_numpy(tokens), lengths, torch.from_numpy(weights))

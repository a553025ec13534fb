"""Verification of a proposal: equality with the target's own samples, to the first mismatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.processing import Mask
from starsd.sampling.sampler import sample

ROOT = -1
"""The parent of a tree's first nodes: the last token before it."""


def verify(
    logits: npt.NDArray[np.float32],
    proposal: Sequence[int],
    params: SamplingParams,
    position: int,
    history: Sequence[int],
    allowed: Callable[[Sequence[int]], Mask] | None = None,
    *,
    parents: Sequence[int] | None = None,
) -> list[int]:
    """The tokens this forward emits: accepted ones, then the recovered or bonus token.

    ``logits`` is ``[len(proposal) + 1, vocabulary]``: row 0 predicts absolute ``position``, row
    ``1 + node`` what follows that node of the proposal. ``parents`` make it a tree of distinct
    siblings (-1: its top); None is a chain. The walk goes to the child that equals the target's
    sample while there is one, and rows beside it are not read. ``history`` is prompt and output
    before ``position``; ``allowed`` gives the mask after the tokens emitted so far, and is asked
    for rows read, in order. What is emitted equals plain sampling row by row, whatever the
    proposal; ``len(result) - 1`` were accepted. Raises EngineError for NaN in a row read, or if a
    mask leaves no token.
    """
    assert len(logits) == len(proposal) + 1
    children = _children(proposal, parents)
    emitted: list[int] = []
    node: int | None = ROOT
    while node is not None:
        row = node + 1
        mask = None if allowed is None else allowed(emitted)
        path = history if params.penalties is None else [*history, *emitted]
        emitted.append(sample(logits[row], params, position + len(emitted), path, mask))
        node = children.get((node, emitted[-1]))
    return emitted


def matched(
    proposal: Sequence[int], parents: Sequence[int] | None, sampled: Sequence[int]
) -> list[int]:
    """The nodes that such a walk goes along; they end where none equals the sample."""
    children, path = _children(proposal, parents), [ROOT]
    for token in sampled:
        if (node := children.get((path[-1], token))) is None:
            break
        path.append(node)
    return path[1:]


def _children(proposal: Sequence[int], parents: Sequence[int] | None) -> dict[tuple[int, int], int]:
    """Nodes by parent and token."""
    above = range(ROOT, len(proposal) - 1) if parents is None else parents
    return {(parent, proposal[node]): node for node, parent in enumerate(above)}

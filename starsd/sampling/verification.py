"""Verification of a proposal: equality with the target's own samples, to the first mismatch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.processing import Mask
from starsd.sampling.sampler import sample


def verify(
    logits: npt.NDArray[np.float32],
    proposal: Sequence[int],
    params: SamplingParams,
    position: int,
    history: Sequence[int],
    allowed: Sequence[Mask | None] | None = None,
) -> list[int]:
    """The tokens this forward emits: accepted ones, then the recovered or bonus token.

    ``logits`` is ``[len(proposal) + 1, vocabulary]``; row j was computed after ``proposal[:j]`` and
    predicts position ``position + j``. ``history`` is prompt and output before ``position``;
    ``allowed`` a mask per row. Rows after the first mismatch are not read. What is emitted equals
    plain sampling row by row, whatever the proposal; ``len(result) - 1`` were accepted. Raises
    EngineError for NaN in a row read, or if a mask leaves no token.
    """
    assert len(logits) == len(proposal) + 1
    path = list(history)
    for row, scores in enumerate(logits):
        mask = allowed[row] if allowed is not None else None
        path.append(sample(scores, params, position + row, path, mask))
        if row < len(proposal) and path[-1] != proposal[row]:
            break
    return path[len(history) :]

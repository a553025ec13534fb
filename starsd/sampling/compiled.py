"""The race in compiled code: the same winner as numpy's, where float32 can tell it for certain, and
the same ranks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import structlog

from starsd.compiler import library
from starsd.errors import ConfigError
from starsd.protocol.sampling import SamplingParams
from starsd.sampling.noise import Ids
from starsd.sampling.processing import Logits

SOURCE = Path(__file__).parent / "native" / "race.c"
_SAMPLING = (
    ctypes.c_uint64,
    ctypes.c_double,
    ctypes.c_int64,
    ctypes.c_double,
    ctypes.c_double,
    ctypes.c_int64,
)
_DRAW = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, *_SAMPLING)
_RANK = (
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int32,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    *_SAMPLING,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
log = structlog.get_logger()

_draw: Callable[..., int] | None = None
_rank: Callable[..., None] | None = None


class Ranked(NamedTuple):
    """Best first; ``confidences`` are those of all candidates together, so they add up to 1 at
    most."""

    tokens: list[int]
    confidences: list[float]


def install(cache_dir: Path) -> None:
    """From now on this process samples by compiled code where that is certain; no token changes.

    Without a compiler, or a place for what it makes, numpy goes on.
    """
    global _draw, _rank
    try:
        compiled = library(cache_dir, SOURCE)
    except (ConfigError, OSError) as error:
        log.warning("numpy samples, not compiled code", reason=str(error))
        return
    compiled.starsd_draw.argtypes = _DRAW
    compiled.starsd_rank.argtypes, compiled.starsd_rank.restype = _RANK, None
    _draw, _rank = compiled.starsd_draw, compiled.starsd_rank


def draw(logits: Logits, params: SamplingParams, position: int, considered: int) -> int | None:
    """The token that ``propose`` wants; None if it takes numpy to tell, or to say what is wrong."""
    if _draw is None or logits.dtype != np.float32 or params.seed >> 64:
        return None
    try:
        # far sooner there than ``logits.ctypes``
        first = ctypes.c_float.from_buffer(logits)  # type: ignore[arg-type]
    except TypeError:  # not contiguous, or read-only
        return None
    sampling = _sampling(params, considered)
    token = _draw(ctypes.addressof(first), len(logits), position, *sampling)
    return token if token >= 0 else None


def rank(
    logits: Logits,
    params: SamplingParams,
    positions: Sequence[int],
    considered: int,
    count: int,
    ids: Ids | None = None,
) -> list[Ranked | None]:
    """What ``ranking.rank`` says of each row of ``logits``, at its position; None as of ``draw``.
    Without penalties and bias."""
    rows = len(positions)
    layout = logits.dtype == np.float32 and logits.strides[1] == logits.itemsize
    if _rank is None or not layout or params.seed >> 64:
        return [None] * rows
    tokens, shares = (ctypes.c_int64 * (rows * count))(), (ctypes.c_double * (rows * count))()
    found = (ctypes.c_int32 * rows)()
    _rank(
        logits.ctypes.data,
        logits.strides[0] // logits.itemsize,
        rows,
        logits.shape[1],
        None if ids is None else ids.ctypes.data,
        (ctypes.c_uint32 * rows)(*positions),
        *_sampling(params, considered),
        count,
        tokens,
        shares,
        found,
    )
    starts = range(0, rows * count, count)
    return [
        Ranked(tokens[start : start + size], shares[start : start + size]) if size >= 0 else None
        for start, size in zip(starts, found, strict=True)
    ]


def _sampling(params: SamplingParams, considered: int) -> tuple[float, ...]:
    """As ``_SAMPLING`` has them."""
    return (
        params.seed,
        0.0 if params.greedy else params.temperature,
        params.top_k,
        params.top_p,
        math.log(params.min_p) if params.min_p > 0.0 else -math.inf,
        considered,
    )

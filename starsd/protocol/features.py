"""A target's hidden states on the wire: rows of little-endian bfloat16, by their bits."""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from starsd.errors import ProtocolError
from starsd.protocol.pods import BFLOAT16_BYTES

Rows = npt.NDArray[np.uint16]
"""``[positions, numbers]``."""

_EXPONENT = 0x7F80
_SWAP = sys.byteorder == "big"


def pack_features(rows: Rows) -> bytes:
    return (rows.byteswap() if _SWAP else rows).tobytes()


def unpack_features(data: bytes, width: int) -> Rows:
    """``[positions, width]``; read-only.

    Raises:
        ProtocolError: no whole rows, or a number that is not finite.
    """
    if len(data) % (BFLOAT16_BYTES * width):
        raise ProtocolError(f"features: {len(data)} bytes are no whole rows of {width} bfloat16")
    rows: Rows = np.frombuffer(data, "<u2").astype(np.uint16, copy=False).reshape(-1, width)
    if ((rows & _EXPONENT) == _EXPONENT).any():
        raise ProtocolError("features: infinite or no number")
    return rows

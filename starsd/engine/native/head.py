"""A draft head in the hands of decoder.c: one layer that reads tokens beside states."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from starsd.engine.interface import Features, Logits, Row, States
from starsd.engine.native.architecture import HeadArchitecture
from starsd.engine.native.decoder import POINTER, NativeDecoder
from starsd.engine.native.plan import fuse_product
from starsd.engine.native.store import Arrays, Weights
from starsd.errors import EngineError


class HeadDecoder(NativeDecoder):
    """``NativeDecoder`` of a ``HeadArchitecture``."""

    def __init__(
        self,
        library: ctypes.CDLL,
        of: HeadArchitecture,
        bits: int,
        arrays: Arrays,
        **sizes: int,
    ) -> None:
        """``arrays`` as in ``Weights``; ``sizes`` and errors as of ``NativeDecoder``."""
        super().__init__(library, Weights(of, bits, arrays), **sizes)
        self.of = of
        self._fuse = library.starsd_fuse
        self._fuse.argtypes = POINTER, POINTER, ctypes.c_int, POINTER
        self._model.state_norm = self._address("state_norm")
        self._model.norm_before_residual = of.norm_before_residual
        self._model.fuse = self._matrix(fuse_product(of, bits))

    def forward_beside(self, rows: Sequence[Row], states: States) -> tuple[Logits, States]:
        """``states [tokens, hidden]`` come with the rows' tokens. Of all wanted tokens: logits
        ``[wanted, draft vocabulary]``, next states ``[wanted, hidden]``. Raises EngineError."""
        states = np.ascontiguousarray(states, dtype=np.float32)
        guesses = np.empty((sum(row.want for row in rows), self.of.hidden_size), dtype=np.float32)
        self._model.states, self._model.guesses = states.ctypes.data, guesses.ctypes.data
        return self.forward(rows), guesses

    def fuse(self, features: Features) -> States:
        """``[n, features]`` to ``[n, hidden]``. Raises EngineError."""
        features = np.ascontiguousarray(features)
        states = np.empty((len(features), self.of.hidden_size), dtype=np.float32)
        model = ctypes.byref(self._model)
        if self._fuse(model, features.ctypes.data, len(features), states.ctypes.data):
            raise EngineError(f"states of {len(features)} positions: out of memory")
        return states

"""What the tests of the compiled decoder share."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from starsd.engine.native.architecture import read_architecture
from starsd.engine.native.packing import pack_model
from starsd.engine.native.source import Checkpoint, Source
from starsd.engine.native.store import Weights
from starsd.engine.native.tensors import mapped


def packed(folder: Path, bits: int, into: Path, source: Source | None = None) -> Weights:
    """Of the checkpoint in ``folder``, in a new file in ``into``."""
    of, file = read_architecture(folder), Path(mkdtemp(dir=into)) / "weights.safetensors"
    pack_model(file, of, bits, source or Checkpoint(folder))
    return Weights(of, bits, mapped(file))

"""Weights in torch's own format, in which the first draft heads were published."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from starsd.engine.native.tensors import Floats, Wholes
from starsd.errors import ConfigError

_KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


@dataclass(frozen=True)
class PickledTensor:
    """One tensor, mapped from its file where the file allows that."""

    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def kind(self) -> str:
        """As safetensors names it; types that are no floats of ours by torch's name."""
        return _KINDS.get(self.tensor.dtype, str(self.tensor.dtype))

    def rows(self, first: int, last: int) -> Floats:
        """``[last - first, ...]``."""
        found: Floats = self.tensor[first:last].float().numpy()
        return found

    def wholes(self) -> Wholes:
        """All of it."""
        found: Wholes = self.tensor.long().numpy()
        return found


def read_pickled(file: Path) -> dict[str, PickledTensor]:
    """Tensors by name. Nothing in the file is executed.

    Raises:
        ConfigError: it holds anything else, or is damaged.
    """
    try:
        found = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{file} does not load as weights: {reason}") from error
    if not isinstance(found, dict) or not all(isinstance(one, Tensor) for one in found.values()):
        raise ConfigError(f"{file} holds something else than tensors by name")
    return {name: PickledTensor(tensor) for name, tensor in found.items()}

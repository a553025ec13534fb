"""The weights of a draft head's checkpoint, and those that it shares with its target."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from starsd.engine.native.source import Checkpoint, Source
from starsd.engine.native.tensors import FLOATS, Floats, Wholes, read_header
from starsd.errors import ConfigError

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
_OF_TARGET = {
    EMBEDDING: ("model.embed_tokens.weight",),
    HEAD: ("lm_head.weight", "model.embed_tokens.weight"),
}
"""Where a target has what a head may lack; its own head may be its embedding."""


class Stored(Protocol):
    """One tensor of a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def kind(self) -> str:
        """Type, as safetensors names it."""

    def rows(self, first: int, last: int) -> Floats: ...

    def wholes(self) -> Wholes: ...


class HeadWeights:
    """``starsd.engine.native.source.Source`` of a head, by transformers' names.

    What checkpoints call ``midlayer`` is layer 0, and ``model.`` before a name means nothing.
    """

    def __init__(self, folder: Path, target: Path) -> None:
        """Raises ConfigError: no weights, or files that cannot be read."""
        self._own = {_canonical(name): one for name, one in stored_in(folder).items()}
        self._target_folder = target
        self._target: Source | None = None

    @property
    def shared(self) -> tuple[str, ...]:
        """What comes from the target."""
        return tuple(name for name in _OF_TARGET if name not in self._own)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """None: there are no such weights, nor may they be the target's."""
        name = _canonical(name)
        if name in self._own:
            one = self._own[name]
            return one.shape if one.kind in FLOATS else None
        shared = self._shared(name)
        return None if shared is None else self._source.shape(shared)

    def rows(self, name: str, first: int, last: int) -> Floats:
        """``[last - first, ...]``. Raises ConfigError."""
        name = _canonical(name)
        if name in self._own:
            return self._own[name].rows(first, last)
        shared = self._shared(name)
        if shared is None:
            raise ConfigError(f"a draft head without {name}")
        return self._source.rows(shared, first, last)

    def whole(self, name: str) -> Floats:
        """All of a tensor that is there. Raises ConfigError."""
        return self.rows(name, 0, (self.shape(name) or (0,))[0])

    def wholes(self, name: str) -> Wholes | None:
        """Whole numbers or flags; None: not there. Raises ConfigError."""
        return self._own[name].wholes() if name in self._own else None

    @property
    def _source(self) -> Source:
        if self._target is None:
            self._target = Checkpoint(self._target_folder)
        return self._target

    def _shared(self, name: str) -> str | None:
        found = (one for one in _OF_TARGET.get(name, ()) if self._source.shape(one) is not None)
        return next(found, None)


def stored_in(folder: Path) -> dict[str, Stored]:
    """All tensors of ``folder``, from safetensors or else from torch's own files.

    Raises:
        ConfigError: neither is there, or they cannot be read.
    """
    if files := sorted(folder.glob("*.safetensors")):
        return {name: one for file in files for name, one in read_header(file).items()}
    if files := sorted(folder.glob("*.bin")):
        from starsd.engine.eagle.pickled import read_pickled  # torch takes seconds to import

        return {name: one for file in files for name, one in read_pickled(file).items()}
    raise ConfigError(f"draft head in {folder}: no *.safetensors and no *.bin")


def _canonical(name: str) -> str:
    return name.removeprefix("model.").replace("midlayer.", "layers.0.")

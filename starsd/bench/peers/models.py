"""The same weights for everybody: our checkpoint folder, and what other formats are made of it.

The engine is imported where it is needed: the command line works without its packages.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from starsd.bench.peers.envs import Environment, run
from starsd.errors import UnavailableError
from starsd.settings.model import ModelSettings


@dataclass(frozen=True)
class Models:
    """``name`` as in STARSD_MODEL, ``folder`` its safetensors, ``cache`` for the converted."""

    name: str
    folder: Path
    cache: Path

    def gguf(self) -> Path:
        """The file the bundled model was converted from. Raises UnavailableError for others."""
        from starsd.engine import checkpoint

        if self.name != checkpoint.BUNDLED:
            raise UnavailableError(f"there is a GGUF file of {checkpoint.BUNDLED} only")
        return checkpoint.bundled_file()

    def openvino(self, environment: Environment, weights: str) -> Path:
        """Exported on first use by optimum, in half a minute and more. Raises UnavailableError."""
        from starsd.engine import checkpoint

        revision = checkpoint.weights_revision(self.folder)
        folder = self.cache.expanduser() / f"openvino-{weights}-{revision}"
        if not folder.is_dir():
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            tool = environment.folder / "bin" / "optimum-cli"
            task = ("--task", "text-generation-with-past", "--weight-format", weights)
            run([tool, "export", "openvino", "--model", self.folder, *task, partial])
            partial.rename(folder)
        return folder


def find(name: str, cache: Path) -> Models:
    """Raises ConfigError."""
    from starsd.engine import checkpoint

    return Models(name, checkpoint.resolve_checkpoint(ModelSettings(model=name)), cache)

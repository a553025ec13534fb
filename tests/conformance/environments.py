"""Each client's own environment, in the cache folder: made once for what it pins."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from starsd.settings.model import ModelSettings

CLIENTS = Path(__file__).parent / "clients"
INSTALL_S = 900.0
_DONE = ".done"


def python_environment(name: str) -> Path:
    """Its ``bin``, with what ``requirements/NAME.txt`` pins. Raises CalledProcessError."""
    pins = requirements(name)
    folder = _folder(name, pins)
    if not (folder / _DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        _call(sys.executable, "-m", "venv", str(folder))
        _call(str(folder / "bin" / "pip"), "install", "-qq", "-r", str(pins))
        (folder / _DONE).touch()
    return folder / "bin"


def node_environment() -> Path:
    """A folder with node_modules and our scripts. Raises CalledProcessError."""
    sources = CLIENTS / "node"
    folder = _folder("node_modules", sources / "package-lock.json")
    if not (folder / _DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sources, folder)
        binaries = python_environment("node")
        _call(str(binaries / "npm"), "ci", "--no-audit", "--no-fund", cwd=folder, path=binaries)
        (folder / _DONE).touch()
    shutil.copytree(sources, folder, dirs_exist_ok=True)
    return folder


def requirements(name: str) -> Path:
    return CLIENTS / "requirements" / f"{name}.txt"


def _folder(name: str, pins: Path) -> Path:
    cache: Path = ModelSettings.model_fields["cache_dir"].default.expanduser()
    digest = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache / "conformance" / f"{name}-{digest}"


def _call(*command: str, cwd: Path | None = None, path: Path | None = None) -> None:
    environment = {"PATH": f"{path}:/usr/bin:/bin"} if path else {}
    subprocess.run(
        command, check=True, timeout=INSTALL_S, cwd=cwd, env={**os.environ, **environment}
    )

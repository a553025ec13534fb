"""Compiles C for this machine, once; the result is kept beside the models."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from starsd.errors import ConfigError

FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC", "-ffp-contract=off", "-Wno-psabi")
SHARED = Path(__file__).with_name("vector.h")
"""What all sources may include."""
COMPILE_S = 120.0
_HINT = "set CC, install gcc or clang, or pip install 'starsd[native]'"


def library(cache_dir: Path, source: Path, arch: str = "native") -> ctypes.CDLL:
    """``source``, compiled (for ``-march=arch``) with the headers beside it and ``vector.h`` unless
    ``cache_dir`` has it.

    Raises:
        ConfigError: no C compiler, or it fails; or ``cache_dir`` takes no file.
    """
    compiler = find_compiler()
    path = cache_dir.expanduser() / "native" / f"{source.stem}-{_key(source, compiler, arch)}.so"
    if not path.exists():  # the folder may be one that we only read
        _compile_once(source, compiler, arch, path)
    return ctypes.CDLL(str(path))


def _compile_once(source: Path, compiler: tuple[str, ...], arch: str, path: Path) -> None:
    from filelock import FileLock, Timeout  # comes with the engine; the command line does without

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=COMPILE_S):
            if not path.exists():
                _compile(source, compiler, arch, path)
    except Timeout:
        raise ConfigError(f"{path}: another process compiles it for over {COMPILE_S} s") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: {error}; set STARSD_CACHE_DIR to a folder with room", param="STARSD_CACHE_DIR"
        ) from error


def find_compiler() -> tuple[str, ...]:
    """``$CC``, a compiler on the path, or the one in the ``ziglang`` package.

    Raises:
        ConfigError: there is none.
    """
    if chosen := os.environ.get("CC"):
        return tuple(shlex.split(chosen))
    for name in ("gcc", "clang", "cc"):
        if found := shutil.which(name):
            return (found,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise ConfigError(f"needs a C compiler here: {_HINT}")


def _key(source: Path, compiler: tuple[str, ...], arch: str) -> str:
    """Of all that the result depends on; a cache folder may be shared by unlike machines."""
    texts = (path.read_text() for path in (source, SHARED, *sorted(source.parent.glob("*.h"))))
    facts = (*texts, *FLAGS, *compiler, arch, _cpu())
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _cpu() -> str:
    """What -march=native looks at."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _compile(source: Path, compiler: tuple[str, ...], arch: str, path: Path) -> None:
    """With OpenMP where the compiler has it; without, there is one thread."""
    part = path.with_suffix(".part")
    if "ziglang" in compiler:  # its names for architectures
        arch = arch.replace("-", "_")
    places = [f"-I{SHARED.parent}", str(source), "-o", str(part)]
    flags = [*FLAGS, f"-march={arch}", *places, "-lm"]
    errors = _run(compiler, "-fopenmp", *flags)
    if errors is not None:
        errors = _run(compiler, *flags)
    if errors is not None:
        raise ConfigError(f"C compiler {compiler[0]} fails: {errors[-500:]}; {_HINT}")
    part.replace(path)


def _run(compiler: tuple[str, ...], *arguments: str) -> str | None:
    """What it says against these arguments; None if they are fine."""
    with tempfile.TemporaryDirectory() as scratch:
        zig = {"ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
        try:
            done = subprocess.run(
                [*compiler, *arguments],
                capture_output=True,
                text=True,
                timeout=COMPILE_S,
                env={**os.environ, **zig},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"C compiler {compiler[0]}: {error}; {_HINT}") from error
    return done.stderr if done.returncode else None

"""Compilers, and what they compile for: vectors have three sizes, and a machine has one."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

import pytest

from starsd import compiler

_CPU = Path("/proc/cpuinfo")
COMPILERS = {"first compiler found": "native", "packaged compiler": "native"}
"""Architectures."""
if platform.machine() == "x86_64":
    COMPILERS["packaged compiler"] = "x86-64"
    if _CPU.exists() and " avx2 " in _CPU.read_text():
        COMPILERS["packaged compiler for AVX2"] = "x86-64-v3"


def compiled_by(name: str, cache_dir: Path, source: Path) -> ctypes.CDLL:
    with pytest.MonkeyPatch.context() as patch:
        if "packaged" in name:
            patch.setenv("CC", f"{sys.executable} -m ziglang cc")
        return compiler.library(cache_dir, source, COMPILERS[name])

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from starsd.engine.native import build
from starsd.errors import ConfigError


def test_it_compiles_once(tmp_path: Path) -> None:
    build.library(tmp_path)
    [first] = (tmp_path / "native").glob("*.so")
    written = first.stat().st_mtime_ns
    build.library(tmp_path)
    assert [path.stat().st_mtime_ns for path in (tmp_path / "native").glob("*.so")] == [written]


def test_another_architecture_is_another_file(tmp_path: Path) -> None:
    build.library(tmp_path)
    build.library(tmp_path, "x86-64" if platform.machine() == "x86_64" else "armv8-a")
    assert len(list((tmp_path / "native").glob("*.so"))) == 2


def test_the_users_compiler_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "my-cc -m64")
    assert build.find_compiler() == ("my-cc", "-m64")


def test_the_packaged_compiler_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(build, "find_spec", lambda _: object())
    assert build.find_compiler() == (sys.executable, "-m", "ziglang", "cc")
    monkeypatch.setattr(build, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="needs a C compiler"):
        build.find_compiler()


@pytest.mark.parametrize(
    ("compiler", "said"), [("no-such-compiler", "No such file"), ("false", "fails")]
)
def test_a_compiler_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, said: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    with pytest.raises(ConfigError, match=f"C compiler {compiler}.*{said}"):
        build.library(tmp_path)
    assert not list((tmp_path / "native").glob("*.so"))

from __future__ import annotations

import platform
import sys
from pathlib import Path

import filelock
import pytest

from starsd import compiler
from starsd.errors import ConfigError


def source(folder: Path, header: str = "1") -> Path:
    (folder / "answer.h").write_text(f"#define ANSWER {header}\n")
    path = folder / "answer.c"
    path.write_text('#include "answer.h"\nint answer(void) { return ANSWER; }\n')
    return path


def test_it_compiles_once(tmp_path: Path) -> None:
    compiler.library(tmp_path, source(tmp_path))
    [first] = (tmp_path / "native").glob("*.so")
    written = first.stat().st_mtime_ns
    compiler.library(tmp_path, source(tmp_path))
    assert [path.stat().st_mtime_ns for path in (tmp_path / "native").glob("*.so")] == [written]


def refuse(*_: object, **__: object) -> None:
    raise PermissionError("not yours")


def test_what_is_there_needs_no_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.library(tmp_path, source(tmp_path))
    monkeypatch.setattr(filelock, "FileLock", refuse)
    compiler.library(tmp_path, source(tmp_path))


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="STARSD_CACHE_DIR"):
        compiler.library(tmp_path / "file", source(tmp_path))


def test_a_changed_header_is_another_library(tmp_path: Path) -> None:
    assert compiler.library(tmp_path, source(tmp_path, "7")).answer() == 7
    assert compiler.library(tmp_path, source(tmp_path, "8")).answer() == 8


def test_another_architecture_is_another_file(tmp_path: Path) -> None:
    compiler.library(tmp_path, source(tmp_path))
    compiler.library(
        tmp_path, source(tmp_path), "x86-64" if platform.machine() == "x86_64" else "armv8-a"
    )
    assert len(list((tmp_path / "native").glob("*.so"))) == 2


def test_the_users_compiler_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "my-cc -m64")
    assert compiler.find_compiler() == ("my-cc", "-m64")


def test_the_packaged_compiler_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(compiler, "find_spec", lambda _: object())
    assert compiler.find_compiler() == (sys.executable, "-m", "ziglang", "cc")
    monkeypatch.setattr(compiler, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="needs a C compiler"):
        compiler.find_compiler()


@pytest.mark.parametrize(
    ("command", "said"), [("no-such-compiler", "No such file"), ("false", "fails")]
)
def test_a_compiler_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.setenv("CC", command)
    with pytest.raises(ConfigError, match=f"C compiler {command}.*{said}"):
        compiler.library(tmp_path, source(tmp_path))
    assert not list((tmp_path / "native").glob("*.so"))

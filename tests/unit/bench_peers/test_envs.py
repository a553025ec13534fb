"""With a real venv and a real pip, and packages made here."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from starsd.bench.peers import envs
from starsd.bench.peers.envs import Environment, Recipe
from starsd.errors import UnavailableError


def wheel(folder: Path, name: str, *requirements: str) -> None:
    """An empty distribution of version 1.0."""
    info = f"{name}-1.0.dist-info"
    required = "".join(f"Requires-Dist: {line}\n" for line in requirements)
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{required}"
        archive.writestr(f"{info}/METADATA", head)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that pip finds."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(
        folder, "peer", "wanted>=0.5", "broken", "extra-only; extra == 'x'", "other; os_name=='nt'"
    )
    wheel(folder, "wanted", "deeper")
    wheel(folder, "deeper")
    wheel(folder, "broken")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


@pytest.fixture
def shadowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that only we see."""
    folder = tmp_path / "ours"
    (folder / "deeper-1.0.dist-info").mkdir(parents=True)
    head = "Metadata-Version: 2.1\nName: deeper\nVersion: 1.0\n"
    (folder / "deeper-1.0.dist-info" / "METADATA").write_text(head)
    monkeypatch.setenv("PYTHONPATH", str(folder))


RECIPE = Recipe("one", ("peer", "wanted", "deeper"), alone="peer==1.0", without=("broken",))


def installed(environment: Environment) -> set[str]:
    """Without pip itself."""
    folder = next(environment.folder.glob("lib/python*/site-packages"))
    names = {path.name.partition("-")[0] for path in folder.glob("*.dist-info")}
    return names - {"pip", "setuptools", "wheel"}


@pytest.mark.usefixtures("index", "shadowed")
def test_made_once_kept_and_made_anew_when_the_recipe_changes(tmp_path: Path) -> None:
    environment = envs.ensure(RECIPE, tmp_path)
    assert environment.versions == {"peer": "1.0", "wanted": "1.0", "deeper": "1.0"}
    assert installed(environment) == {"peer", "wanted", "deeper"}
    mark = environment.folder / "mark"
    mark.touch()
    assert envs.ensure(RECIPE, tmp_path) == environment
    assert mark.exists()
    envs.ensure(replace(RECIPE, shown=("broken",), alone="", packages=("broken",)), tmp_path)
    assert not mark.exists()
    assert installed(environment) == {"broken"}


@pytest.mark.usefixtures("index")
def test_what_cannot_be_installed_says_why_and_is_tried_again(tmp_path: Path) -> None:
    missing = Recipe("two", ("absent",), packages=("absent==3",))
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"ERROR: No matching distribution .*absent==3"):
            envs.ensure(missing, tmp_path)


def test_a_command_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "INSTALL_TIMEOUT_S", 0.2)
    with pytest.raises(UnavailableError, match="sleep 60 took over 0 s"):
        envs.run(["sleep", "60"])

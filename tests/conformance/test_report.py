"""The page that ``make conformance`` writes, and what it pins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.environments import CLIENTS
from tests.conformance.report import Outcome, Result, page, read
from tests.conformance.run import NODE_CLIENTS, PYTHON_CLIENTS, Client

JUNIT = """<testsuites><testsuite><testcase name="good"/>
<testcase name="bad"><failure message="want `1`&#10; got 2">trace</failure></testcase>
<testcase name="broken"><error message="no server"/></testcase>
<testcase name="left"><skipped message="no images"/></testcase></testsuite></testsuites>"""


def test_every_outcome_has_its_reason(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(JUNIT)
    assert read(junit) == [
        Outcome("good", "passed"),
        Outcome("bad", "failed", "want `1` got 2"),
        Outcome("broken", "failed", "no server"),
        Outcome("left", "skipped", "no images"),
    ]
    text = page([Result("a client", "1.0", read(junit))])
    assert "| a client | 1.0 | 1 | 2 | 1 |" in text
    assert "- a client, bad: `want '1' got 2`" in text
    assert "## Skipped\n\n- a client, left: `no images`" in text


@pytest.mark.parametrize("client", [*PYTHON_CLIENTS, *NODE_CLIENTS], ids=lambda one: one.name)
def test_every_client_is_pinned_and_has_tests(client: Client) -> None:
    assert client.version[0].isdigit()
    folder, suffix = (CLIENTS / "node", ".mjs") if client.node else (CLIENTS, ".py")
    assert (folder / f"check_{client.name}{suffix}").exists()


def test_the_lock_is_of_what_is_pinned() -> None:
    package, lock = (
        json.loads((CLIENTS / "node" / name).read_text())
        for name in ("package.json", "package-lock.json")
    )
    for name, version in package["dependencies"].items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version

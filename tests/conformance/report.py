"""What clients' test runs found (JUnit XML), as docs/conformance.md."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HEAD = """# Clients of the API

`make conformance` ran these against a gateway with three models, each with two targets and a hub,
over a real Redis, with speculation on: a scripted model that repeats the last message, so that
answers are known; one that answers what LangChain's suite asks; and SmolLM2 135M. Versions are
pinned in [tests/conformance/clients](../tests/conformance/clients). The run wrote this page.

| client | version | passed | failed | skipped |
|---|---|---|---|---|
"""
TAIL = """
## With speculation and without

First, 300 random requests said the same both ways, through gateway and Redis
([test_differential.py](../tests/conformance/test_differential.py)): text, tokens, ends, calls,
usage, log probabilities. By hand it was tried what makes the 60 of them that CI asks fail:

- one token too many accepted, a token of another branch accepted, an n-gram taken on trust;
- a tree's keys and values not compacted, or one position too many kept;
- noise one position off, or by a tree's node instead of its depth;
- penalties without the proposal's tokens, or with another branch's; bias in the first row only;
- the mask of the row before, or of the first; a grammar that misses tokens;
- log probabilities of another row;
- usage or log probabilities that go on after a stop; a lost fragment of a call.

What both ways would do alike does not show here: choices with one seed (`test_d4`).
"""
REASON_CHARS = 300


@dataclass(frozen=True)
class Outcome:
    """``reason`` is empty where it passed."""

    test: str
    kind: str
    reason: str = ""


@dataclass(frozen=True)
class Result:
    client: str
    version: str
    outcomes: Sequence[Outcome]

    def of(self, kind: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.kind == kind]

    @property
    def row(self) -> str:
        counts = [str(len(self.of(kind))) for kind in ("passed", "failed", "skipped")]
        return f"| {' | '.join((self.client, self.version, *counts))} |"


def read(junit: Path) -> list[Outcome]:
    """Every test of a file. Raises OSError, ParseError."""
    return [_outcome(case) for case in ET.parse(junit).iter("testcase")]


def _outcome(case: ET.Element) -> Outcome:
    test = case.get("name", "")
    for tag, kind in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            reason = " ".join((found.get("message") or found.text or "").split())
            return Outcome(test, kind, reason[:REASON_CHARS] or "no reason given")
    return Outcome(test, "passed")


def page(results: Sequence[Result]) -> str:
    rows = "\n".join(result.row for result in results)
    parts = [_part(results, kind) for kind in ("failed", "skipped")]
    return HEAD + rows + "\n" + "".join(parts) + TAIL


def _part(results: Sequence[Result], kind: str) -> str:
    """Each test of that kind with its reason."""
    lines = [
        f"- {result.client}, {outcome.test}: {_code(outcome.reason)}"
        for result in results
        for outcome in result.of(kind)
    ]
    return f"\n## {kind.title()}\n\n" + ("\n".join(lines) or "None.") + "\n"


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"

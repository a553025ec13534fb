"""What README.md and docs/ name exists: files, tests, commands, settings, metrics, fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from services.draft.stats import HubStats
from services.gateway.metrics import GatewayMetrics
from services.gateway.pool import Pool
from services.gateway.unserved import CHAT, COMPLETION
from services.target.stats import StarStats
from starsd.bench.report import report
from starsd.cli.main import app
from starsd.metrics import RequestMetrics, exposition
from starsd.protocol.keys import Keys
from starsd.protocol.messages import (
    Close,
    Facts,
    Have,
    Hello,
    Limits,
    Proposal,
    Propose,
    Refused,
    Status,
    Welcome,
)
from starsd.protocol.sampling import SamplingParams
from starsd.settings.loading import known_variables

ROOT = Path(__file__).parents[2]
README, STRUCTURE = ROOT / "README.md", ROOT / "docs" / "structure.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
MESSAGES: list[Any] = [Hello, Welcome, Refused, Propose, Proposal, Close]
PARTS = {"facts": Facts, "limits": Limits, "sampling": SamplingParams, "have": Have}

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def links(document: Path) -> Iterator[tuple[str, Path, str]]:
    """Text, file and anchor of every relative link."""
    for text, target in re.findall(r"\[([^\]]+)\]\(([^)\s]+)\)", document.read_text()):
        if not target.startswith(("http://", "https://")):
            name, _, anchor = target.partition("#")
            yield text, (document.parent / name).resolve() if name else document, anchor


def anchors(document: Path) -> set[str]:
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(heading: str) -> str:
    """What the structure page says under a heading, smaller headings included."""
    found = re.search(rf"^(##+) {re.escape(heading)}\n(.*)", STRUCTURE.read_text(), re.M | re.S)
    assert found is not None, heading
    return re.split(rf"^#{{2,{len(found[1])}}} ", found[2], flags=re.M)[0]


def rows(heading: str) -> Iterator[list[str]]:
    """Cells of the rows of its table, whose first cell is code."""
    for line in section(heading).splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def code(document: Path) -> list[str]:
    """Lines of code blocks, and code spans."""
    text = document.read_text()
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [*spans, *(line for block in blocks for line in block.splitlines())]


# Files and tests


@each_document
def test_relative_links_resolve(document: Path) -> None:
    for text, path, anchor in links(document):
        assert path.exists(), text
        assert not anchor or anchor in anchors(path), text


def test_every_module_is_listed_under_its_own_path() -> None:
    found = re.findall(r"^- \[(.+)\]\(\.\./(.+)\): .", section("Modules"), re.M)
    files = [
        path for top in ("starsd", "services", "training") for path in (ROOT / top).rglob("*.py")
    ]
    modules = {str(path.relative_to(ROOT)) for path in files if path.read_text()}
    assert {target for _, target in found} == modules
    assert [text.replace("\\", "") for text, _ in found] == [target for _, target in found]


def test_functions_and_tests_named_by_a_link_are_in_its_file() -> None:
    checked = 0
    for text, path, _ in links(STRUCTURE):
        name = text.strip("`").rpartition(".")[2]
        if path.suffix == ".py" and name.isidentifier() and "/" not in text and name != path.stem:
            assert re.search(rf"\b(def|class) {name}\b", path.read_text()), text
            checked += 1
    assert checked > 40


def test_a_request_lives_in_eight_steps() -> None:
    assert re.findall(r"^(\d+)\. ", section("The life of a request"), re.M) == [
        str(number) for number in range(1, 9)
    ]


# The wire


def test_the_wire_table_has_the_fields_of_each_kind() -> None:
    table = {cells[0].strip("`"): cells[2] for cells in rows("Kinds")}
    for message in MESSAGES:
        listed = table[message.__struct_config__.tag]
        parts = dict(re.findall(r"(\w+)\{([^}]*)\}", listed))
        outer = re.sub(r"\{[^}]*\}", "", listed).split(", ")
        assert tuple(outer) == message.__struct_fields__[1:]
        for name, inner in parts.items():
            assert tuple(inner.split(", ")) == PARTS[name].__struct_fields__


def test_every_status_is_explained() -> None:
    assert [cells[0].strip("`") for cells in rows("Statuses")] == list(Status)


def test_every_key_is_listed() -> None:
    keys = Keys("starsd")
    assert {cells[0].strip("`") for cells in rows("Keys")} == {
        keys.offer_queue("<offer>"),
        keys.hub_queue("<hub>"),
        keys.reply_stream("<target>", "<boot>"),
        keys.pods,
        keys.pod("<id>"),
        keys.dead_letters,
    }


# Commands, settings, metrics, results


def test_the_table_of_drafts_is_that_of_its_result() -> None:
    text = report([ROOT / "bench" / "results" / "draft.json"])
    (table, *_) = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table in (ROOT / "docs" / "draft.md").read_text()


def commands(command: Any, name: str = "starsd") -> Iterator[tuple[str, set[str]]]:
    """Every command and its options."""
    yield name, {one for two in command.params for one in (*two.opts, *two.secondary_opts)}
    for word, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {word}")


OTHER_PROGRAMS = ("docker ", "helm ", "kubectl ", "locust ", "make ")
COMMANDS = dict(commands(get_command(app)))


@each_document
def test_commands_and_their_options_exist(document: Path) -> None:
    for line in code(document):
        if line.startswith(OTHER_PROGRAMS):
            continue
        options = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", line))
        if called := re.search(r"(?:^|[ /])(starsd(?: [a-z-]+)+)", line):
            name = longest_command(called[1])
            assert name != "starsd", line
            assert options <= COMMANDS[name], line
        assert options <= set().union(*COMMANDS.values()), line


def longest_command(words: str) -> str:
    while words not in COMMANDS:
        words = words.rpartition(" ")[0]
    return words


@each_document
def test_variables_exist(document: Path) -> None:
    named = set(re.findall(r"\bSTARSD_[A-Z0-9_]*[A-Z0-9]", document.read_text()))
    assert named - known_variables() == set()


def test_metrics_in_the_readme_exist() -> None:
    registry = CollectorRegistry()
    RequestMetrics(registry)
    texts = [HubStats().exposition(), StarStats().exposition(), exposition(registry)]
    texts.append(GatewayMetrics(Pool(())).exposition())
    kinds = {
        family.name: family.type
        for text in texts
        for family in text_string_to_metric_families(text.decode())
    }
    exposed = {f"{name}_total" if kind == "counter" else name for name, kind in kinds.items()}
    named = set(re.findall(r"`(starsd:\w+)`", README.read_text()))
    assert len(named) > 10
    assert named - exposed == set()


def test_what_the_readme_says_is_refused_is_refused() -> None:
    paragraph = README.read_text().split("Refused with 400")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", paragraph))
    assert {"functions", "suffix"} <= named
    assert named <= {*CHAT, *COMPLETION}

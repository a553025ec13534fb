"""docs/benchmarks.md from the files that benchmarks wrote: the same tables, in Markdown."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from starsd.bench import profile_result, profile_tables, speed_result, speed_tables
from starsd.bench.draft import result as draft_result
from starsd.bench.draft import tables as draft_tables
from starsd.bench.engine import result as engine_result
from starsd.bench.engine import tables as engine_tables
from starsd.bench.peers import result as peers_result
from starsd.bench.scale import result as scale_result
from starsd.bench.scale import tables as scale_tables
from starsd.errors import ConfigError

WIDTH = 400
"""A row of a Markdown table is one line."""


@dataclass(frozen=True)
class Kind:
    """How a benchmark's result is shown."""

    result: type[Any]
    tables: Callable[[Any], Iterable[Table]]
    lines: Callable[[Any], Iterable[str]]


KINDS: Mapping[str, Kind] = {
    "draft": Kind(draft_result.Result, draft_tables.tables, draft_tables.lines),
    "engine": Kind(engine_result.Result, engine_tables.tables, engine_tables.lines),
    "peers": Kind(
        peers_result.PeersResult,
        lambda result: [peers_result.table(result)],
        peers_result.remarks,
    ),
    "profile": Kind(profile_result.Result, profile_tables.tables, profile_tables.lines),
    "scale": Kind(scale_result.Result, scale_tables.tables, scale_tables.lines),
    "speed": Kind(speed_result.Result, speed_tables.tables, speed_tables.lines),
}
"""By command."""


def report(files: Iterable[Path]) -> str:
    """A section for each file, in their order, with a link to it as seen from a folder beside.

    Raises ConfigError for a file that is no result.
    """
    return "\n".join(line for file in files for line in _section(file))


def _section(file: Path) -> Iterator[str]:
    raw = _read(file)
    kind = KINDS[raw["kind"]]
    try:
        result = msgspec.convert(raw, type=kind.result)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: a {raw['kind']} result of another version ({error})") from error
    yield f"## `starsd bench {raw['kind']}`, {raw['machine']['date'][:10]}\n"
    yield f"`{_command(raw)}`; raw data in [{file.name}]({Path('..', file).as_posix()})\n"
    for table in kind.tables(result):
        yield from _markdown(table)
    yield from (f"- {line}" for line in kind.lines(result))
    yield ""


def _read(file: Path) -> dict[str, Any]:
    try:
        raw: Any = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(raw, dict) or raw.get("kind") not in KINDS:
        raise ConfigError(f"{file}: not written by starsd bench --out")
    return raw


def _command(raw: Mapping[str, Any]) -> str:
    """The command line without the folders of the machine it ran on."""
    program, _, rest = raw["machine"]["command"].partition(" ")
    return f"{Path(program).name} {rest}"


def _markdown(table: Table) -> Iterator[str]:
    title, table.title, table.box = table.title, None, box.MARKDOWN
    if title:
        yield f"{title}:\n"
    text = io.StringIO()
    Console(file=text, width=WIDTH, no_color=True).print(table)
    yield "\n".join(line.strip() for line in text.getvalue().splitlines() if line.strip()) + "\n"

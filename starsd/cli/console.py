"""What the CLI prints: children's log lines with names and colours, and our own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from starsd.bench import record
from starsd.errors import ConfigError, StarsdError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OURS = "star"
COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_magenta")


class LogView:
    """Lines to stderr, each led by the coloured name of who said it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._width = max(map(len, (*names, OURS)))
        self._styles = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}

    def show(self, name: str, line: str) -> None:
        lead = (f"{name:<{self._width}} | ", self._styles.get(name, "bold"))
        # Text, not markup: a log line may contain brackets.
        self._console.print(Text.assemble(lead, Text.from_ansi(line)), soft_wrap=True)

    def say(self, line: str) -> None:
        """A line of our own."""
        self.show(OURS, line)

    def ready(self, name: str, seconds: float) -> None:
        self.say(f"{name} is ready after {seconds:.1f} s")


def fail(message: str, code: int) -> NoReturn:
    """Say why on stderr, and end with ``code``."""
    Console(stderr=True, highlight=False).print(Text(f"starsd: {message}", "red"), soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def told() -> Iterator[None]:
    """Our errors as one line and an exit code: 2 for a bad setting, 1 for the rest."""
    try:
        yield
    except ConfigError as error:
        fail(error.message, 2)
    except StarsdError as error:
        fail(error.message, 1)


def show(result: DataclassInstance, parts: Iterable[Table | str], *, as_json: bool) -> None:
    """A benchmark's tables and lines for people; with ``as_json`` on stderr, and JSON on stdout."""
    console = Console(stderr=as_json, highlight=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    if as_json:
        typer.echo(record.as_line(result))

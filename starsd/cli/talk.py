"""A dialogue on the terminal: questions read, answers coloured, figures after each."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from starsd.cli.chat import Dialogue
from starsd.errors import StarsdError

STYLES = {"accepted": "green", "recovered": "yellow", "bonus": "yellow"}
"""By origin of a token; plain ones have none."""
PROMPT = "> "


def talk(dialogue: Dialogue, text: str = "") -> None:
    """Ask ``text`` or, if that is empty, what the user types, until the end of input.

    Raises StarsdError for the one question; in a dialogue errors are shown and it goes on.
    """
    answers, figures = Console(highlight=False), Console(stderr=True, highlight=False)
    if text:
        _ask(dialogue, text, answers, figures)
        return
    while (question := _read(figures)) is not None:
        try:
            if question:
                _ask(dialogue, question, answers, figures)
        except StarsdError as error:
            figures.print(Text(error.message, "red"))


def _ask(dialogue: Dialogue, text: str, answers: Console, figures: Console) -> None:
    def show(piece: str, origin: str | None) -> None:
        if answers.is_terminal:
            answers.print(Text(piece, STYLES.get(origin or "", "")), end="", soft_wrap=True)
        else:  # as it is: a console turns tabs into spaces
            answers.file.write(piece)
            answers.file.flush()

    report = dialogue.ask(text, show)
    answers.print()
    figures.print(Text(report.summary(), "dim"), soft_wrap=True)


def _read(console: Console) -> str | None:
    """One line; None at the end of input, or after Ctrl-C."""
    try:
        return console.input(PROMPT).strip()
    except (EOFError, KeyboardInterrupt):
        console.print()
        return None

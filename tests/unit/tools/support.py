"""Running a parser over a text in pieces, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from starsd.tools.formats import MARKUP, ToolFormat
from starsd.tools.parser import ToolParser
from starsd.tools.pieces import Arguments, Broken, Called, Piece, Text

HERMES, LLAMA, MISTRAL = ToolFormat


def parse(
    form: ToolFormat, parts: Sequence[str] | str, names: Collection[str] | None = None
) -> list[Piece]:
    """Neighbouring texts, and fragments of one call, joined. A string is pushed as a whole."""
    parser = ToolParser(MARKUP[form], names)
    pieces: list[Piece] = []
    for part in [parts] if isinstance(parts, str) else parts:
        pieces += parser.push(part)
    return joined([*pieces, *parser.finish()])


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    whole: list[Piece] = []
    for piece in pieces:
        last = whole[-1] if whole else None
        if isinstance(last, Text) and isinstance(piece, Text):
            whole[-1] = Text(last.text + piece.text)
        elif isinstance(last, Arguments) and isinstance(piece, Arguments):
            whole[-1] = Arguments(last.index, last.text + piece.text)
        else:
            whole.append(piece)
    return whole


def calls(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Names and arguments of whole calls."""
    found: dict[int, list[str]] = {}
    for piece in pieces:
        if isinstance(piece, Called):
            found[piece.index] = [piece.name, ""]
        elif isinstance(piece, Arguments):
            found[piece.index][1] += piece.text
        elif isinstance(piece, Broken):
            del found[piece.index]
    return [(name, arguments) for name, arguments in found.values()]


def text(pieces: Sequence[Piece]) -> str:
    """What a reader of the whole answer sees besides its calls."""
    shown = (
        piece.text if isinstance(piece, Text) else piece.raw
        for piece in pieces
        if isinstance(piece, Text | Broken)
    )
    return "".join(shown)


def streamed(pieces: Sequence[Piece]) -> str:
    """What a reader of the stream sees besides names and arguments."""
    shown = (
        piece.text if isinstance(piece, Text) else piece.rest
        for piece in pieces
        if isinstance(piece, Text | Broken)
    )
    return "".join(shown)

"""From the text of an answer to pieces: text for the reader, and tool calls.

Pieces depend on the text alone, never on how it was split. White space next to a call is markup.
What begins like a call and is none becomes text again; of a call whose name is out already, see
``Broken``. Nothing that the model wrote is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from starsd.tools.pieces import Arguments, Broken, Called, Piece, Text
from starsd.tools.scanner import SPACE, Scanner


@dataclass(frozen=True)
class Markup:
    """How a family of models writes calls.

    ``opening`` begins them, anywhere in the text. With ``leading`` they make up the whole answer,
    which then begins like one, and ``opening`` may be left out. ``scanner`` reads one call, told
    whether it is in a list, in brackets. ``separator`` is between calls outside a list.
    ``closing`` ends them, if the model says it.
    """

    opening: str
    scanner: Callable[[bool], Scanner]
    closing: str = ""
    separator: str = ""
    leading: bool = False


class ToolParser:
    """One answer in the making. ``closed`` calls are whole."""

    def __init__(self, markup: Markup, names: Collection[str] | None = None) -> None:
        """``names``: only these are calls."""
        self._markup = markup
        self._names = names
        self._outside = self._plain if markup.leading else self._text
        self._state: Callable[[], bool] = self._start if markup.leading else self._text
        self._held = ""
        self._raw = ""
        """Of the call being read, with the markup before it."""
        self._in_list = False
        self._scanner = markup.scanner(False)
        self._announced = False
        self._sent = 0
        self._index = -1
        self._pieces: list[Piece] = []
        self.closed = 0

    def push(self, text: str) -> list[Piece]:
        """What this text releases."""
        self._held += text
        while self._held and self._state():
            pass
        return self._release()

    def finish(self) -> list[Piece]:
        """What was held back, once the answer has ended."""
        if self._state in (self._body, self._call):
            self._give_up()
        elif self._state != self._after and (self._held.strip() or not self.closed):
            self._say(self._held)
        self._held = ""
        return self._release()

    def _release(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    # -- states: each takes from what is held; False where it waits for more -----------------------

    def _start(self) -> bool:
        opening, begun = self._markup.opening, self._held.lstrip()
        space = len(self._held) - len(begun)
        if begun.startswith(opening):
            self._enter(0, space + len(opening))
        elif begun.startswith("{"):
            self._enter(0, space)
        elif opening.startswith(begun):
            return False
        else:
            self._state = self._outside
        return True

    def _text(self) -> bool:
        opening = self._markup.opening
        begin = self._held.find(opening)
        if begin >= 0:
            self._enter(len(self._held[:begin].rstrip()), begin + len(opening))
            return True
        keep = _overlap(self._held, opening)
        certain = self._held[: len(self._held) - keep].rstrip()
        self._say(certain)
        self._held = self._held[len(certain) :]
        return False

    def _plain(self) -> bool:
        self._say(self._held)
        self._held = ""
        return False

    def _body(self) -> bool:
        """A list begins, or a call."""
        begun = self._skip_space()
        if begun.startswith("[") and not self._in_list:
            self._in_list = True
            self._take(1)
        elif begun:
            self._state, self._scanner = self._call, self._markup.scanner(self._in_list)
            self._announced, self._sent = False, 0
        return bool(begun)

    def _call(self) -> bool:
        scanner = self._scanner
        while self._held and not (scanner.done or scanner.failed):
            scanner.push(self._held[0])
            self._take(1)
            if scanner.announced and not self._announced:
                self._announce()
        self._argue()
        if scanner.failed:
            self._give_up()
            self._state = self._outside
        elif scanner.done:
            self.closed += 1
            self._state, self._raw = self._after, ""
        return self._state != self._call

    def _after(self) -> bool:
        """Another call, the end of the list, or of them all."""
        begun, closing = self._skip_space(), self._markup.closing
        separator = "," if self._in_list else self._markup.separator
        if separator and begun.startswith(separator):
            self._take(len(separator))
            self._state = self._body
        elif self._in_list and begun.startswith("]"):
            self._in_list = False
            self._held = begun[1:]
        elif closing.startswith(begun) and begun != closing:
            return False
        else:
            self._held = begun.removeprefix(closing)
            self._state = self._outside
        return True

    # -- parts -----------------------------------------------------------------------------------

    def _enter(self, said: int, length: int) -> None:
        """Calls begin after ``length`` characters, of which the first ``said`` are text."""
        self._say(self._held[:said])
        self._raw, self._held = self._held[said:length], self._held[length:]
        self._state, self._in_list = self._body, False

    def _announce(self) -> None:
        name = self._scanner.name
        if name is None or (self._names is not None and name not in self._names):
            self._scanner.fail()
            return
        self._announced = True
        self._index += 1
        self._pieces.append(Called(self._index, name))

    def _argue(self) -> None:
        fragment = self._scanner.arguments[self._sent :]
        if self._announced and fragment:
            self._sent += len(fragment)
            self._pieces.append(Arguments(self._index, fragment))

    def _give_up(self) -> None:
        """Not a call after all."""
        if self._state == self._call and self._announced:
            self._pieces.append(Broken(self._index, self._raw, self._scanner.tail))
        else:
            self._say(self._raw)
        self._raw = ""

    def _skip_space(self) -> str:
        begun = self._held.lstrip(SPACE)
        self._take(len(self._held) - len(begun))
        return begun

    def _take(self, length: int) -> None:
        self._raw += self._held[:length]
        self._held = self._held[length:]

    def _say(self, text: str) -> None:
        if text:
            self._pieces.append(Text(text))


def _overlap(text: str, marker: str) -> int:
    """Length of the longest proper prefix of ``marker`` that ``text`` ends with."""
    longest = min(len(text), len(marker) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(marker[:size])), 0)

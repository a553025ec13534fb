"""How this target's model is told of tools and calls them: by its chat template, in its format."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from starsd.engine.interface import Tokenizer
from starsd.errors import GrammarError
from starsd.grammar import definition
from starsd.grammar.schema import parse
from starsd.protocol.events import Generate
from starsd.protocol.grammar import GrammarKind
from starsd.protocol.tools import CallDelta
from starsd.tools import enforce
from starsd.tools.formats import MARKUP, ToolFormat, of_template
from starsd.tools.messages import as_text, knows_tools, with_objects
from starsd.tools.parser import ToolParser
from starsd.tools.pieces import Arguments, Broken, Called, Piece, Text

MISTRAL_ID_CHARS = 9
"""All that its template takes of a call's id."""


class Tooling:
    """Of one model."""

    def __init__(self, tokenizer: Tokenizer, parser: str) -> None:
        """``parser`` is a ``ToolFormat``, or "auto": what the chat template says."""
        template = tokenizer.chat_template
        self._tokenizer = tokenizer
        self._form = of_template(template) if parser == "auto" else ToolFormat(parser)
        self._templated = knows_tools(template)

    def prompt_ids(self, request: Generate) -> list[int]:
        """Raises RequestError if the chat template refuses."""
        if isinstance(request.prompt, str):
            return self._tokenizer.encode(request.prompt)
        if request.prompt is not None:
            return request.prompt
        if not self._templated:
            return self._tokenizer.encode_chat(as_text(request.messages, request.tools))
        functions = request.tools.functions if request.tools else ()
        tools = [function.as_tool() for function in functions]
        return self._tokenizer.encode_chat(with_objects(request.messages), tools)

    def grammar(self, request: Generate) -> str | None:
        """What all of its answer matches; None: it is free. Raises GrammarError."""
        grammar, use = request.grammar, request.tools
        if use is None:
            return None if grammar is None else definition.define(grammar)
        answer = None
        if grammar is not None:
            if grammar.kind is not GrammarKind.JSON:
                raise GrammarError("only a schema goes with tools")
            answer = parse(grammar.source)
        return enforce.definition(use, self._form, self._tokenizer.special_id, answer)

    def calls(self, request: Generate, choice_id: str) -> Calls | None:
        """What reads the calls out of one choice; None: there are none."""
        use = request.tools
        if use is None:
            return None
        markup = MARKUP[self._form]
        names = {function.name for function in use.functions}
        parser = ToolParser(markup, names if markup.leading else None)

        def call_id(index: int) -> str:
            digest = hashlib.blake2b(f"{choice_id}:{index}".encode(), digest_size=12).hexdigest()
            if self._form is ToolFormat.MISTRAL:
                return digest[:MISTRAL_ID_CHARS]
            return f"call_{digest}"

        most = None if use.parallel and use.name is None else 1
        special = self._tokenizer.special_id(markup.opening) is not None
        return Calls(parser, call_id, most, special=special)


class Calls:
    """Takes the calls out of an answer's text."""

    def __init__(
        self,
        parser: ToolParser,
        call_id: Callable[[int], str],
        most: int | None = None,
        *,
        special: bool = False,
    ) -> None:
        """``most`` whole calls end the answer. ``special``: they are marked by tokens that usually
        vanish from the text."""
        self.special = special
        self._parser = parser
        self._call_id = call_id
        self._most = most
        self._deltas: list[CallDelta] = []
        self._said = 0

    @property
    def enough(self) -> bool:
        return self._most is not None and self._parser.closed >= self._most

    def push(self, text: str) -> str:
        """What of it is for the reader."""
        return "".join(map(self._note, self._parser.push(text)))

    def finish(self, text: str) -> str:
        """The same of the last text and of what was held back; nothing after enough calls."""
        if self.enough:
            return ""
        return self.push(text) + "".join(map(self._note, self._parser.finish()))

    def take(self) -> list[CallDelta]:
        """What came of calls since this was asked last."""
        deltas, self._deltas, self._said = self._deltas, [], 0
        return deltas

    def _note(self, piece: Piece) -> str:
        match piece:
            case Text(text):
                self._said += len(text)
                return text
            case Called(index, name):
                self._deltas.append(CallDelta(index=index, id=self._call_id(index), name=name))
            case Arguments():
                self._argue(piece)
            case Broken(index, raw, rest):
                broken = CallDelta(index=index, broken=raw, rest=rest, at=self._said)
                self._deltas.append(broken)
        return ""

    def _argue(self, piece: Arguments) -> None:
        text = piece.text
        if self._deltas and self._deltas[-1].index == piece.index and not self._deltas[-1].name:
            text = self._deltas.pop().arguments + text
        self._deltas.append(CallDelta(index=piece.index, arguments=text))

"""Grammars of answers that call tools, in the format that the model writes and we read.

Arguments match their function's schema where a call is forced or the function is ``strict``, else
they are any object.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starsd.errors import GrammarError
from starsd.grammar.definition import embedded, literal, of_lark_text
from starsd.grammar.schema import MAX_CHARS, checked
from starsd.protocol.tools import Function, ToolChoice, ToolUse
from starsd.tools.formats import MARKUP, ToolFormat

TokenOf = Callable[[str], int | None]
"""The id of a special token; None: the tokenizer spells it as text."""
FREE = r"TEXT: /(.|\n)*/"


def definition(use: ToolUse, form: ToolFormat, token_of: TokenOf, answer: Any = None) -> str | None:
    """The grammar of an answer; None where the model is free.

    ``answer`` is the schema of one that calls nothing. Raises GrammarError for parameters that
    cannot be enforced.
    """
    forced = use.choice is ToolChoice.REQUIRED or use.name is not None
    strict = any(one.strict for one in use.functions)
    if not forced and not strict and answer is None:
        return None
    marker = _marker(MARKUP[form].opening, token_of)
    if forced:
        rules = ["start: calls", *_calls(form, marker, use.parallel)]
    elif answer is not None:
        if form is ToolFormat.LLAMA3_JSON:  # a lexer could not tell one from the other
            raise GrammarError("this model's calls look like JSON: want no schema beside tools")
        rules = ["start: calls | answer", f"answer: {embedded(checked([answer])[0])}"]
        rules += _calls(form, marker, use.parallel)
    else:
        rules = _among_text(form, marker, use.parallel)
    return of_lark_text("\n".join([*rules, *_functions(use, form, forced)]))


def _calls(form: ToolFormat, marker: str, parallel: bool) -> list[str]:
    """An answer of calls alone."""
    if form is ToolFormat.HERMES:
        more = ' ("\\n" tagged)*' if parallel else ""
        return [f"calls: tagged{more}", f'tagged: {marker} "\\n" call "\\n</tool_call>"']
    if form is ToolFormat.MISTRAL:
        more = ' (", " call)*' if parallel else ""
        return [f'calls: {marker} "[" call{more} "]"']
    return ["calls: call" + (' ("; " call)*' if parallel else "")]


def _among_text(form: ToolFormat, marker: str, parallel: bool) -> list[str]:
    """Text, and calls where their marker says so."""
    if form is ToolFormat.LLAMA3_JSON:
        free = r"FREE: /([^{](.|\n)*)?/"
        return ["start: calls | FREE", free, *_calls(form, marker, parallel)]
    body = '"\\n" call "\\n</tool_call>"'
    if form is ToolFormat.MISTRAL:
        body = '"[" call' + (' (", " call)*' if parallel else "") + ' "]"'
    begin = "TEXT " + marker
    rules = ["start: (among)* TEXT" if parallel else "start: among | TEXT", FREE]
    if marker.startswith("<"):
        return [*rules, f"among: {begin} {body}"]
    return [*rules, f"begun[lazy]: {begin}", f"among: begun {body}"]


def _functions(use: ToolUse, form: ToolFormat, forced: bool) -> list[str]:
    """One rule for each, and ``call`` for any."""
    functions = use.eligible
    given = [_parameters(one) if forced or one.strict else {"type": "object"} for one in functions]
    _bound(given)
    schemas = checked(given)
    names = [f"call{place}" for place in range(len(functions))]
    rules = [
        f"{rule}: {_head(one, form)} {embedded(schema)} {literal('}')}"
        for rule, one, schema in zip(names, functions, schemas, strict=True)
    ]
    return ["call: " + " | ".join(names), *rules]


def _head(function: Function, form: ToolFormat) -> str:
    key = "parameters" if form is ToolFormat.LLAMA3_JSON else "arguments"
    return literal(f'{{"name": {json.dumps(function.name)}, "{key}": ')


def _parameters(function: Function) -> dict[str, Any]:
    """Always of an object, as arguments are."""
    if function.parameters is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    return {"type": "object", **function.parameters}


def _bound(schemas: list[dict[str, Any]]) -> None:
    size = len(json.dumps(schemas))
    if size > MAX_CHARS:
        raise GrammarError(f"parameters of {size} characters to enforce; the limit is {MAX_CHARS}")


def _marker(opening: str, token_of: TokenOf) -> str:
    token = token_of(opening)
    return literal(opening) if token is None else f"<[{token}]>"

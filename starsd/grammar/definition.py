"""From what a request asks for to the one text that llguidance compiles.

Source of the syntax: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

from starsd.errors import GrammarError
from starsd.grammar.schema import MAX_CHARS, OPTIONS_KEY, names_are_safe, parse
from starsd.protocol.grammar import Grammar, GrammarKind

MAX_REGEX_CHARS = 8 * 1024
MAX_CHOICES = 1000
MAX_LARK_CHARS = 16 * 1024
MAX_LARK_RULES = 200
"""Lines with a colon: the compiler recurses along rules that name each other."""
JSON_OPTIONS: dict[str, Any] = {
    "whitespace_flexible": True,
    "whitespace_pattern": r"[ \t\n\r]{0,32}",
    "lenient": False,
}
"""White space as the model likes it, but not for ever: some models would never end. A keyword
that cannot be enforced is an error."""
# The compiler's default is only those of control characters: a model that means \u00e9 then has
# nothing but such a one to write after \u00.
ANY_ESCAPE = {"json_allow_general_unicode_escapes": True}
NO_UNICODE_ESCAPE = {"json_allowed_escapes": 'nrbtf\\"'}


def define(grammar: Grammar) -> str:
    """Raises GrammarError."""
    return _DEFINE[grammar.kind](grammar.source)


def of_schema(source: str) -> str:
    try:
        return LLMatcher.grammar_from_json_schema(_with_options(parse(source)))
    except ValueError as error:  # a number of more than 64 bits, half a surrogate pair
        raise GrammarError(f"the schema: {error}"[:500]) from error


def of_regex(source: str) -> str:
    if len(source) > MAX_REGEX_CHARS:
        message = f"a regex of {len(source)} characters; the limit is {MAX_REGEX_CHARS}"
        raise GrammarError(message)
    return LLMatcher.grammar_from_regex(source)


def of_choice(source: str) -> str:
    choices: list[str] = json.loads(source)
    if not 1 <= len(choices) <= MAX_CHOICES or "" in choices:
        raise GrammarError(f"want 1 to {MAX_CHOICES} choices, none of them empty")
    if sum(map(len, choices)) > MAX_CHARS:
        raise GrammarError(f"the choices have over {MAX_CHARS} characters together")
    return of_lark_text("start: " + " | ".join(map(literal, choices)))


def of_lark(source: str) -> str:
    """Lark as llguidance knows it, or GBNF."""
    if len(source) > MAX_LARK_CHARS:
        message = f"a grammar of {len(source)} characters; the limit is {MAX_LARK_CHARS}"
        raise GrammarError(message)
    try:
        lark = any_to_lark(source)
    except Exception as error:  # of many types, RecursionError among them
        raise GrammarError(f"neither Lark nor GBNF: {error}") from error
    rules = sum(":" in line for line in lark.splitlines())
    if rules > MAX_LARK_RULES:
        raise GrammarError(f"a grammar of {rules} rules; the limit is {MAX_LARK_RULES}")
    return of_lark_text(lark)


def of_lark_text(lark: str) -> str:
    """Of Lark that we have written."""
    return LLMatcher.grammar_from_lark(lark)


def literal(text: str) -> str:
    """A string of Lark's."""
    return json.dumps(text)


def embedded(schema: Any) -> str:
    """A parsed schema (``starsd.grammar.schema.parse``) inside a Lark rule."""
    return "%json " + json.dumps(_with_options(schema))


def _with_options(schema: Any) -> dict[str, Any]:
    whole = {"allOf": [schema]} if isinstance(schema, bool) else schema
    escapes = ANY_ESCAPE if names_are_safe(whole) else NO_UNICODE_ESCAPE
    return {**whole, OPTIONS_KEY: JSON_OPTIONS | escapes}


_DEFINE = {
    GrammarKind.JSON: of_schema,
    GrammarKind.REGEX: of_regex,
    GrammarKind.CHOICE: of_choice,
    GrammarKind.LARK: of_lark,
}

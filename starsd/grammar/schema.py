"""JSON schemas before they are compiled: bounds that keep compiling short, and formats.

A compiler of schemas recurses along references and compares properties with each other: a
reference chain of some thousands overflows its stack, an object of some thousands of properties
takes seconds. Bounds are a tenth of what hurts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from starsd.errors import GrammarError

MAX_CHARS = 64 * 1024
MAX_DEPTH = 48
MAX_REFERENCES = 200
MAX_PROPERTIES = 500
"""Of one object."""
MAX_ALL_PROPERTIES = 1000
MAX_MULTIPLE = 10_000
"""Least common multiple of all ``multipleOf``: so many states may it take to check them."""
OPTIONS_KEY = "x-guidance"
"""The compiler's own options; ours to set, not a client's."""
FORMATS = frozenset(
    ("date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
)
"""Those that the compiler enforces. Others are annotations, as in JSON Schema's default."""

_NAMED = ("properties", "patternProperties")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems", "items")
_SINGLE = ("items", "additionalItems", "additionalProperties", "not", "contains", "propertyNames")


def parse(source: str) -> Any:
    """A schema from its text, within bounds. Raises GrammarError."""
    if len(source) > MAX_CHARS:
        raise GrammarError(f"a schema of {len(source)} characters; the limit is {MAX_CHARS}")
    try:
        schema = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"the schema is not JSON: {error}") from error
    return checked([schema])[0]


def checked(schemas: Sequence[Any]) -> list[Any]:
    """Schemas that go into one grammar, within bounds together. Raises GrammarError."""
    if not all(isinstance(schema, dict | bool) for schema in schemas):
        raise GrammarError("a schema is a JSON object, or true or false")
    references = properties = 0
    multiple = 1
    for node, depth in _objects(schemas):
        if depth > MAX_DEPTH:
            raise GrammarError(f"the schema is nested deeper than {MAX_DEPTH}")
        if OPTIONS_KEY in node:
            raise GrammarError(f"the schema has {OPTIONS_KEY!r}, which is not a keyword")
        references += any(key.lower().endswith("ref") for key in node)
        multiple = math.lcm(multiple, _digits(node.get("multipleOf")))
        own = max(_size(node.get("properties")), _size(node.get("required")))
        properties += own
        if own > MAX_PROPERTIES:
            raise GrammarError(f"an object has {own} properties; the limit is {MAX_PROPERTIES}")
    if references > MAX_REFERENCES:
        raise GrammarError(f"the schema has {references} references; the limit is {MAX_REFERENCES}")
    if properties > MAX_ALL_PROPERTIES:
        raise GrammarError(f"{properties} properties in all; the limit is {MAX_ALL_PROPERTIES}")
    if multiple > MAX_MULTIPLE:
        raise GrammarError(
            f"multiples of {multiple}, all multipleOf taken together; the limit is {MAX_MULTIPLE}"
        )
    return [_known_formats(schema) for schema in schemas]


def names_are_safe(schema: Any) -> bool:
    """Whether no object takes other names beside those it declares. Where one does, a declared name
    in ``\\u`` escapes would be such another, with any value."""
    declaring = (node for node, _ in _objects([schema]) if any(map(node.get, _NAMED)))
    return all(node.get("additionalProperties") is False for node in declaring)


def _digits(number: Any) -> int:
    """A decimal number without its point; 1 for what is none."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return 1
    try:
        digits = Decimal(str(number)).normalize().as_tuple().digits
    except (InvalidOperation, ValueError):
        return 1
    return int("".join(map(str, digits))) or 1


def _size(members: Any) -> int:
    return len(members) if isinstance(members, dict | list) else 0


def _objects(schemas: Sequence[Any]) -> Iterator[tuple[dict[str, Any], int]]:
    """Every object anywhere in them, with its depth."""
    waiting: list[tuple[Any, int]] = [(schema, 0) for schema in schemas]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, dict):
            yield node, depth
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        waiting += ((child, depth + 1) for child in inner if isinstance(child, dict | list))


def _known_formats(schema: Any) -> Any:
    """Without formats that nobody enforces."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if not _unknown_format(key, value)}
    for key in _MAPS:
        if isinstance(kept.get(key), dict):
            kept[key] = {name: _known_formats(inner) for name, inner in kept[key].items()}
    for key in _LISTS:
        if isinstance(kept.get(key), list):
            kept[key] = [_known_formats(inner) for inner in kept[key]]
    for key in _SINGLE:
        if isinstance(kept.get(key), dict):
            kept[key] = _known_formats(kept[key])
    return kept


def _unknown_format(key: str, value: Any) -> bool:
    return key == "format" and isinstance(value, str) and value not in FORMATS

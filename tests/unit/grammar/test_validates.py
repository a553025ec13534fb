"""Whatever the schema, an answer under its masks validates, and the schema never runs dry."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from starsd.errors import GrammarError
from starsd.grammar.state import GrammarState
from starsd.protocol.grammar import GrammarKind
from tests.scripted import EOS
from tests.unit.grammar.support import begin

NAMES = st.sampled_from(["a", "bc", "ü", 'q"', "a b", "$ref_", ""])
BOUND = st.integers(-50, 50)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([{"type": kind} for kind in ("string", "integer", "boolean", "null")]),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + abs(more)},
        BOUND,
        BOUND,
    ),
    st.builds(
        lambda low, more: {
            "type": "number",
            "minimum": low,
            "exclusiveMaximum": low + 1 + abs(more),
        },
        BOUND,
        BOUND,
    ),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    st.builds(
        lambda values: {"enum": values},
        st.lists(st.one_of(NAMES, BOUND, st.none()), min_size=1, max_size=4),
    ),
    st.builds(lambda value: {"const": value}, NAMES),
    st.sampled_from(
        [
            {"type": "string", "pattern": "^[a-c]{2}-[0-9]+$"},
            {"type": "string", "format": "date"},
            {"type": "integer", "multipleOf": 7},
            {"type": ["string", "null"]},
        ]
    ),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(properties: dict[str, Any], optional: int, more: Any) -> dict[str, Any]:
        required = [name for place, name in enumerate(properties) if place != optional]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": more,
        }

    return st.builds(
        build, st.dictionaries(NAMES, inner, max_size=4), st.integers(0, 4), st.just(False) | inner
    )


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(items: Any, low: int, more: int) -> dict[str, Any]:
        return {"type": "array", "items": items, "minItems": low, "maxItems": low + more}

    return st.builds(build, inner, st.integers(0, 2), st.integers(0, 2))


def unions(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=3))


SCHEMAS = st.recursive(
    SCALARS, lambda inner: objects(inner) | arrays(inner) | unions(inner), max_leaves=8
)


def write(state: GrammarState, choose: random.Random, most: int = 400) -> str | None:
    """An answer of random tokens, ending where it may; None: it is still not over."""
    answer = bytearray()
    for _ in range(most):
        allowed = state.mask([]).nonzero()[0].tolist()
        assert allowed, "no token is left"
        if EOS in allowed:
            return answer.decode()
        token = choose.choice([token for token in allowed if token < 128] or allowed)
        state.advance([token])
        answer.append(token)
    return None


@settings(max_examples=150)
@given(SCHEMAS, st.integers(0, 2**32))
def test_a_schemas_answer_validates(schema: Any, seed: int) -> None:
    try:
        state = begin(GrammarKind.JSON, schema)
    except GrammarError:
        return  # an object whose optional property nothing matches, say
    answer = write(state, random.Random(seed))
    if answer is not None:
        jsonschema.validate(json.loads(answer), schema)

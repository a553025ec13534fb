"""Grammars over bytes, and the tiny tokenizer's tokens."""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLTokenizer

from starsd.grammar.compiler import GrammarCompiler
from starsd.grammar.definition import define
from starsd.grammar.state import GrammarState
from starsd.protocol.grammar import Grammar, GrammarKind
from tests.scripted import EOS, VOCAB, byte_tokens


def grammar(kind: GrammarKind, source: Any) -> Grammar:
    text = source if isinstance(source, str) and kind is not GrammarKind.JSON else None
    return Grammar(kind, json.dumps(source) if text is None else text, "field")


def begin(
    kind: GrammarKind, source: Any, tokens: LLTokenizer | None = None, eos: int = EOS
) -> GrammarState:
    tokens = tokens or byte_tokens()
    compiler = GrammarCompiler(tokens, max(VOCAB, tokens.vocab_size))
    return compiler.start(define(grammar(kind, source)), [eos])


def matches(state: GrammarState, text: str) -> bool:
    """Whether it may be the whole answer."""
    answer = [*text.encode(), EOS]
    return state.legal(answer) == len(answer)

"""Grammars ready to be walked: compiled once per text, within limits of time and memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from starsd.errors import GrammarError
from starsd.grammar.state import GrammarState

MAX_KEPT = 32
"""Compiled grammars that wait for another request with the same text."""
LIMITS = LLParserLimits(
    initial_lexer_fuel=300_000,
    step_lexer_fuel=100_000,
    step_max_items=30_000,
    max_lexer_states=32_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""Tens of milliseconds and of megabytes at the very worst; usual grammars need a hundredth."""


class GrammarCompiler:
    """Of one model's tokens. Compiling takes a millisecond for usual grammars, and some tens at
    most for those within the bounds of ``starsd.grammar.definition``."""

    def __init__(self, tokenizer: LLTokenizer, vocab_size: int) -> None:
        """``vocab_size`` is the width of masks: the model's, not the tokenizer's."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()

    def start(self, definition: str, eos: Collection[int]) -> GrammarState:
        """At the beginning of an answer that one of ``eos`` ends. Raises GrammarError: wrong, too
        large, or no answer matches it."""
        matcher = self._matcher(definition)
        return GrammarState(matcher, self._tokenizer.eos_tokens, eos, self._vocab_size)

    def _matcher(self, definition: str) -> LLMatcher:
        if definition not in self._kept:
            self._kept[definition] = self._compile(definition)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        self._kept.move_to_end(definition)
        return self._kept[definition]

    def _compile(self, definition: str) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer, definition, log_level=0, limits=LIMITS)
        first = matcher.deep_copy()
        first.compute_bitmask()
        for one in (matcher, first):
            if one.is_error():
                raise GrammarError(explain(one.get_error()))
        return matcher


def explain(error: str) -> str:
    """The library's words without its diagnostics."""
    if "NoExtension" in error:
        return "no answer matches this grammar"
    return error.partition("\n<non-verbose/>")[0].strip()[:500]

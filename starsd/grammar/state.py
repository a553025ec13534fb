"""How far an answer is in its grammar, and what may follow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from llguidance import LLMatcher

from starsd.errors import GrammarError
from starsd.sampling.processing import Mask


class GrammarState:
    """Of one sequence. Masks depend on the tokens of its answer alone, never on proposals.

    ``mask`` walks ahead along what verification samples; ``advance`` says what of it was kept.
    """

    def __init__(
        self, start: LLMatcher, own_ends: Sequence[int], eos: Collection[int], vocab_size: int
    ) -> None:
        """``own_ends`` are what the matcher takes for ends, ``eos`` what ends the answer."""
        self._start = start
        self._matcher = start.deep_copy()
        self._own_ends = [token for token in own_ends if token < vocab_size]
        self._eos = [token for token in eos if token < vocab_size]
        self._ends = frozenset((*self._own_ends, *self._eos))
        self._vocab_size = vocab_size
        self._text: list[int] = []
        self._ahead = 0

    def mask(self, walked: Sequence[int]) -> Mask:
        """What may follow the text and then ``walked``: ``[vocabulary]``; anything after an end.

        Called along one walk, a token longer each time. Raises GrammarError if the grammar turns
        out to be too complex here.
        """
        if walked and walked[-1] in self._ends:
            return np.ones(self._vocab_size, dtype=np.bool_)
        self._consume(walked[self._ahead :])
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        accepting = self._matcher.is_accepting()
        self._check()
        allowed = np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)
        allowed[self._own_ends] = False
        allowed[self._eos] |= accepting
        return allowed

    def advance(self, tokens: Sequence[int]) -> None:
        """``tokens`` are the answer's now; a walk beyond them is taken back. Raises GrammarError
        for one that the grammar does not allow."""
        kept = self._before_end(tokens)
        if self._ahead > len(kept):
            self._matcher.rollback(self._ahead - len(kept))
        self._consume(kept[self._ahead :])
        self._text += kept
        self._ahead = 0

    def legal(self, path: Sequence[int]) -> int:
        """How many of its tokens may follow the text, one after another; none after an end. Not
        during a walk."""
        inner = self._before_end(path)
        count = self._matcher.try_consume_tokens(inner)
        ended = count == len(inner) < len(path) and path[count] in self._eos
        ended = ended and self._matcher.is_accepting()
        self._matcher.rollback(count)
        self._recover()
        return count + ended

    def forced(self) -> list[int]:
        """The tokens that the grammar leaves no choice about, spelled as the tokenizer does."""
        tokens = self._matcher.compute_ff_tokens()
        self._recover()
        return tokens

    def _before_end(self, path: Sequence[int]) -> list[int]:
        end = next((at for at, token in enumerate(path) if token in self._ends), len(path))
        return [*path[:end]]

    def _consume(self, tokens: Sequence[int]) -> None:
        if tokens:
            self._matcher.consume_tokens([*tokens])
            self._check()
            self._ahead += len(tokens)

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0]
            raise GrammarError(f"the answer cannot go on within its grammar: {reason}")

    def _recover(self) -> None:
        """A proposal may have taken the matcher beyond its limits: the text has not."""
        if self._matcher.is_error():
            self._matcher = self._start.deep_copy()
            self._matcher.consume_tokens(self._text)

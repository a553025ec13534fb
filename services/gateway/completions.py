"""POST /v1/completions: how its answers are worded."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.gateway.writer import Writer, spelt
from starsd.protocol.events import TokenLogprobs

OBJECT = "text_completion"


class Logprobs(msgspec.Struct, frozen=True, kw_only=True):
    """Lists with an entry for each token. ``text_offset`` counts characters of the tokens before,
    from the beginning of the answer."""

    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Of a whole answer and of a chunk."""

    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: str | None = None


class CompletionWriter(Writer):
    """Text, then the reason why it ended."""

    def __init__(self, index: int, *, logprobs: bool) -> None:
        super().__init__(index, logprobs=logprobs)
        self._offset = 0

    def opening(self) -> None:
        return None

    def pieces(self) -> list[Choice]:
        return [self._choice(None)] if self._text else []

    def last(self, reason: str) -> Choice:
        return self._choice(reason)

    def whole(self, reason: str) -> Choice:
        return self._choice(reason)

    def _choice(self, reason: str | None) -> Choice:
        text, found = self._given()
        logprobs = None if found is None else self._listed(found)
        return Choice(index=self.index, text=text, logprobs=logprobs, finish_reason=reason)

    def _listed(self, found: Sequence[TokenLogprobs]) -> Logprobs:
        tokens = [spelt(one.chosen) for one in found]
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(token)
        return Logprobs(
            text_offset=offsets,
            token_logprobs=[one.chosen.logprob for one in found],
            tokens=tokens,
            top_logprobs=[_likeliest(one) for one in found],
        )


def _likeliest(found: TokenLogprobs) -> dict[str, float]:
    """The token itself is always among them, as in OpenAI's."""
    best = {spelt(top): top.logprob for top in found.top}
    best.setdefault(spelt(found.chosen), found.chosen.logprob)
    return best

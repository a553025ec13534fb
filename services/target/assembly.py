"""From a request's tokens to its text: end tokens, stop strings, incomplete characters.

Pure. The text of an answer depends on its tokens and stop strings alone, never on how the tokens
were grouped into steps: the answer ends with the first token whose text completes a stop string,
and is cut where that stop string begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from services.target.tooling import Calls
from starsd.engine.interface import Tokenizer
from starsd.protocol.events import Delta, Likelihood, TokenLogprobs
from starsd.protocol.frames import FinishReason, Logprobs, Origin
from starsd.protocol.tools import CallDelta


class StopMatcher:
    """Passes text on, except what is, or may yet become, a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        """``stops`` are not empty strings."""
        self._stops = tuple(stops)
        self._held = ""
        self.matched = False

    def push(self, text: str) -> str:
        """What may be shown now. After a match nothing ever may."""
        if self.matched:
            return ""
        self._held += text
        start = self._match()
        if start is not None:
            self.matched = True
            return self._release(start)
        return self._release(len(self._held) - self._possible_start())

    def flush(self) -> str:
        """What was held back and came to nothing."""
        return "" if self.matched else self._release(len(self._held))

    def _release(self, length: int) -> str:
        shown, self._held = self._held[:length], self._held[length:]
        return shown

    def _match(self) -> int | None:
        """Start of the stop string that is complete first (the longest of those)."""
        found = [(self._held.find(stop), len(stop)) for stop in self._stops]
        matches = [(start + length, start) for start, length in found if start >= 0]
        return min(matches)[1] if matches else None

    def _possible_start(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        return max((_overlap(self._held, stop) for stop in self._stops), default=0)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest proper prefix of ``stop`` that ``text`` ends with."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)


class Assembly:
    """One answer in the making; ``choice`` is its number among those to its request."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str],
        eos: Collection[int],
        choice: int = 0,
        calls: Calls | None = None,
    ) -> None:
        """``calls`` takes tool calls out of the text."""
        self._tokenizer = tokenizer
        self.choice = choice
        self._text = tokenizer.text_stream(special=calls is not None and calls.special)
        self._calls = calls
        self._matcher = StopMatcher(stops)
        self._eos = frozenset(eos)
        self._eos_seen = False
        self.completion_tokens = 0
        """Tokens delivered, with the one that completed a stop string or the end token."""

    @property
    def stopped(self) -> bool:
        """A stop string is complete, or the only call: the loop need not go on."""
        return self._matcher.matched or (self._calls is not None and self._calls.enough)

    def push(
        self,
        tokens: Sequence[int],
        origins: Sequence[Origin],
        logprobs: Sequence[Logprobs] | None = None,
    ) -> Delta:
        """Tokens of one step; those after the end of the answer are dropped (no ids, no text)."""
        texts = []
        for token in tokens:
            if self.stopped or self._eos_seen:
                break
            texts.append(self._push(token))
        self.completion_tokens += len(texts)
        kept = slice(len(texts))
        return Delta(
            choice=self.choice,
            ids=list(tokens[kept]),
            origins=list(origins[kept]),
            text="".join(texts),
            lengths=[*map(len, texts)],
            logprobs=None
            if logprobs is None
            else [*map(self._spelt, tokens[kept], logprobs[kept])],
            calls=self.calls(),
        )

    def _spelt(self, token: int, found: Logprobs) -> TokenLogprobs:
        spell = self._tokenizer.token_bytes
        best = zip(found.ids, found.values, strict=True)
        return TokenLogprobs(
            Likelihood(spell(token), found.chosen),
            [Likelihood(spell(other), value) for other, value in best],
        )

    def _push(self, token: int) -> str:
        if token in self._eos:
            self._eos_seen = True
            return ""
        text = self._matcher.push(self._text.push(token))
        return text if self._calls is None else self._calls.push(text)

    def finish(self, reason: FinishReason) -> tuple[str, FinishReason]:
        """The text still held back, and why the answer ended; ``reason`` is the loop's word."""
        tail = "" if self.stopped else self._matcher.push(self._text.flush())
        tail += self._matcher.flush()
        if self._calls is not None:
            tail = self._calls.finish(tail)
        ended = self.stopped or self._eos_seen
        return tail, FinishReason.STOP if ended else reason

    def calls(self) -> list[CallDelta]:
        """Parts of calls that have not been told yet."""
        return [] if self._calls is None else self._calls.take()

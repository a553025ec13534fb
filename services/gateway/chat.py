"""POST /v1/chat/completions: how its answers are worded."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from services.gateway.writer import Writer, spelt
from starsd.protocol import events
from starsd.protocol.events import Likelihood, TokenLogprobs
from starsd.protocol.frames import FinishReason
from starsd.protocol.tools import CallDelta

WHOLE, CHUNK = "chat.completion", "chat.completion.chunk"


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token as text, and as the bytes it stands for."""

    token: str
    logprob: float
    bytes: list[int]

    @classmethod
    def of(cls, token: Likelihood) -> TopLogprob:
        return cls(token=spelt(token), logprob=token.logprob, bytes=list(token.token))


class TokenLogprob(TopLogprob, frozen=True, kw_only=True):
    top_logprobs: list[TopLogprob]


class Logprobs(msgspec.Struct, frozen=True, kw_only=True):
    content: list[TokenLogprob]
    refusal: None = None

    @classmethod
    def of(cls, found: Sequence[TokenLogprobs] | None) -> Logprobs | None:
        return None if found is None else cls(content=[_token(one) for one in found])


def _token(found: TokenLogprobs) -> TokenLogprob:
    own = found.chosen
    return TokenLogprob(
        token=spelt(own),
        logprob=own.logprob,
        bytes=list(own.token),
        top_logprobs=[TopLogprob.of(token) for token in found.top],
    )


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | None = None
    arguments: str | UnsetType = UNSET


class CallChunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a call: the first has all but the arguments, which follow."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionDelta

    @classmethod
    def of(cls, call: CallDelta) -> CallChunk:
        function = FunctionDelta(name=call.name, arguments=call.arguments)
        kind = None if call.id is None else "function"
        return cls(index=call.index, id=call.id, type=kind, function=function)


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: str | None = None
    content: str | None = None
    tool_calls: tuple[CallChunk, ...] = ()


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    delta: Delta
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: str


class Call(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str = "function"
    function: Function


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: str = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: Sequence[Call] | UnsetType = UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    message: Message
    logprobs: Logprobs | None
    finish_reason: str


class ChatWriter(Writer):
    """First the role, then text and calls, then the reason why it ended.

    A call that came to nothing is text: all of it, or in a ``stream``, where it is out already,
    what is in none of its fragments.
    """

    def __init__(self, index: int, *, logprobs: bool, stream: bool) -> None:
        super().__init__(index, logprobs=logprobs)
        self._stream = stream
        self._fragments: list[CallDelta] = []
        self._calls: dict[int, list[CallDelta]] = {}

    def take(self, part: events.Delta | events.Done) -> None:
        shown, texts = 0, []
        for call in part.calls:
            if call.broken is None:
                self._fragments.append(call)
                self._calls.setdefault(call.index, []).append(call)
            else:
                del self._calls[call.index]
                texts += [part.text[shown : call.at], call.rest if self._stream else call.broken]
                shown = call.at
        text = "".join([*texts, part.text[shown:]])
        super().take(msgspec.structs.replace(part, text=text))

    def opening(self) -> ChunkChoice:
        return ChunkChoice(index=self.index, delta=Delta(role="assistant", content=""))

    def pieces(self) -> list[ChunkChoice]:
        deltas = [Delta(tool_calls=(CallChunk.of(call),)) for call in self._fragments]
        self._fragments = []
        if not (self._text or deltas):
            return []
        text, found = self._given()
        deltas = [*([Delta(content=text)] if text else []), *deltas]
        logprobs = [Logprobs.of(found), *[None] * len(deltas)]
        return [
            ChunkChoice(index=self.index, delta=delta, logprobs=of_it)
            for delta, of_it in zip(deltas, logprobs, strict=False)
        ]

    def last(self, reason: str) -> ChunkChoice:
        _, found = self._given()
        logprobs, reason = Logprobs.of(found or None), self._reason(reason)
        return ChunkChoice(index=self.index, delta=Delta(), logprobs=logprobs, finish_reason=reason)

    def whole(self, reason: str) -> Choice:
        text, found = self._given()
        calls = [_whole(parts) for parts in self._calls.values()] or UNSET
        content = text or None if self._calls else text
        return Choice(
            index=self.index,
            message=Message(content=content, tool_calls=calls),
            logprobs=Logprobs.of(found),
            finish_reason=self._reason(reason),
        )

    def _reason(self, reason: str) -> str:
        return "tool_calls" if reason == FinishReason.STOP and self._calls else reason


def _whole(parts: Sequence[CallDelta]) -> Call:
    arguments = "".join(part.arguments for part in parts)
    function = Function(name=parts[0].name or "", arguments=arguments)
    return Call(id=parts[0].id or "", function=function)

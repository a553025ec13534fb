"""What a right chat completion is, streamed or whole; Locust is not needed to say.

A wrong one raises BadAnswerError with a message that names the fault. Messages are few and alike,
because Locust groups failures by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

DONE = b"[DONE]"
EMPTY = "an empty answer"
T = TypeVar("T")
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
FinishReason = Literal["stop", "length"]
"""All that an answer can end with that was asked without tools; a server's "abort" is a fault."""


class BadAnswerError(Exception):
    """The server's answer is not what the API promises."""


class Usage(Struct, frozen=True):
    prompt_tokens: Positive
    completion_tokens: Positive
    total_tokens: Positive


class Speculation(Struct, frozen=True):
    """StarSD's extension."""

    proposed: Count = 0
    accepted: Count = 0


class Message(Struct, frozen=True):
    """Reasoning is output too; SGLang and vLLM name it differently."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def text(self) -> str:
        return (self.reasoning_content or self.reasoning or "") + (self.content or "")


class Problem(Struct, frozen=True):
    message: str = ""


class Failure(Struct, frozen=True):
    error: Problem


class Choice(Struct, frozen=True):
    message: Message
    finish_reason: FinishReason
    index: Literal[0] = 0


class Completion(Struct, frozen=True):
    choices: Annotated[tuple[Choice, ...], Meta(min_length=1, max_length=1)]
    usage: Usage
    starsd: Speculation = Speculation()


class ChunkChoice(Struct, frozen=True):
    delta: Message
    finish_reason: FinishReason | None = None
    index: Literal[0] = 0


class Chunk(Struct, frozen=True):
    """One event of a stream."""

    id: str = ""
    choices: Annotated[tuple[ChunkChoice, ...], Meta(max_length=1)] = ()
    usage: Usage | None = None
    starsd: Speculation | None = None
    error: Problem | None = None


class Model(Struct, frozen=True):
    id: str


class Models(Struct, frozen=True):
    data: Annotated[tuple[Model, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class Times:
    """Of a streamed answer, in seconds from its request."""

    first: float
    """To the first text: TTFT."""
    last: float
    """To the end of the stream."""

    def per_token(self, tokens: int) -> float | None:
        """TPOT. By tokens, not by chunks: one chunk brings all that a verification accepted."""
        return (self.last - self.first) / (tokens - 1) if tokens > 1 else None


@dataclass(frozen=True)
class Answer:
    text: str
    tokens: int
    speculation: Speculation
    times: Times | None = None


def first_model(body: bytes) -> str:
    """Of the answer to GET /v1/models."""
    return _decoded(body, Models).data[0].id


def whole(body: bytes, max_tokens: int) -> Answer:
    """The answer of a request without ``stream``."""
    completion = _decoded(body, Completion)
    choice = completion.choices[0]
    _check_usage(completion.usage, choice.finish_reason, max_tokens)
    if not choice.message.text:
        raise BadAnswerError(EMPTY)
    return Answer(choice.message.text, completion.usage.completion_tokens, completion.starsd)


def refusal(status: int, body: bytes) -> BadAnswerError:
    """What to say of an answer whose status is not 200."""
    try:
        reason = msgspec.json.decode(body, type=Failure).error.message
    except msgspec.DecodeError:
        reason = body[:100].decode(errors="replace")
    return BadAnswerError(f"status {status}: {reason}")


class Stream:
    """A streamed answer, checked line by line as it comes. Times are of one clock, in seconds."""

    def __init__(self, max_tokens: int, asked: float) -> None:
        self._max_tokens = max_tokens
        self._asked = self._last = asked
        self._first: float | None = None
        self._ids: set[str] = set()
        self._text: list[str] = []
        self._reason: FinishReason | None = None
        self._usage: Usage | None = None
        self._speculation = Speculation()
        self._open = False
        """The blank line that ends an event is still to come."""
        self._done = False

    def take(self, line: bytes, now: float) -> None:
        """One line, with or without its end, that came just now."""
        self._last = now
        line = line.rstrip(b"\r\n")
        if not line:
            self._open = False
        elif self._done:
            raise BadAnswerError("more after [DONE]")
        elif line.startswith(b"data:"):
            self._take_data(line.removeprefix(b"data:").strip())
        elif not line.startswith(b":"):
            raise BadAnswerError("a line that is neither data nor a comment")

    def end(self) -> Answer:
        """The answer, when no more lines come."""
        if not self._done:
            raise BadAnswerError("the stream ended without [DONE]")
        if self._open:
            raise BadAnswerError("no blank line after [DONE]")
        if self._reason is None:
            raise BadAnswerError("no finish_reason")
        if self._usage is None:
            raise BadAnswerError("no usage")
        _check_usage(self._usage, self._reason, self._max_tokens)
        if self._first is None:
            raise BadAnswerError(EMPTY)
        times = Times(self._first - self._asked, self._last - self._asked)
        return Answer("".join(self._text), self._usage.completion_tokens, self._speculation, times)

    def _take_data(self, data: bytes) -> None:
        if self._open:
            raise BadAnswerError("two events without a blank line between them")
        self._open = True
        if data == DONE:
            self._done = True
            return
        chunk = _decoded(data, Chunk)
        if chunk.error is not None:
            raise BadAnswerError(f"an error in the stream: {chunk.error.message}")
        self._ids.add(chunk.id)
        if len(self._ids) > 1:
            raise BadAnswerError("chunks of two answers in one stream")
        self._usage = chunk.usage or self._usage
        self._speculation = chunk.starsd or self._speculation
        for choice in chunk.choices:
            self._take_choice(choice)

    def _take_choice(self, choice: ChunkChoice) -> None:
        text = choice.delta.text
        if self._reason is not None and (text or choice.finish_reason):
            raise BadAnswerError("text or a second finish_reason after finish_reason")
        self._reason = choice.finish_reason or self._reason
        if text:
            self._text.append(text)
            self._first = self._last if self._first is None else self._first


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise BadAnswerError(f"not a {kind.__name__.lower()}: {error}") from error


def _check_usage(usage: Usage, reason: FinishReason, max_tokens: int) -> None:
    if usage.total_tokens != usage.prompt_tokens + usage.completion_tokens:
        raise BadAnswerError("wrong usage: total_tokens is not the sum")
    if usage.completion_tokens > max_tokens:
        raise BadAnswerError(f"wrong usage: more than {max_tokens} completion_tokens")
    if reason == "length" and usage.completion_tokens != max_tokens:
        # Also when the context ran out: such prompts are too long for a load test.
        raise BadAnswerError(f"wrong usage: finish_reason length before {max_tokens} tokens")

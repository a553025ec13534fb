"""``starsd chat``: questions to a gateway, answers as they come, then how fast they came."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from starsd.errors import ErrorBody, RemoteError, StarsdError, TransportError, UnavailableError

TIMEOUT = httpx.Timeout(60.0, connect=5.0)
"""The longest silence; the gateway sends comments while it has nothing to say."""

Show = Callable[[str, str | None], None]
"""Gets each piece of text, and how the star came by it (``accepted``, ``recovered``, ``bonus``,
``plain``), if that is known."""


@dataclass(frozen=True)
class Wishes:
    """How to answer. None leaves a parameter to the gateway's default."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None

    @property
    def fields(self) -> dict[str, Any]:
        optional = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
        }
        return {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "starsd": {"origins": True},
            **{name: value for name, value in optional.items() if value is not None},
        }


@dataclass
class Report:
    """Times by a monotonic clock in seconds; ``stats`` is the gateway's ``starsd`` extension."""

    asked: float
    first: float | None = None
    last: float | None = None
    tokens: int = 0
    stats: dict[str, Any] = field(default_factory=dict)

    def text_came(self, now: float) -> None:
        self.first = now if self.first is None else self.first
        self.last = now

    def summary(self) -> str:
        """``TTFT 120 ms, 24 tokens, 31.2 tokens/s, ...``, as far as it is known."""
        parts = []
        if self.first is not None:
            parts.append(f"TTFT {1000 * (self.first - self.asked):.0f} ms")
        parts.append(f"{self.tokens} tokens")
        if (rate := self.tokens_per_s) is not None:
            parts.append(f"{rate:.1f} tokens/s")
        return ", ".join([*parts, *self._speculation()])

    @property
    def tokens_per_s(self) -> float | None:
        """While decoding: the first token belongs to the TTFT."""
        if self.first is None or self.last is None or self.last <= self.first or self.tokens < 2:
            return None
        return (self.tokens - 1) / (self.last - self.first)

    def _speculation(self) -> Iterator[str]:
        proposed, accepted = self.stats.get("proposed", 0), self.stats.get("accepted", 0)
        if proposed:
            yield f"acceptance {accepted / proposed:.2f} ({accepted} of {proposed} proposed tokens)"
        elif self.stats:
            yield "nothing was proposed"
        if fallbacks := self.stats.get("fallbacks"):
            yield f"{fallbacks} plain steps for want of a proposal"
        if target := self.stats.get("target"):
            yield f"by {target}"


class Dialogue:
    """A conversation with the gateway at ``url``; every question comes with all that was said."""

    def __init__(self, url: str, wishes: Wishes, client: httpx.Client) -> None:
        self._url = url
        self._wishes = wishes
        self._client = client
        self.messages: list[dict[str, str]] = []

    def ask(self, text: str, show: Show) -> Report:
        """One more question. What was not answered is not remembered.

        Raises:
            UnavailableError: nothing answers there.
            TransportError: the stream broke.
            RemoteError: the gateway refused, or failed in mid-answer.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        said: list[str] = []

        def hear(piece: str, origin: str | None) -> None:
            said.append(piece)
            show(piece, origin)

        report = self._answer({"messages": asked, **self._wishes.fields}, hear)
        self.messages = [*asked, {"role": "assistant", "content": "".join(said)}]
        return report

    def _answer(self, body: dict[str, Any], show: Show) -> Report:
        report, url = Report(asked=time.monotonic()), f"{self._url}/v1/chat/completions"
        try:
            with self._client.stream("POST", url, json=body) as answer:
                _check(answer)
                for chunk in chunks(answer.iter_lines()):
                    _take(chunk, report, show)
        except httpx.ConnectError as error:
            message = f"nothing listens at {self._url}: is `starsd up` running?"
            raise UnavailableError(message) from error
        except httpx.HTTPError as error:
            raise TransportError(f"{self._url}: {error or type(error).__name__}") from error
        return report


def first_model(url: str, client: httpx.Client) -> str:
    """The first model the gateway lists. Raises UnavailableError, RemoteError."""
    try:
        answer = client.get(f"{url}/v1/models")
        _check(answer)
        models = answer.json()["data"]
    except httpx.HTTPError as error:
        raise UnavailableError(f"nothing answers at {url}: is `starsd up` running?") from error
    if not models:
        raise UnavailableError(f"{url} has no target yet, so no model")
    return str(models[0]["id"])


def chunks(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """JSON chunks of a server-sent event stream, up to ``[DONE]``.

    Raises:
        TransportError: the stream ended without it.
        RemoteError: an error frame.
    """
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        chunk = json.loads(data)
        if "error" in chunk:
            raise _remote(chunk)
        yield chunk
    raise TransportError("the answer broke off")


def _take(chunk: dict[str, Any], report: Report, show: Show) -> None:
    star = chunk.get("starsd") or {}
    for choice in chunk.get("choices", ()):
        if text := choice.get("delta", {}).get("content"):
            report.text_came(time.monotonic())
            for piece in star.get("pieces") or [{"text": text, "origin": None}]:
                show(piece["text"], piece["origin"])
    if usage := chunk.get("usage"):
        report.tokens = usage["completion_tokens"]
    if "pieces" not in star:
        report.stats = star or report.stats


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    answer.read()
    try:
        raise _remote(answer.json())
    except (ValueError, KeyError, TypeError) as error:
        raise UnavailableError(f"{answer.url} answers {answer.status_code}") from error


def _remote(body: dict[str, Any]) -> StarsdError:
    error = body["error"]
    return RemoteError(ErrorBody(message=error["message"], type=error.get("type", "server_error")))

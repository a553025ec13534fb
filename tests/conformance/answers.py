"""What an answer says, whole or streamed: all of it but ids, times, statistics and boundaries."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.cases.star import parsed

Json = dict[str, Any]


@dataclass
class Choice:
    text: str = ""
    reason: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name and arguments of each."""
    tokens: list[Any] = field(default_factory=list)
    """Where log probabilities were asked for: what each token stands for, which tells its id."""
    logprobs: list[float] = field(default_factory=list)
    """Of each token, then of its likeliest ones."""

    def chat(self, said: Json, choice: Json) -> None:
        """Note a message, or a chunk's delta."""
        self.text += said.get("content") or ""
        for place, call in enumerate(said.get("tool_calls") or ()):
            self._call(call.get("index", place), call["function"])
        for token in (choice.get("logprobs") or {}).get("content") or ():
            tops = token["top_logprobs"]
            self.tokens.append([(one["token"], one["bytes"]) for one in (token, *tops)])
            self.logprobs += [one["logprob"] for one in (token, *tops)]

    def completion(self, choice: Json) -> None:
        self.text += choice["text"]
        told = choice.get("logprobs") or {"tokens": [], "token_logprobs": [], "text_offset": []}
        tops = told.get("top_logprobs") or [{}] * len(told["tokens"])
        self.tokens += zip(told["tokens"], told["text_offset"], map(list, tops), strict=True)
        for logprob, top in zip(told["token_logprobs"], tops, strict=True):
            self.logprobs += [logprob, *top.values()]

    def _call(self, index: int, function: Json) -> None:
        if index == len(self.calls):
            self.calls.append((function["name"], ""))
        name, arguments = self.calls[index]
        self.calls[index] = (name, arguments + function.get("arguments", ""))


@dataclass
class Answer:
    choices: list[Choice]
    model: str
    fingerprint: str
    usage: dict[str, int]
    starsd: Json = field(compare=False)
    """The statistics, which may differ."""


def answer_of(response: Any, *, stream: bool) -> Answer:
    """Raises AssertionError if it is no answer."""
    assert response.status_code == 200, response.text
    pieces = parsed(response) if stream else [response.json()]
    choices: dict[int, Choice] = defaultdict(Choice)
    for choice in (choice for piece in pieces for choice in piece["choices"]):
        _note(choices[choice["index"]], choice)
    usage = pieces[-1]["usage"]
    counts = {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}
    (starsd,) = [piece["starsd"] for piece in pieces if "rounds" in piece.get("starsd", {})]
    fingerprints = {piece["system_fingerprint"] for piece in pieces}
    assert len(fingerprints) == 1
    said = [choices[index] for index in range(len(choices))]
    return Answer(said, pieces[0]["model"], fingerprints.pop(), counts, starsd)


def _note(said: Choice, choice: Json) -> None:
    if "text" in choice:
        said.completion(choice)
    else:
        said.chat(choice.get("message") or choice["delta"], choice)
    said.reason = choice["finish_reason"] or said.reason

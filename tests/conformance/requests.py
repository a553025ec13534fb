"""Random requests of every kind that is served, each with a seed of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.tiny import VOCAB

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
Fields = dict[str, Any]


@dataclass(frozen=True)
class Request:
    path: str
    body: Mapping[str, Any]

    def spoken(self, speculation: str | int) -> Fields:
        """Its body, with that much speculation."""
        return {**self.body, "starsd": {"speculation": speculation}}


_WORDS = (
    "the star",
    "and",
    "targets verify",
    "\N{SNOWMAN}",
    "звезда",
    "<|im_end|>",
    "{",
    "7",
    "\n",
)
_TEXT = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=3).map(" ".join)
_PART = st.fixed_dictionaries({"type": st.just("text"), "text": _TEXT})
_PARTS = st.lists(_PART, min_size=1, max_size=2)
_TURN = st.fixed_dictionaries(
    {"role": st.sampled_from(("user", "assistant")), "content": _TEXT | _PARTS}
)
_SYSTEM = st.fixed_dictionaries({"role": st.just("system"), "content": _TEXT})
_LAST = st.fixed_dictionaries({"role": st.just("user"), "content": _TEXT})
_IDS = st.integers(3, VOCAB - 1)

_SAMPLING: Fields = {
    "temperature": st.sampled_from((0, 1e-6, 0.4, 1.0, 1.8)),
    "top_p": st.sampled_from((0.1, 0.8, 1.0)),
    "top_k": st.sampled_from((-1, 0, 1, 5, 40)),
    "min_p": st.sampled_from((0.0, 0.05, 0.5)),
    "frequency_penalty": st.sampled_from((-1.0, 0.0, 0.7, 2.0)),
    "presence_penalty": st.sampled_from((-0.5, 0.0, 1.5)),
    "repetition_penalty": st.sampled_from((0.8, 1.0, 1.3)),
    "logit_bias": st.dictionaries(_IDS.map(str), st.integers(-100, 8), max_size=4),
    "stop": st.sampled_from(("e", ["s", "th", "."], ["a", "\N{SNOWMAN}"], "never to be said")),
    "stop_token_ids": st.lists(_IDS, max_size=3),
    "ignore_eos": st.booleans(),
    "n": st.sampled_from((1, 1, 2)),
}
_CHAT_LOGPROBS: SearchStrategy[Fields] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"logprobs": st.just(True), "top_logprobs": st.integers(0, 5)}),
)
_TEXT_LOGPROBS: SearchStrategy[Fields] = st.one_of(
    st.just({}), st.fixed_dictionaries({"logprobs": st.integers(0, 5)})
)
_STREAM = st.sampled_from(({}, {"stream": True, "stream_options": {"include_usage": True}}))

_THING: Fields = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["sun", "\N{SNOWMAN}"]},
    },
    "required": ["kind"],
    "additionalProperties": False,
}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": _THING}}
_TOOLS = [
    {"type": "function", "function": {"name": "measure", "parameters": _THING}},
    {"type": "function", "function": {"name": "wait"}},
]
_NAMED = {"type": "function", "function": {"name": "measure"}}
A_CALL = '<tool_call>\n{"name": "measure", "arguments": {"size": 7, "kind": "sun"}}\n</tool_call>'
_SHAPES: tuple[Fields, ...] = (
    {"response_format": {"type": "json_object"}},
    {"response_format": _FORMAT},
    {"guided_regex": "(star|sun)s? [0-9]{1,3}"},
    {"guided_choice": ["yes", "no", "\N{SNOWMAN}"]},
    {"guided_json": _THING},
)
_USES: tuple[Fields, ...] = (
    {"tool_choice": "auto"},
    {"tool_choice": "required"},
    {"tool_choice": "required", "parallel_tool_calls": False},
    {"tool_choice": _NAMED},
    {"tool_choice": _NAMED},
    {"response_format": _FORMAT},
)
"""Of tools. In the last one an answer is a call, or of that shape."""
_LONGEST, _LONGEST_CALL = 40, 80


@st.composite
def _sampled(draw: st.DrawFn, shape: Fields, lengths: SearchStrategy[int]) -> Fields:
    """What chat and completions share."""
    required = {"seed": st.integers(0, 2**63 - 1), "max_tokens": lengths}
    fields = draw(st.fixed_dictionaries(required, optional=_SAMPLING)) | draw(_STREAM)
    at_odds = {"ignore_eos"} if shape else set()
    if "tools" in shape:  # a call would hardly ever be whole
        at_odds |= {"stop", "stop_token_ids"}
    return {name: value for name, value in fields.items() if name not in at_odds} | shape


@st.composite
def _chats(draw: st.DrawFn, shape: Fields, lengths: SearchStrategy[int]) -> Request:
    system, turns = draw(st.lists(_SYSTEM, max_size=1)), draw(st.lists(_TURN, max_size=1))
    fields = draw(_sampled(shape, lengths)) | draw(_CHAT_LOGPROBS)
    return Request(CHAT, {"messages": [*system, *turns, draw(_LAST)], **fields})


@st.composite
def _completions(draw: st.DrawFn, shape: Fields, lengths: SearchStrategy[int]) -> Request:
    ids = st.lists(_IDS, min_size=1, max_size=12)
    prompt = draw(_TEXT | ids | st.lists(_TEXT, min_size=1, max_size=2))
    fields = draw(_sampled(shape, lengths)) | draw(_TEXT_LOGPROBS)
    return Request(COMPLETIONS, {"prompt": prompt, **fields})


def requests() -> SearchStrategy[Request]:
    """Valid ones, for ``tests.tiny``'s vocabulary; the model's name is the caller's to add."""
    shapes: SearchStrategy[Fields] = st.just({}) | st.sampled_from(_SHAPES)
    lengths = st.integers(1, _LONGEST)
    return shapes.flatmap(lambda shape: _chats(shape, lengths) | _completions(shape, lengths))


def stops() -> SearchStrategy[Request]:
    """The same with log probabilities, up to a stop that this model is likely to say."""
    fields = st.sampled_from(("e", ["s", "t"], ["a", "\N{SNOWMAN}"])).map(
        lambda stop: {"stop": stop, "logprobs": 1}
    )
    room = st.integers(_LONGEST // 2, _LONGEST)
    return fields.flatmap(lambda shape: _completions(shape, room))


def calls() -> SearchStrategy[Request]:
    """The same with tools, most of which must be called and have room for it."""
    room = st.integers(_LONGEST_CALL // 2, _LONGEST_CALL)
    return st.sampled_from(_USES).flatmap(lambda use: _chats({"tools": _TOOLS, **use}, room))

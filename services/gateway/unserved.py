"""Fields of OpenAI's chat API (and common extensions) that we know and do not serve.

Each may be absent, null, or hold a value that asks for nothing; anything else is refused by name,
never ignored. Source of the list: the ``openai`` package's request types; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from services.gateway.faults import unsupported

Neutral = Mapping[str, tuple[Any, ...]]
"""Field name to the values that ask for nothing."""

REQUEST: Neutral = {
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "ignore_eos": (False,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "safety_identifier": (),
    "service_tier": ("auto", "default"),
    "stop_token_ids": ([],),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}

MESSAGE: Neutral = {"annotations": ([],), "audio": (), "function_call": (), "refusal": ()}

STREAM_OPTIONS: Neutral = {"include_obfuscation": (False,)}


def drop_neutral(body: dict[str, Any], fields: Neutral) -> dict[str, Any]:
    """``body`` without the unserved fields that ask for nothing.

    Raises:
        PydanticCustomError: one asks for something; ``ctx["field"]`` names it.
    """
    kept = {}
    for name, value in body.items():
        if name not in fields:
            kept[name] = value
        elif not _asks_nothing(value, fields[name]):
            raise _refusal(name, value, fields[name])
    return kept


def _asks_nothing(value: Any, neutral: tuple[Any, ...]) -> bool:
    if value is None:
        return True
    # True == 1 and False == 0 in Python, but not in JSON.
    return any(value == n and isinstance(value, bool) == isinstance(n, bool) for n in neutral)


def _refusal(name: str, value: Any, neutral: tuple[Any, ...]) -> PydanticCustomError:
    allowed = " or ".join(["null", *map(repr, neutral)])
    return unsupported(f"not served; leave it out or send {allowed}", value, field=name)

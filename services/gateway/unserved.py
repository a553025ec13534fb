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

CHAT: Neutral = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": ("none",),
    "store": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}

COMPLETION: Neutral = {"echo": (False,), "min_tokens": (0,), "suffix": ("",)}

MESSAGE: Neutral = {"annotations": ([],), "audio": (), "function_call": (), "refusal": ()}

STRUCTURED_OUTPUTS: Neutral = {
    "disable_additional_properties": (False,),
    "disable_any_whitespace": (False,),
    "disable_fallback": (False, True),
    "structural_tag": (),
    "whitespace_pattern": (),
}

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

"""What a target checks of a request before its step loop sees it: nothing may kill the engine.

The gateway has checked most of this already, with better words for users; a target trusts nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from starsd.errors import ContextLengthError, RequestError, UnknownModelError
from starsd.protocol.events import Generate
from starsd.protocol.sampling import SamplingParams

MAX_SEED = 2**64 - 1
MAX_STOPS = 16
MAX_STOP_CHARS = 4096
MAX_MAGNITUDE = 1e6
CHARS_PER_TOKEN = 256
"""More than any tokenizer packs into a token on average over a whole prompt."""


def decode(body: bytes) -> Generate:
    """Raises RequestError, naming the field."""
    try:
        return msgspec.json.decode(body, type=Generate)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"undecodable request: {error}") from error


def check(generate: Generate, model: str, vocab_size: int) -> None:
    """Raises RequestError or UnknownModelError."""
    if generate.model != model:
        raise UnknownModelError(f"model {generate.model!r}: this target serves {model!r}")
    _check_messages(generate)
    _check_stops(generate.stop)
    _check_sampling(generate.sampling, vocab_size)


def _check_messages(generate: Generate) -> None:
    if not generate.messages:
        raise RequestError("messages is empty", param="messages")
    for place, message in enumerate(generate.messages):
        if not all(isinstance(message.get(key), str) for key in ("role", "content")):
            where = f"messages[{place}]"
            raise RequestError(f"{where}: role and content must be text", param=where)


def _check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > MAX_STOPS:
        raise RequestError(f"stop has {len(stops)} strings, at most {MAX_STOPS}", param="stop")
    for stop in stops:
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            bounds = f"each must have 1 to {MAX_STOP_CHARS}"
            raise RequestError(f"a stop string has {len(stop)} characters, {bounds}", param="stop")


def _check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    if sampling.seed > MAX_SEED:
        raise RequestError(f"seed {sampling.seed} is over {MAX_SEED}", param="seed")
    if sampling.penalties is not None:
        penalties = sampling.penalties
        _check_numbers((penalties.frequency, penalties.presence, penalties.repetition), "penalties")
    if sampling.bias is not None:
        _check_numbers(sampling.bias.values(), "logit_bias")
        for token in sampling.bias:
            if not 0 <= token < vocab_size:
                message = f"logit_bias has token id {token}; ids are 0 to {vocab_size - 1}"
                raise RequestError(message, param="logit_bias")


def _check_numbers(values: Iterable[float], param: str) -> None:
    for value in values:
        if not math.isfinite(value) or abs(value) > MAX_MAGNITUDE:
            raise RequestError(f"{param} has {value}, over {MAX_MAGNITUDE:g}", param=param)


def check_size(generate: Generate, max_length: int) -> None:
    """Refuse what cannot fit before it is tokenised, which takes a second per megabyte.

    Raises:
        ContextLengthError: with the numbers.
    """
    characters = sum(len(message["content"]) for message in generate.messages)
    if characters > max_length * CHARS_PER_TOKEN:
        message = (
            f"the context of this model is {max_length} tokens; the messages have {characters} "
            f"characters, over {CHARS_PER_TOKEN} for each"
        )
        raise ContextLengthError(message, param="messages")


def room(prompt_len: int, max_tokens: int | None, max_length: int) -> int:
    """Tokens that may be generated. Raises ContextLengthError, with the numbers."""
    limit = f"the context of this model is {max_length} tokens"
    if prompt_len + 1 > max_length:
        message = f"{limit}; the prompt has {prompt_len} and an answer needs at least 1"
        raise ContextLengthError(message, param="messages")
    left = max_length - prompt_len
    if max_tokens is not None and max_tokens > left:
        message = f"{limit}; the prompt has {prompt_len} and max_tokens asks for {max_tokens} more"
        raise ContextLengthError(message, param="max_tokens")
    return left if max_tokens is None else max_tokens

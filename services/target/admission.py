"""What a target checks of a request before its step loop sees it: nothing may kill the engine.

The gateway has checked most of this already, with better words for users; a target trusts nobody.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TypeVar

import msgspec

from starsd.errors import ContextLengthError, RequestError, UnknownModelError
from starsd.protocol.events import Generate
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokenizing import Detokenize, Tokenize

MAX_SEED = 2**64 - 1
MAX_STOPS = 16
MAX_STOP_CHARS = 4096
MAX_MAGNITUDE = 1e6
CHARS_PER_TOKEN = 256
"""More than any tokenizer packs into a token on average over a whole prompt."""


Asked = TypeVar("Asked", Generate, Tokenize, Detokenize)


def decode(body: bytes, kind: type[Asked]) -> Asked:
    """Raises RequestError, naming the field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"undecodable request: {error}") from error


def check(generate: Generate, names: Collection[str], vocab_size: int) -> None:
    """``names`` are all that the model goes by. Raises RequestError or UnknownModelError."""
    check_model(generate.model, names)
    check_prompt(generate, vocab_size)
    check_ids(generate.stop_token_ids, "stop_token_ids", vocab_size)
    _check_stops(generate.stop)
    _check_shape(generate)
    _check_sampling(generate.sampling, vocab_size)


def check_model(model: str, names: Collection[str]) -> None:
    """Raises UnknownModelError."""
    if model not in names:
        raise UnknownModelError(f"model {model!r}: this target serves {', '.join(names)}")


def check_prompt(asked: Generate | Tokenize, vocab_size: int) -> None:
    """Messages, text or ids, and one of them. Raises RequestError."""
    if asked.prompt is None:
        _check_messages(asked)
    elif asked.messages:
        raise RequestError("prompt: there are messages, too", param="prompt")
    elif not isinstance(asked.prompt, str):
        check_ids(asked.prompt, "prompt", vocab_size)


def check_ids(tokens: Iterable[int], param: str, vocab_size: int) -> None:
    """Raises RequestError for an id outside the vocabulary."""
    for token in tokens:
        if not 0 <= token < vocab_size:
            message = f"{param} has token id {token}; ids are 0 to {vocab_size - 1}"
            raise RequestError(message, param=param)


def _check_messages(asked: Generate | Tokenize) -> None:
    if not asked.messages:
        raise RequestError("messages is empty", param="messages")
    for place, message in enumerate(asked.messages):
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


def _check_shape(generate: Generate) -> None:
    if generate.tools is not None and generate.prompt is not None:
        raise RequestError("tools go with messages, not with a prompt", param="tools")
    if generate.ignore_eos and (generate.grammar or generate.tools) is not None:
        right = "ignore_eos: an answer ends where its grammar or its calls do"
        raise RequestError(right, param="ignore_eos")


def _check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    if sampling.seed > MAX_SEED:
        raise RequestError(f"seed {sampling.seed} is over {MAX_SEED}", param="seed")
    if sampling.penalties is not None:
        penalties = sampling.penalties
        _check_numbers((penalties.frequency, penalties.presence, penalties.repetition), "penalties")
    if sampling.bias is not None:
        _check_numbers(sampling.bias.values(), "logit_bias")
        check_ids(sampling.bias, "logit_bias", vocab_size)


def _check_numbers(values: Iterable[float], param: str) -> None:
    for value in values:
        if not math.isfinite(value) or abs(value) > MAX_MAGNITUDE:
            raise RequestError(f"{param} has {value}, over {MAX_MAGNITUDE:g}", param=param)


def check_size(asked: Generate | Tokenize, max_length: int) -> None:
    """Refuse what cannot fit before it is tokenised, which takes a second per megabyte.

    Raises:
        ContextLengthError: with the numbers.
    """
    prompt = asked.prompt if isinstance(asked.prompt, str) else ""
    characters = len(prompt) + sum(len(message["content"]) for message in asked.messages)
    if isinstance(asked, Generate) and asked.tools is not None:
        characters += len(msgspec.json.encode(asked.tools))
    if characters > max_length * CHARS_PER_TOKEN:
        message = (
            f"the context of this model is {max_length} tokens; the prompt has {characters} "
            f"characters, over {CHARS_PER_TOKEN} for each"
        )
        raise ContextLengthError(message, param=source(asked))


def source(asked: Generate | Tokenize) -> str:
    """The field that the prompt comes from."""
    return "messages" if asked.prompt is None else "prompt"


def room(generate: Generate, prompt_len: int, max_length: int) -> int:
    """Tokens that may be generated. Raises RequestError for an empty prompt, ContextLengthError,
    with the numbers, for one that is too long."""
    param, max_tokens = source(generate), generate.max_tokens
    limit = f"the context of this model is {max_length} tokens"
    if not prompt_len:
        raise RequestError(f"{param}: no token to begin with", param=param)
    if prompt_len + 1 > max_length:
        message = f"{limit}; the prompt has {prompt_len} and an answer needs at least 1"
        raise ContextLengthError(message, param=param)
    left = max_length - prompt_len
    if max_tokens is not None and max_tokens > left:
        message = f"{limit}; the prompt has {prompt_len} and max_tokens asks for {max_tokens} more"
        raise ContextLengthError(message, param="max_tokens")
    return left if max_tokens is None else max_tokens

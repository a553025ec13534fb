"""The fixed tokens of a chat template, between which a model writes both sides of a dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from starsd.errors import ConfigError

_MARKS = ("\ue000", "\ue001", "\ue002")
"""Private-use characters stand for what is said; no template contains them."""


@dataclass(frozen=True)
class Frame:
    """Token ids. ``opening`` comes before the user's first words; ``answer`` between the user's
    last word and the model's first, ``reply`` the other way round."""

    opening: tuple[int, ...]
    answer: tuple[int, ...]
    reply: tuple[int, ...]

    def after(self, part: Sequence[int], ended_by: int) -> list[int]:
        """``part`` without its first token where that is what ended the turn before it."""
        return list(part[1:] if part[:1] == (ended_by,) else part)


def chat_frame(folder: Path) -> Frame:
    """The frame of the chat template in a checkpoint folder.

    Raises:
        ConfigError: there is no template, or it changes or reorders what is said.
    """
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    roles = ("user", "assistant", "user")
    messages = [{"role": role, "content": mark} for role, mark in zip(roles, _MARKS, strict=True)]
    text = _applied(tokenizer, messages)
    if [mark for mark in text if mark in _MARKS] != list(_MARKS):
        raise ConfigError(f"{folder.name}: its chat template does not say each message once")
    pieces = [text]
    for mark in _MARKS:
        pieces[-1:] = pieces[-1].split(mark)
    opening, answer, reply, _ = (
        tuple(tokenizer.encode(piece, add_special_tokens=False)) for piece in pieces
    )
    return Frame(opening, answer, reply)


def _applied(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    try:
        text: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # jinja raises what the template likes
        raise ConfigError(f"no usable chat template: {error}") from error
    return text

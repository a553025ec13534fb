"""The fixed tokens of chat templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from starsd.engine.tokenizer import HfTokenizer
from starsd.errors import ConfigError
from tests.tiny import make_tokenizer
from training.frame import chat_frame


def saved(folder: Path, template: str | None) -> Path:
    tokenizer = make_tokenizer()
    if template is not None:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder


def test_a_frame_around_what_is_said_is_the_template(tiny_model: Path) -> None:
    frame = chat_frame(tiny_model)
    tokenizer = make_tokenizer()
    said = [tokenizer.encode(text, add_special_tokens=False) for text in ("one", "two", "three")]
    whole = [
        *frame.opening,
        *said[0],
        *frame.answer,
        *said[1],
        *frame.reply,
        *said[2],
        *frame.answer,
    ]
    roles = ("user", "assistant", "user")
    messages = [
        {"role": role, "content": text}
        for role, text in zip(roles, ("one", "two", "three"), strict=True)
    ]
    assert HfTokenizer(tiny_model).encode_chat(messages) == whole


def test_a_turn_that_ended_itself_is_not_ended_twice(tiny_model: Path) -> None:
    frame = chat_frame(tiny_model)
    end = frame.answer[0]
    assert frame.after(frame.answer, end) == list(frame.answer[1:])
    assert frame.after(frame.answer, end + 1) == list(frame.answer)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ messages[0]['content'] }}", "does not say each message once"),
        ("{{ raise_exception('never') }}", "no usable chat template"),
    ],
)
def test_templates_that_cannot_frame(tmp_path: Path, template: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        chat_frame(saved(tmp_path, template))

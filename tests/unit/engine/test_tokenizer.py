from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.engine.tokenizer import HfTokenizer
from starsd.errors import ConfigError, RequestError
from tests.tiny import make_tokenizer

HELLO = [{"role": "user", "content": "the star, please 😀"}]


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> HfTokenizer:
    return HfTokenizer(tiny_model)


def ids(tokenizer: HfTokenizer, text: str) -> list[int]:
    found: list[int] = tokenizer._backend.encode(text).ids
    return found


def test_chat_template(tokenizer: HfTokenizer) -> None:
    tokens = tokenizer.encode_chat(HELLO)
    text = tokenizer._backend.decode(tokens, skip_special_tokens=False)
    assert text == "<|im_start|>user\nthe star, please 😀<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "messages", [[{"role": "wizard", "content": "x"}], [{"content": "no role"}]]
)
def test_template_refusal_is_the_clients_error(
    tokenizer: HfTokenizer, messages: list[dict[str, str]]
) -> None:
    with pytest.raises(RequestError) as error:
        tokenizer.encode_chat(messages)
    assert error.value.param == "messages"


def test_no_template(tmp_path: Path) -> None:
    plain = make_tokenizer()
    plain.chat_template = None
    plain.save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="template"):
        HfTokenizer(tmp_path).encode_chat(HELLO)


def test_sizes_and_ends(tokenizer: HfTokenizer, tiny_model: Path, tmp_path: Path) -> None:
    assert tokenizer.vocab_size == 320
    assert tokenizer.eos_ids == (1,)
    folder = shutil.copytree(tiny_model, tmp_path / "more")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 9]}))
    assert HfTokenizer(folder).eos_ids == (1, 9)


def test_emoji_is_held_until_whole(tokenizer: HfTokenizer) -> None:
    tokens = ids(tokenizer, "😀")
    assert len(tokens) > 1
    stream = tokenizer.text_stream()
    pieces = [stream.push(token) for token in tokens]
    assert pieces == [""] * (len(tokens) - 1) + ["😀"]
    assert stream.flush() == ""


def test_incomplete_tail_is_flushed_once(tokenizer: HfTokenizer) -> None:
    stream = tokenizer.text_stream()
    text = "".join(stream.push(token) for token in ids(tokenizer, "a😀")[:-1])
    assert text == "a"
    assert set(stream.flush()) == {"�"}
    assert stream.flush() == ""


def test_special_tokens_vanish(tokenizer: HfTokenizer) -> None:
    stream = tokenizer.text_stream()
    assert stream.push(1) == ""
    assert "".join(stream.push(token) for token in ids(tokenizer, "star")) == "star"


def test_or_are_written_out_where_calls_are_marked_by_them(tokenizer: HfTokenizer) -> None:
    stream = tokenizer.text_stream(special=True)
    tokens = [0, *ids(tokenizer, "star"), 1]
    text = "".join(stream.push(token) for token in tokens) + stream.flush()
    assert text == "<|im_start|>star<|im_end|>"


def test_special_ids(tokenizer: HfTokenizer) -> None:
    assert tokenizer.special_id("<|im_end|>") == 1
    assert tokenizer.special_id("star") is None
    assert tokenizer.special_id("<tool_call>") is None


TOOL = {"type": "function", "function": {"name": "look", "description": "<|im_end|>"}}
TOOL_TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
    "<|im_end|>{% endfor %}"
)


def test_templates_show_tools_and_calls(tmp_path: Path) -> None:
    """What looks special in a tool is text."""
    templated = make_tokenizer()
    templated.chat_template = TOOL_TEMPLATE
    templated.save_pretrained(tmp_path)
    tokenizer = HfTokenizer(tmp_path)
    call: dict[str, Any] = {"function": {"name": "look", "arguments": {"far": True}}}
    messages: list[dict[str, Any]] = [
        *HELLO,
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    tokens = tokenizer.encode_chat(messages, [TOOL])
    text = tokenizer.decode(tokens)
    assert text.startswith(json.dumps([TOOL]))
    assert text.endswith('<|im_start|>{"far": true}<|im_end|>')
    assert tokens.count(1) == len(messages)
    assert tokenizer.chat_template == TOOL_TEMPLATE


def test_several_templates(tmp_path: Path) -> None:
    """Old checkpoints have one of their own for tools."""
    templated = make_tokenizer()
    templated.chat_template = {"default": "plain", "tool_use": "tools: {{ tools | length }}"}
    templated.save_pretrained(tmp_path)
    tokenizer = HfTokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode_chat(HELLO)) == "plain"
    assert tokenizer.decode(tokenizer.encode_chat(HELLO, [TOOL])) == "tools: 1"
    assert "tools" in tokenizer.chat_template


@given(text=st.text(max_size=40))
def test_any_text_streams_unchanged(tokenizer: HfTokenizer, text: str) -> None:
    stream = tokenizer.text_stream()
    found = "".join(stream.push(token) for token in ids(tokenizer, text)) + stream.flush()
    assert found == tokenizer._backend.decode(ids(tokenizer, text))


@given(tokens=st.lists(st.integers(0, 319), max_size=60))
def test_any_tokens_stream_as_they_decode(tokenizer: HfTokenizer, tokens: list[int]) -> None:
    """Also invalid UTF-8: what was released stays a prefix of the whole."""
    stream = tokenizer.text_stream()
    found = "".join(stream.push(token) for token in tokens) + stream.flush()
    assert found == tokenizer._backend.decode(tokens, skip_special_tokens=True)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        HfTokenizer(tmp_path)


def test_no_torch(tiny_model: Path) -> None:
    """The front loads model and tokenizer without torch."""
    code = (
        "import sys; from starsd.engine.loading import load_model;"
        "from starsd.settings.model import ModelSettings;"
        f"model = load_model(ModelSettings(model={str(tiny_model)!r}));"
        "model.tokenizer().encode_chat([{'role': 'user', 'content': 'x'}]);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0

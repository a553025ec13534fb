"""Prompt files: read, or refused with the line that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load.prompts import DEFAULT, load_prompts

QUESTION = {"role": "user", "content": "Why?"}


def test_both_forms(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        '{"prompt": "Why?"}\n\n'
        '{"messages": [{"role": "system", "content": "Be short."},'
        ' {"role": "user", "content": "Why?"}]}\n'
    )
    assert load_prompts(path) == [
        [QUESTION],
        [{"role": "system", "content": "Be short."}, QUESTION],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no prompts"),
        ('{"prompt": "Why?"}\noops', r"prompts\.jsonl:2: "),
        ('{"prompt": ""}', 'prompts.jsonl:1: needs either "prompt" or "messages"'),
        ('{"prompt": "a", "messages": [{}]}', 'needs either "prompt" or "messages"'),
        ('{"promt": "a"}', "unknown field `promt`"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        load_prompts(path)


def test_ours_are_many() -> None:
    prompts = load_prompts(DEFAULT)
    assert len({str(messages) for messages in prompts}) == len(prompts) >= 10

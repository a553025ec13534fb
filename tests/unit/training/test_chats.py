"""Chats of a user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from starsd.errors import ConfigError
from tests.unit.training.test_dialogues import EOS, FRAME, run, speaker
from training.chats import read_chats, unanswered
from training.dialogues import USER_TOKENS


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "chats.jsonl:1: "),
        (b'{"messages": [{"role": "assistant", "content": "x"}]}', "want messages with role user"),
        (b'{"messages": [{"role": "user"}]}', "missing required field `content`"),
    ],
)
def test_bad_chats(tmp_path: Path, line: bytes, told: str) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(ConfigError, match=told):
        read_chats(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_chats(tmp_path / "none")


def test_only_those_that_nobody_answered_are_asked_again() -> None:
    chats = [[[30]], [[30, 31], [32]], [[30, 31]], [[33]]]
    held = [one for one in run(speaker(6, chats=[[[30, 31]], [[34]]]), 6) if one.number < 2]
    assert unanswered(chats, FRAME, held) == [[[30]], [[30, 31]], [[33]]]
    assert unanswered(chats, FRAME, []) == chats


def test_a_first_turn_too_long_to_answer_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    room = 2000 - USER_TOKENS - len(FRAME.opening) - len(FRAME.answer)
    long, short = [[30] * (room + 1)], [[31] * room]
    found = np.concatenate([one.tokens for one in run(speaker(6, chats=[long, short]), 12)])
    assert 30 not in found
    assert (found == 31).sum() == room
    assert EOS in found
    assert "chat left out" in capsys.readouterr().out

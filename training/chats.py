"""Chats of a user's own, whose user turns the target answers anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from starsd.errors import ConfigError
from training.frame import Frame
from training.shards import Dialogue

Chat = list[list[int]]
"""What a user says, turn by turn, in token ids."""


class _Message(msgspec.Struct):
    role: str
    content: str


class _Chat(msgspec.Struct):
    messages: list[_Message]


def read_chats(path: Path) -> list[list[str]]:
    """What users say, turn by turn, of each line ``{"messages": [{"role", "content"}, ...]}``.

    Raises:
        ConfigError: unreadable, or a line that is no such object or in which no user speaks.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", param="chats") from error
    return [_users(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line]


def _users(line: bytes, where: str) -> list[str]:
    try:
        chat = msgspec.json.decode(line, type=_Chat)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{where}: {error}", param="chats") from error
    said = [one.content for one in chat.messages if one.role == "user" and one.content]
    if not said:
        raise ConfigError(f"{where}: want messages with role user", param="chats")
    return said


def unanswered(chats: Iterable[Chat], frame: Frame, held: Iterable[Dialogue]) -> list[Chat]:
    """Those whose first turn is not that of a dialogue already held."""
    begun = Counter(one.tokens[: int(np.argmax(one.own))].tobytes() for one in held)
    left = []
    for chat in chats:
        first = [*frame.opening, *chat[0], *frame.answer]
        begins = np.array(first, dtype=np.int32).tobytes()
        begun[begins] -= 1
        if begun[begins] < 0:
            left.append(chat)
    return left

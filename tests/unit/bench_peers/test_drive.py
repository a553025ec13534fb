from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from starsd.bench.peers.drive import Reply, Run, measure, warm
from starsd.errors import UnavailableError
from tests.unit.bench_peers.support import prompts, running

QUESTIONS = prompts("one", "one two", "one two three", "one two", "one", "one")


def peak(url: str) -> int:
    return int(httpx.get(f"{url}/peak", trust_env=False).json()["peak"])


@pytest.mark.parametrize("concurrency", [1, 3])
def test_every_prompt_once_and_so_many_at_once(tmp_path: Path, concurrency: int) -> None:
    with running(tmp_path) as peer:
        run = measure(peer, QUESTIONS, concurrency, max_tokens=8, load=0.5)
        assert peak(peer.url) == concurrency
    assert [reply.prompt for reply in run.replies] == [prompt.id for prompt in QUESTIONS]
    assert [reply.prompt_tokens for reply in run.replies] == [1, 2, 3, 2, 1, 1]
    assert {reply.text for reply in run.replies} == {" ".join(["word"] * 8)}
    assert (run.server, run.concurrency, run.load) == ("peer", concurrency, 0.5)
    # The scripted peer takes 40 ms an answer; each of ours took that long, and so all in turn.
    assert all(reply.seconds >= 0.04 for reply in run.replies)
    assert run.wall_s >= 0.04 * len(QUESTIONS) / concurrency


def test_tokens_per_s_is_all_tokens_over_the_wall() -> None:
    replies = (Reply("a", 5, 30, 1.0, ""), Reply("b", 5, 70, 2.0, ""))
    assert Run("peer", 1, 4.0, 0.0, replies).tokens_per_s == 25.0


def test_warming_asks_as_many_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as peer:
        warm(peer, QUESTIONS, 4)
        assert peak(peer.url) == 4


def test_an_error_names_server_and_status(tmp_path: Path) -> None:
    with (
        running(tmp_path) as peer,
        pytest.raises(UnavailableError, match=r"(?s)peer: 500 .*broken"),
    ):
        measure(peer, prompts("break"), 1, 8, 0.0)


def test_an_answer_of_another_form_is_shown(tmp_path: Path) -> None:
    with (
        running(tmp_path) as peer,
        pytest.raises(UnavailableError, match=r'usage: {"choices": \[\]}'),
    ):
        measure(peer, prompts("mumble"), 1, 8, 0.0)


def test_a_server_that_is_gone_is_unavailable(tmp_path: Path) -> None:
    with running(tmp_path) as peer:
        pass
    with pytest.raises(UnavailableError, match="peer: ConnectError"):
        measure(peer, prompts("one"), 1, 8, 0.0)

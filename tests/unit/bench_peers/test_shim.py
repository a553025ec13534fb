from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from starsd.bench.peers import shim
from starsd.bench.peers.shim import Answer, Batcher, HuggingFace, Messages


def said(text: str) -> Messages:
    return [{"role": "user", "content": text}]


class Library:
    """Remembers its batches; answers what was asked. The first batch waits for ``go``."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.go = threading.Event()

    def __call__(self, conversations: list[Messages], max_tokens: int) -> list[Answer]:
        self.batches.append((len(conversations), max_tokens))
        assert self.go.wait(10)
        if conversations[0][0]["content"] == "break":
            raise RuntimeError("broken as asked")
        return [Answer(m[0]["content"], 1, max_tokens) for m in conversations]


def submitted(library: Library, largest: int, jobs: list[tuple[str, int]]) -> list[Answer]:
    """The answers to the first job, and to the others, which come while it is under way."""
    batcher = Batcher(library, largest)
    batcher.start()
    with ThreadPoolExecutor(len(jobs)) as pool:
        first = pool.submit(batcher.submit, said(jobs[0][0]), jobs[0][1])
        while not library.batches:
            pass
        others = []
        for text, tokens in jobs[1:]:
            others.append(pool.submit(batcher.submit, said(text), tokens))
            while batcher._jobs.qsize() < len(others):
                pass
        library.go.set()
        return [future.result(10) for future in (first, *others)]


def test_what_waits_is_one_batch_in_order() -> None:
    library = Library()
    answers = submitted(library, 8, [("a", 4), ("b", 4), ("c", 4), ("d", 4)])
    assert [answer.text for answer in answers] == ["a", "b", "c", "d"]
    assert library.batches == [(1, 4), (3, 4)]


def test_a_batch_has_its_limit() -> None:
    library = Library()
    submitted(library, 2, [("a", 4), ("b", 4), ("c", 4), ("d", 4)])
    assert library.batches == [(1, 4), (2, 4), (1, 4)]


def test_other_lengths_are_another_batch() -> None:
    library = Library()
    answers = submitted(library, 8, [("a", 4), ("b", 4), ("c", 9), ("d", 9)])
    assert [answer.tokens for answer in answers] == [4, 4, 9, 9]
    assert library.batches == [(1, 4), (1, 4), (2, 9)]


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """The URL of a shim in front of a library."""
    servers: list[ThreadingHTTPServer] = []

    def start(library: Any) -> str:
        batcher = Batcher(library, 8)
        batcher.start()
        handler = type("Bound", (shim.Handler,), {"batcher": batcher})
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[0].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[0].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask(url: str, text: str) -> httpx.Response:
    body = {"messages": said(text), "max_tokens": 7}
    return httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False)


def test_over_http(serve: Callable[[Any], str]) -> None:
    library = Library()
    library.go.set()
    url = serve(library)
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
    assert httpx.get(f"{url}/other", trust_env=False).status_code == 404
    answer = ask(url, "hello").json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "hello"}
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 7}


def test_a_failure_is_told_and_the_next_is_served(serve: Callable[[Any], str]) -> None:
    library = Library()
    library.go.set()
    url = serve(library)
    failed = ask(url, "break")
    assert failed.status_code == 500
    assert failed.json() == {"error": {"message": "RuntimeError: broken as asked"}}
    assert ask(url, "hello").status_code == 200


@pytest.mark.parametrize("lookup", [0, 10])
def test_hugging_face_in_a_batch_and_alone(tiny_model: Path, lookup: int) -> None:
    """Greedy generate of the library is the reference; padding and batch must not show."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    generate = HuggingFace(str(tiny_model), "float32", 1, lookup)
    asked = [said("hi"), said("the star has one draft and many targets"), said("a question")]
    answers = [a for one in asked for a in generate([one], 12)] if lookup else generate(asked, 12)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    for messages, answer in zip(asked, answers, strict=True):
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        whole = model.generate(ids, max_new_tokens=12, do_sample=False)[0]
        new = whole[ids.shape[1] :]
        assert answer.text == tokenizer.decode(new, skip_special_tokens=True)
        assert (answer.prompt_tokens, answer.tokens) == (ids.shape[1], len(new))


def test_a_row_ends_with_its_first_end_token(tiny_model: Path) -> None:
    generate = HuggingFace(str(tiny_model), "float32", 1)
    assert generate._answer([5, 6, 1, 2, 2], 3).tokens == 3
    assert generate._answer([5, 6, 7, 8, 9], 3).tokens == 5


def test_it_needs_the_standard_library_alone() -> None:
    """It runs where starsd is not installed: here without any site-packages."""
    command = [sys.executable, "-I", "-S", shim.__file__, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")

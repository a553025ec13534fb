"""``python -P shim.py hf|lookup|openvino --model FOLDER ...``: the OpenAI chat API in front of a
library that has no server of its own. It runs in that library's environment, without ours, so it
imports only the standard library and the peer.

Greedy only. Requests that wait at the same time, arrive within ``WINDOW_S`` of the first and want
as many tokens go through the library as one batch: the most that ``generate`` offers a server.
"""

from __future__ import annotations

import argparse
import importlib
import json
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WINDOW_S = 0.02
LOOKUP_TOKENS = 10
ANSWER_TIMEOUT_S = 600.0

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Answer:
    text: str
    prompt_tokens: int
    tokens: int
    """Generated, the end of sequence included."""


Generate = Callable[[list[Messages], int], list[Answer]]


@dataclass(frozen=True)
class Job:
    messages: Messages
    max_tokens: int
    answer: Future[Answer] = field(default_factory=Future)


class Batcher(threading.Thread):
    """Takes jobs off a queue, as many at a time as fit together, in the order they came."""

    def __init__(self, generate: Generate, largest: int) -> None:
        super().__init__(daemon=True)
        self._generate = generate
        self._largest = largest
        self._jobs: queue.Queue[Job] = queue.Queue()
        self._next: Job | None = None

    def submit(self, messages: Messages, max_tokens: int) -> Answer:
        job = Job(messages, max_tokens)
        self._jobs.put(job)
        return job.answer.result(ANSWER_TIMEOUT_S)

    def run(self) -> None:
        while True:
            batch = self._gather()
            try:
                answers = self._generate([job.messages for job in batch], batch[0].max_tokens)
            except Exception as error:
                for job in batch:
                    job.answer.set_exception(error)
            else:
                for job, answer in zip(batch, answers, strict=True):
                    job.answer.set_result(answer)

    def _gather(self) -> list[Job]:
        batch = [self._next or self._jobs.get()]
        self._next = None
        deadline = time.monotonic() + WINDOW_S
        while len(batch) < self._largest and self._next is None:
            try:
                job = self._jobs.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if job.max_tokens == batch[0].max_tokens:
                batch.append(job)
            else:
                self._next = job
        return batch


class Handler(BaseHTTPRequestHandler):
    """``GET /health`` and ``POST /v1/chat/completions``."""

    protocol_version = "HTTP/1.1"
    batcher: Batcher

    def do_GET(self) -> None:
        self._reply(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            answer = self.batcher.submit(body["messages"], body["max_tokens"])
        except Exception as error:
            self._reply(500, {"error": {"message": f"{type(error).__name__}: {error}"}})
        else:
            self._reply(200, completion(answer))

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: it would cost the measured core."""


def completion(answer: Answer) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer.text}
    usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.tokens}
    return {"choices": [{"index": 0, "message": message}], "usage": usage}


class HuggingFace:
    """``generate`` of transformers: eager, dynamic cache, left-padded batches."""

    def __init__(self, folder: str, dtype: str, threads: int, lookup: int = 0) -> None:
        torch = importlib.import_module("torch")
        transformers = importlib.import_module("transformers")
        torch.set_num_threads(threads)
        self._options = {"prompt_lookup_num_tokens": lookup} if lookup else {}
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._tokenizer.pad_token = self._tokenizer.pad_token or self._tokenizer.eos_token
        load = transformers.AutoModelForCausalLM.from_pretrained
        self._model = load(folder, dtype=getattr(torch, dtype)).eval()
        ends = self._model.generation_config.eos_token_id
        self._ends = set(ends if isinstance(ends, list) else [ends])

    def __call__(self, conversations: list[Messages], max_tokens: int) -> list[Answer]:
        prompts = self._tokenizer.apply_chat_template(
            conversations,
            add_generation_prompt=True,
            padding=True,
            return_dict=True,
            return_tensors="pt",
        )
        ids = self._model.generate(
            **prompts,
            max_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=self._tokenizer.pad_token_id,
            **self._options,
        )
        new = ids[:, prompts["input_ids"].shape[1] :].tolist()
        lengths = prompts["attention_mask"].sum(dim=1).tolist()
        return [self._answer(row, length) for row, length in zip(new, lengths, strict=True)]

    def _answer(self, row: list[int], prompt_tokens: int) -> Answer:
        """Rows that ended before the longest are padded: they end with their first end token."""
        end = next((i + 1 for i, token in enumerate(row) if token in self._ends), len(row))
        text = self._tokenizer.decode(row[:end], skip_special_tokens=True)
        return Answer(text, prompt_tokens, end)


class OpenVino:
    """``LLMPipeline`` of OpenVINO GenAI with its scheduler: continuous batching, paged cache."""

    def __init__(self, folder: str, dtype: str, threads: int, batch: int) -> None:
        self._genai = importlib.import_module("openvino_genai")
        scheduler = self._genai.SchedulerConfig()
        scheduler.max_num_seqs = batch
        scheduler.cache_size = 1  # GB
        scheduler.enable_prefix_caching = False  # the same prompts come again and again
        properties = {"INFERENCE_PRECISION_HINT": dtype, "INFERENCE_NUM_THREADS": threads}
        self._pipeline = self._genai.LLMPipeline(
            folder, "CPU", scheduler_config=scheduler, **properties
        )
        self._tokenizer = self._pipeline.get_tokenizer()

    def __call__(self, conversations: list[Messages], max_tokens: int) -> list[Answer]:
        texts = [self._tokenizer.apply_chat_template(messages, True) for messages in conversations]
        config = self._pipeline.get_generation_config()
        config.max_new_tokens, config.do_sample = max_tokens, False
        prompts = self._tokenizer.encode(texts, add_special_tokens=False)
        rows = self._pipeline.generate(prompts, config).tokens
        lengths = prompts.attention_mask.data.sum(axis=1).tolist()
        spoken = self._tokenizer.decode(rows, skip_special_tokens=True)
        answers = zip(spoken, lengths, rows, strict=True)
        return [Answer(text, length, len(row)) for text, length, row in answers]


def load(options: argparse.Namespace) -> tuple[Generate, int]:
    """The library, ready to work, and the largest batch it takes."""
    if options.library == "openvino":
        loaded = OpenVino(options.model, options.dtype, options.threads, options.batch)
        return loaded, options.batch
    if options.library == "lookup":  # transformers refuses more than one sequence
        return HuggingFace(options.model, options.dtype, options.threads, LOOKUP_TOKENS), 1
    return HuggingFace(options.model, options.dtype, options.threads), options.batch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=("hf", "lookup", "openvino"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    options = parser.parse_args()
    generate, largest = load(options)
    Handler.batcher = Batcher(generate, largest)
    Handler.batcher.start()
    ThreadingHTTPServer(("127.0.0.1", options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()

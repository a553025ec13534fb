"""Load for any OpenAI-compatible chat server::

    locust -f tests/load/locustfile.py --host http://127.0.0.1:8000 --headless -u 8 -r 8 -t 60s

Each user asks, reads and checks the answer (``answers.py``), and asks again at once: users are the
concurrency. A wrong answer is a failure, and so is a run without any right one; Locust then exits
with 1. Our own options are in ``options.py``. With ``--stop-timeout`` the last answers may end.
Where the server caches prefixes give ``--prompts`` of your own: the built-in ones repeat.

Beside the requests, whose times are those of whole answers, Locust's tables, ``--csv`` and
``--json`` have rows of type "metric" with a value for each right answer. Their "response time" is

- ``TTFT``: ms, from sending the request to the first text of the stream;
- ``TPOT``: ms, (time to the end of the stream - TTFT) / (completion_tokens - 1);
- ``tokens/s``: 1 / TPOT, what one user sees; **not a time**, the higher the better;
- ``output tokens``: completion_tokens;
- ``proposed tokens``, ``accepted tokens``: of speculation, where the server tells (StarSD does).

There is no inter-token latency: one chunk of a speculating server carries several tokens. Locust
adds metrics to requests in its "Aggregated" row, so that row means nothing here; its percentiles
have two digits, and whole ms below 100. A summary with the throughput of the whole run, ramp-up
included, comes last.
"""

# Locust is typed, but not its events.
# mypy: disable-error-code="no-untyped-call, untyped-decorator"

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, TypeVar

from geventhttpclient.response import HTTPSocketResponse
from locust import FastHttpUser, events, task
from locust.contrib.fasthttp import FAILURE_EXCEPTIONS, ResponseContextManager
from locust.env import Environment

from tests.load.answers import Answer, BadAnswerError, Stream, first_model, refusal, whole
from tests.load.options import add_options
from tests.load.prompts import Messages, load_prompts
from tests.load.summary import (
    ACCEPTED,
    METRIC,
    OUTPUT,
    PROPOSED,
    RATE,
    TPOT,
    TTFT,
    need_answers,
    note,
    tell,
)

CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
PAUSE_S = 1.0
"""After a failure: a server that refuses at once is not to be asked as fast as it can refuse."""
Body = dict[str, Any]
T = TypeVar("T")

events.init_command_line_parser.add_listener(add_options)
events.test_stop.add_listener(note)
events.quitting.add_listener(note)
events.quitting.add_listener(need_answers)
events.quit.add_listener(tell)


@events.init.add_listener
def prepare(environment: Environment, **_: object) -> None:
    """Once per process, before users exist."""
    options = environment.parsed_options
    assert options is not None
    try:
        ChatUser.prompts = load_prompts(Path(options.prompts))
    except (OSError, ValueError) as error:
        sys.exit(f"--prompts: {error}")
    ChatUser.network_timeout = ChatUser.connection_timeout = options.timeout
    StreamingUser.weight, PlainUser.weight = options.stream_share, 1 - options.stream_share


@events.test_start.add_listener
def forget(**_: object) -> None:
    """A run from the web page may go to another host."""
    ChatUser.model = ""


class ChatUser(FastHttpUser):
    """Asks one question after another."""

    abstract = True
    prompts: ClassVar[list[Messages]]
    model: ClassVar[str] = ""
    row: ClassVar[str]
    """What Locust calls these requests."""
    fields: ClassVar[Body]
    """Of the request, beside those of every request."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.options: Any = environment.parsed_options
        self._failed = False

    def wait_time(self) -> float:
        return PAUSE_S if self._failed else 0

    @task
    def chat(self) -> None:
        ChatUser.model = ChatUser.model or self.options.model or self._first_model()
        if ChatUser.model:
            self._chat(self._body())

    def read(self, source: HTTPSocketResponse, asked: float) -> Answer:
        """The answer, to a request that was sent at ``asked``. Raises BadAnswerError."""
        raise NotImplementedError

    def _chat(self, body: Body) -> None:
        twice = random.random() < self.options.repeat_share
        if twice:
            body["seed"] = random.randrange(2**31)
        answer = self._ask(body)
        if twice and answer and (again := self._ask(body)):
            error = None if answer.text == again.text else BadAnswerError("another text")
            self._report("check", "same seed, same text", None, error)

    def _ask(self, body: Body) -> Answer | None:
        def read(source: HTTPSocketResponse, asked: float) -> Answer:
            return self._measured(self.read(source, asked))

        return self._request("POST", CHAT, self.row, read, body)

    def _request(
        self,
        method: str,
        path: str,
        row: str,
        read: Callable[[HTTPSocketResponse, float], T],
        body: Body | None = None,
    ) -> T | None:
        """What ``read`` makes of the body, unless that is a failure; both are reported."""
        asked = perf_counter()
        with self.client.request(
            method,
            path,
            name=row,
            json=body,
            headers=self._headers(),
            stream=True,
            catch_response=True,
        ) as response:
            result = None
            try:
                result = read(_checked(response), asked)
            except BadAnswerError as error:
                response.failure(error)
            except FAILURE_EXCEPTIONS as error:
                response.failure(BadAnswerError(f"the connection failed: {error!r}"))
            finally:
                response.request_meta["response_time"] = 1000 * (perf_counter() - asked)
                if response.stream is not None:
                    response.stream.release()
        self._failed = result is None
        return result

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}  # compression could hold text back
        if self.options.api_key:
            headers["Authorization"] = f"Bearer {self.options.api_key}"
        return headers

    def _first_model(self) -> str:
        """Empty if that fails; the user then tries again."""
        found = self._request("GET", MODELS, MODELS, lambda source, _: first_model(source.read()))
        return found or ""

    def _body(self) -> Body:
        return {
            "model": self.model,
            "messages": random.choice(self.prompts),
            "max_tokens": self.options.max_tokens,
            "temperature": self.options.temperature,
            **self.fields,
        }

    def _measured(self, answer: Answer) -> Answer:
        self._metric(OUTPUT, answer.tokens)
        if times := answer.times:
            self._metric(TTFT, 1000 * times.first)
            if per_token := times.per_token(answer.tokens):
                self._metric(TPOT, 1000 * per_token)
                self._metric(RATE, 1 / per_token)
        if answer.speculation.proposed:
            self._metric(PROPOSED, answer.speculation.proposed)
            self._metric(ACCEPTED, answer.speculation.accepted)
        return answer

    def _metric(self, name: str, value: float) -> None:
        self._report(METRIC, name, value)

    def _report(
        self, kind: str, name: str, value: float | None, error: BadAnswerError | None = None
    ) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=value,
            response_length=0,
            exception=error,
            context=self.context(),
        )


class StreamingUser(ChatUser):
    """Reads answers as they come."""

    row = f"{CHAT} [stream]"
    fields: ClassVar[Body] = {"stream": True, "stream_options": {"include_usage": True}}

    def read(self, source: HTTPSocketResponse, asked: float) -> Answer:
        stream = Stream(self.options.max_tokens, asked)
        for line in _lines(source):
            stream.take(line, perf_counter())
        return stream.end()


class PlainUser(ChatUser):
    """Takes answers as a whole."""

    row = CHAT
    fields: ClassVar[Body] = {}

    def read(self, source: HTTPSocketResponse, asked: float) -> Answer:
        return whole(source.read(), self.options.max_tokens)


def _checked(response: ResponseContextManager) -> HTTPSocketResponse:
    """What to read the body from. Raises what makes the request a failure."""
    if response.status_code == 0:  # there is no response, but an error to raise
        response.raise_for_status()
    if response.status_code != HTTPStatus.OK:
        raise refusal(response.status_code, response.content)
    return response.stream


def _lines(source: HTTPSocketResponse) -> Iterator[bytes]:
    """Each line as soon as it is there. Locust's ``iter_lines`` waits for a kilobyte."""
    while line := source.readline(b"\n"):
        yield line
    if rest := source.read():
        yield rest

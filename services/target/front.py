"""The target's front: text in and out, admission, and the request's way to the step loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from services.target import admission
from services.target.assembly import Assembly
from services.target.grammars import Grammars
from services.target.requests import Answer, Requests
from services.target.tooling import Tooling
from starsd.engine.interface import Tokenizer
from starsd.errors import INTERNAL_ERROR, ErrorBody, StarsdError, TransportError, UnavailableError
from starsd.metrics import RequestMetrics, exposition, outcome_of
from starsd.process.front import ModelFront
from starsd.process.handle import FRESH_S
from starsd.process.heartbeat import PodRegistry
from starsd.process.spawn import LoopProcess
from starsd.protocol.events import Begin, Generate
from starsd.protocol.frames import Hubs, Started, Submit, ToFront
from starsd.protocol.pods import HubPod, Pod, PodState, TargetPod
from starsd.protocol.sampling import choice_seed
from starsd.protocol.tokenizing import Detokenize, Text, Tokenize, Tokens
from starsd.settings.target import TargetSettings

WILDCARDS = ("0.0.0.0", "::", "")
"""Addresses to listen on that are nowhere to connect to."""


@dataclass(frozen=True)
class _Engine:
    """What exists once the loop has started."""

    started: Started
    tokenizer: Tokenizer
    tooling: Tooling
    grammars: Grammars


class TargetFront(ModelFront):
    """One per process. ``port`` is set once it is known where the process listens."""

    def __init__(
        self,
        settings: TargetSettings,
        process: LoopProcess,
        registry: PodRegistry | None,
        load_tokenizer: Callable[[TargetSettings], Tokenizer],
    ) -> None:
        """``settings`` have their identity (``starsd.process.front.with_identity``)."""
        super().__init__(settings, process, registry)
        self._settings = settings
        self._load_tokenizer = load_tokenizer
        self.port = settings.port
        self._engine: _Engine | None = None
        # One thread: Hugging Face tokenizers keep state between calls.
        self._tokenizing = ThreadPoolExecutor(1, "tokenizer")
        self._registry = CollectorRegistry()
        self._metrics = RequestMetrics(self._registry)
        self.requests = Requests(
            self.loop.send,
            self._metrics,
            max_waiting=settings.max_waiting,
            timeout_s=settings.request_timeout_s,
        )

    @property
    def model(self) -> str:
        """The name in the API."""
        return self._settings.served_model_name or self._settings.model.rstrip("/").split("/")[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """All that the model goes by."""
        return (self.model, *self._settings.served_model_aliases)

    @property
    def url(self) -> str:
        """Where the gateway reaches this target."""
        if self._settings.advertise_url:
            return self._settings.advertise_url
        host = self._settings.host
        if host in WILDCARDS:
            host = socket.gethostname()
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def request_timeout_s(self) -> float:
        return self._settings.request_timeout_s

    async def generate(self, body: bytes) -> Answer:
        """Admit a request and hand it to the loop.

        Raises:
            StarsdError: before anything was promised; the loop knows nothing of the request, and
                its place is free again.
        """
        try:
            engine = self._serving()
            request = admission.decode(body, Generate)
            admission.check(request, self.names, engine.tokenizer.vocab_size)
            admission.check_size(request, engine.started.max_length)
            answer = self.requests.admit(request.n)
        except StarsdError as error:
            self._metrics.ended(outcome_of(error.body()))
            raise
        try:
            await self._submit(engine, request, answer)
        except BaseException as error:
            fault = error.body() if isinstance(error, StarsdError) else INTERNAL_ERROR
            self.requests.refuse(answer, outcome_of(fault))
            raise
        return answer

    async def tokenize(self, body: bytes) -> Tokens:
        """Raises StarsdError."""
        engine = self._serving()
        tokenizer, length = engine.tokenizer, engine.started.max_length
        asked = admission.decode(body, Tokenize)
        admission.check_model(asked.model, self.names)
        admission.check_prompt(asked, tokenizer.vocab_size)
        admission.check_size(asked, length)
        found: Tokens = await self._in_thread(_tokenized, tokenizer, asked, length)
        return found

    async def detokenize(self, body: bytes) -> Text:
        """Raises StarsdError."""
        tokenizer = self._serving().tokenizer
        asked = admission.decode(body, Detokenize)
        admission.check_model(asked.model, self.names)
        admission.check_ids(asked.ids, "tokens", tokenizer.vocab_size)
        return Text(text=await self._in_thread(tokenizer.decode, asked.ids))

    def info(self) -> TargetPod:
        """This pod now. Raises UnavailableError while it could not serve."""
        return self.pod(self._serving().started)

    def exposition(self) -> bytes:
        """Metrics of front and loop as Prometheus text."""
        return exposition(self._registry) + self.loop.metrics

    async def on_started(self, started: Started) -> None:
        tokenizer = await self._in_thread(self._load_tokenizer, self._settings)
        tooling = Tooling(tokenizer, self._settings.tool_parser)
        self._engine = _Engine(started, tokenizer, tooling, Grammars(tokenizer, tooling))
        self.requests.capacity = started.capacity

    def on_message(self, message: ToFront) -> None:
        self.requests.handle(message)

    def on_death(self, error: ErrorBody) -> None:
        self.requests.fail_all(error)

    def on_pods(self, pods: Sequence[Pod]) -> None:
        with contextlib.suppress(TransportError):  # a dead loop is noticed by its handle
            self.loop.send(Hubs(hubs=[pod for pod in pods if isinstance(pod, HubPod)]))

    def pod(self, started: Started) -> TargetPod:
        return TargetPod(
            id=self._settings.id,
            boot=self._settings.boot,
            state=self.state,
            url=self.url,
            model=self.model,
            aliases=self._settings.served_model_aliases,
            max_length=started.max_length,
            running=self.requests.running,
            waiting=self.requests.waiting,
            capacity=started.capacity,
        )

    async def drain(self, deadline_s: float) -> None:
        """Take nothing new, and see every open request end: by itself, or with an error."""
        self.state = PodState.DRAINING
        await self.requests.drained(deadline_s)

    async def stop(self) -> None:
        await super().stop()
        self._tokenizing.shutdown(wait=False, cancel_futures=True)
        if self._engine is not None:
            self._engine.grammars.close()

    async def _submit(self, engine: _Engine, request: Generate, answer: Answer) -> None:
        tokenizer, started, tooling = engine.tokenizer, engine.started, engine.tooling
        grammar = await engine.grammars.of(request)
        prompt = await self._in_thread(tooling.prompt_ids, request)
        common = Submit(
            id="",
            prompt=prompt,
            sampling=request.sampling,
            max_tokens=admission.room(request, len(prompt), started.max_length),
            eos=(() if request.ignore_eos else tokenizer.eos_ids) + request.stop_token_ids,
            logprobs=request.logprobs,
            draft_depth=request.draft_depth,
            salt=request.salt,
            grammar=grammar,
        )
        submits = [_choice(common, index, one.id) for index, one in enumerate(answer.choices)]
        assemblies = [
            Assembly(tokenizer, request.stop, common.eos, index, tooling.calls(request, one.id))
            for index, one in enumerate(answer.choices)
        ]
        begin = Begin(
            model=self.model,
            prompt_ids=prompt,
            seed=request.sampling.seed,
            fingerprint=started.fingerprint,
        )
        self.requests.submit(answer, submits, assemblies, begin)

    def _serving(self) -> _Engine:
        if self._engine is None or self.state is not PodState.READY or not self.loop.fresh:
            ready = self.state is PodState.READY
            reason = f"no word of its loop for {FRESH_S:g} s" if ready else str(self.state)
            raise UnavailableError(f"target {self._settings.id} cannot serve now ({reason})")
        return self._engine

    async def _in_thread(self, function: Callable[..., Any], *arguments: object) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tokenizing, function, *arguments)


def _choice(common: Submit, index: int, key: str) -> Submit:
    """One of several choices, under its own id and seed."""
    seed = choice_seed(common.sampling.seed, index)
    sampling = replace(common.sampling, seed=seed, prompt_len=len(common.prompt))
    return replace(common, id=key, sampling=sampling)


def _tokenized(tokenizer: Tokenizer, asked: Tokenize, max_length: int) -> Tokens:
    if asked.prompt is None:
        ids = tokenizer.encode_chat(asked.messages, answer=asked.answer)
    else:
        ids = tokenizer.encode(asked.prompt, special=asked.special)
    spelling = [*map(tokenizer.token_bytes, ids)] if asked.spelled else None
    return Tokens(ids=ids, max_length=max_length, spelling=spelling)

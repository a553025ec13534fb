"""A step loop without a model, in a process of its own: it repeats the prompt, a token a turn.

What it has been told is in its metrics. Prompts that are orders: ``die``, ``fail``, and
``flood`` (whole steps of 64 tokens, as fast as the socket takes them).
"""

from __future__ import annotations

import os
import select
import signal
import socket
from dataclasses import dataclass

from starsd.errors import EngineError
from starsd.process.channel import LoopChannel
from starsd.protocol.frames import (
    Admitted,
    Cancel,
    Emitted,
    Failed,
    Finished,
    FinishReason,
    Hubs,
    Origin,
    RequestStats,
    Snapshot,
    Started,
    Stop,
    Submit,
    ToLoop,
)
from starsd.settings.draft import DraftSettings
from starsd.settings.target import TargetSettings
from tests.unit.process.fakeloop import OFFER
from tests.unit.target.bytetext import ByteTokenizer

TURN_S = 0.002
FLOOD = 64


@dataclass
class _Running:
    submit: Submit
    emitted: int = 0


class FakeEngine:
    def __init__(self, settings: TargetSettings | DraftSettings, sock: socket.socket) -> None:
        self._channel: LoopChannel[ToLoop] = LoopChannel(sock, ToLoop)
        self._running: dict[str, _Running] = {}
        self._told = dict.fromkeys(("Submit", "Cancel", "Hubs"), 0)
        self._hubs = 0
        self._stopping = False
        started = Started(
            max_length=settings.max_length,
            capacity=settings.max_sequences,
            fingerprint="fake",
            facts_line=f"fake loop {os.getpid()}",
            offer=OFFER,
        )
        self._channel.send(started)

    def run(self) -> None:
        while not self._stopping and not self._channel.closed:
            select.select([self._channel.fileno()], (), (), TURN_S)
            for message in self._channel.receive():
                self._obey(message)
            for running in list(self._running.values()):
                self._advance(running)
            self._report()

    def _obey(self, message: ToLoop) -> None:
        name = type(message).__name__
        self._told[name] = self._told.get(name, 0) + 1
        match message:
            case Submit():
                self._running[message.id] = _Running(message)
                self._channel.send(Admitted(id=message.id))
            case Cancel() if message.id in self._running:
                self._finish(message.id, FinishReason.CANCELLED)
            case Hubs(hubs=hubs):
                self._hubs = len(hubs)
            case Stop():
                self._stopping = True

    def _advance(self, running: _Running) -> None:
        submit, order = running.submit, bytes(running.submit.prompt)
        if order == b"fail":
            del self._running[submit.id]
            self._channel.send(Failed(id=submit.id, error=EngineError("told to fail").body()))
            return
        if order == b"die" and running.emitted == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(50 if order == b"flood" else 1):
            if submit.id in self._running:
                self._emit(running, FLOOD if order == b"flood" else 1)

    def _emit(self, running: _Running, count: int) -> None:
        submit = running.submit
        places = range(running.emitted, min(running.emitted + count, submit.max_tokens))
        tokens = [submit.prompt[place % len(submit.prompt)] for place in places]
        running.emitted += len(tokens)
        origins = [Origin.PLAIN] * len(tokens)
        self._channel.send(Emitted(id=submit.id, tokens=tokens, origins=origins))
        if running.emitted >= submit.max_tokens:
            self._finish(submit.id, FinishReason.LENGTH)

    def _finish(self, key: str, reason: FinishReason) -> None:
        del self._running[key]
        self._channel.send(Finished(id=key, reason=reason, stats=RequestStats()))

    def _report(self) -> None:
        lines = [f"fake_told_{name} {count}" for name, count in self._told.items()]
        lines += [f"fake_hubs {self._hubs}", f"fake_pid {os.getpid()}"]
        snapshot = Snapshot(
            running=len(self._running),
            waiting=0,
            slots_used=len(self._running),
            redis=True,
            metrics="\n".join(lines).encode() + b"\n",
        )
        self._channel.send(snapshot)


def fake_loop(settings: TargetSettings | DraftSettings, sock: socket.socket) -> None:
    FakeEngine(settings, sock).run()


def broken_loop(_: TargetSettings | DraftSettings, sock: socket.socket) -> None:
    channel: LoopChannel[ToLoop] = LoopChannel(sock, ToLoop)
    channel.send(Failed(id=None, error=EngineError("no such model").body()))


def tokenizer(_: TargetSettings) -> ByteTokenizer:
    return ByteTokenizer()

"""Round trip of the star's arms without any model: ``python bench/bus_roundtrip.py``.

One target and one hub in processes of their own, on our embedded server, over a unix socket and
over TCP. Prints microseconds from the target's write to the decoded proposal, and rounds per
second with 32 sequences of which each has one round outstanding.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time

from starsd.bus.hub import RedisHubBus
from starsd.bus.interface import Job
from starsd.bus.server import EmbeddedRedis
from starsd.bus.target import RedisTargetBus
from starsd.bus.waiting import wait_readable
from starsd.process.ports import free_ports
from starsd.protocol.keys import Keys
from starsd.protocol.messages import Close, Have, Proposal, Propose, Status
from starsd.protocol.sampling import SamplingParams
from starsd.protocol.tokens import EMPTY_DIGEST, pack_tokens

KEYS = Keys("bench")
OFFER = "bench"
SEQUENCES = 32


def serve(url: str) -> None:
    """A hub that answers every job at once, until a close arrives."""
    bus = RedisHubBus(url, KEYS, "hub", "1", OFFER)
    closed = False
    while not closed:
        for job in bus.receive(0.5, want_first=64):
            if isinstance(job, Job) and isinstance(job.message, Propose):
                bus.reply(job.message.reply_key, answer(job.message))
                bus.done(job)
            closed |= isinstance(job, Job) and isinstance(job.message, Close)
        bus.flush()
    bus.close()


def answer(job: Propose) -> Proposal:
    return Proposal(
        session=job.session,
        seq=job.seq,
        epoch=0,
        round=job.round,
        attempt=0,
        status=Status.OK,
        tokens=pack_tokens([1, 2, 3, 4]),
        parents=None,
        have=Have(0, EMPTY_DIGEST),
        max_depth=8,
        retry_after_ms=0,
        hub="hub",
        hub_boot="1",
        queue_us=0,
        service_us=0,
    )


def job(bus: RedisTargetBus, seq: int, number: int, tokens: bytes) -> Propose:
    return Propose(
        session="t:1",
        seq=str(seq),
        epoch=0,
        round=number,
        attempt=0,
        reply_key=bus.reply_key,
        base=0,
        digest=EMPTY_DIGEST,
        tokens=tokens,
        depth=4,
        max_nodes=0,
        ttl_ms=1000,
        sampling=SamplingParams(seed=1),
    )


def proposals(bus: RedisTargetBus) -> list[Proposal]:
    """Those that have arrived; waits up to a second for the first."""
    wait_readable(bus.filenos(), 1.0)
    return [event for event in bus.receive() if isinstance(event, Proposal)]


def round_trips(bus: RedisTargetBus, rounds: int, length: int) -> list[float]:
    """Microseconds of each round of one sequence sending ``length`` tokens."""
    spans, tokens = [], pack_tokens(range(length))
    for number in range(rounds):
        began = time.perf_counter()
        bus.send_hub("hub", job(bus, 0, number, tokens))
        bus.flush()
        while not proposals(bus):
            pass
        spans.append((time.perf_counter() - began) * 1e6)
    return spans


def rate(bus: RedisTargetBus, rounds: int) -> tuple[float, float]:
    """Rounds per second of SEQUENCES sequences, and our own CPU microseconds per round."""
    tokens, finished = pack_tokens(range(16)), 0
    began, cpu = time.perf_counter(), time.process_time()
    for seq in range(SEQUENCES):
        bus.send_hub("hub", job(bus, seq, 0, tokens))
    bus.flush()
    while finished < rounds:
        for proposal in proposals(bus):
            finished += 1
            bus.send_hub("hub", job(bus, int(proposal.seq), proposal.round + 1, tokens))
        bus.flush()
    return (
        finished / (time.perf_counter() - began),
        (time.process_time() - cpu) / finished * 1e6,
    )


def measure(name: str, server: EmbeddedRedis, rounds: int) -> None:
    hub = multiprocessing.get_context("spawn").Process(target=serve, args=(server.url,))
    hub.start()
    bus = RedisTargetBus(server.url, KEYS, "t", "1")
    try:
        while not proposals(bus):  # until the hub is there
            bus.send_hub("hub", job(bus, 0, 0, b""))
            bus.flush()
        for length in (16, 1024):
            round_trips(bus, rounds // 10, length)
            cuts = statistics.quantiles(round_trips(bus, rounds, length), n=100)
            print(f"{name:5} {length:5} tokens: p50 {cuts[49]:.0f} us, p99 {cuts[98]:.0f} us")
        per_s, cpu_us = rate(bus, rounds * 4)
        print(f"{name:5} {SEQUENCES} sequences: {per_s:,.0f} rounds/s, {cpu_us:.0f} us CPU each")
    finally:
        bus.send_hub("hub", Close(session="t:1"))
        bus.close()
        hub.join(5)
        hub.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000, help="measured rounds per line")
    rounds = parser.parse_args().rounds
    for name, port in (("unix", 0), ("tcp", free_ports(1, "127.0.0.1")[0])):
        with EmbeddedRedis(port=port) as server:
            measure(name, server, rounds)


if __name__ == "__main__":
    main()

"""The comparison from options to result."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starsd.bench import record
from starsd.bench.machine import describe, load_average
from starsd.bench.peers import plot, result
from starsd.bench.peers.field import Field, Say, client_cores
from starsd.bench.peers.options import Options, check
from starsd.bench.peers.result import PLAIN, STAR, PeersResult
from starsd.bench.prompts import load_prompts, short, spread
from starsd.errors import UnavailableError


def run(options: Options, say: Say) -> PeersResult:
    """Also writes ``out`` and ``plot``. Peers that fail are left out, and it is said why.

    Raises:
        ConfigError: an option cannot be.
        UnavailableError: nobody was left to be measured.
    """
    check(options)
    result = record.kept(options.out, "peers", lambda: _measured(options, say))
    if options.plot:
        plot.draw(result, options.plot)
    return result


def _measured(options: Options, say: Say) -> tuple[PeersResult, dict[str, Any]]:
    prompts = spread(short(load_prompts()), options.prompts)
    before = load_average()
    with ended_by_sigterm(), Field(options, prompts, say) as field:
        field.start()
        field.measure()
    summary = _summary(options, field, before)
    if not summary.tokens_per_s:
        raise UnavailableError("no server could be measured")
    runs = [{**asdict(run), "tokens_per_s": run.tokens_per_s} for run in field.runs]
    return summary, {"options": _plain(options), "runs": runs}


def _plain(options: Options) -> dict[str, object]:
    return {k: str(v) if isinstance(v, Path) else v for k, v in asdict(options).items()}


def _summary(options: Options, field: Field, load_before: float) -> PeersResult:
    runs = [run for run in field.runs if run.server not in field.left_out]
    found = result.samples(runs)
    middle = result.medians(found)
    pairs = result.pairs(field.servers)
    return PeersResult(
        tokens_per_s=middle,
        spread=result.spread(found),
        precisions={server.name: server.precision for server in field.servers},
        pairs=pairs,
        plain_over=result.over(PLAIN, pairs, middle),
        star_over=result.over(STAR, pairs, middle),
        prompt_tokens=result.prompt_tokens(runs),
        left_out=field.left_out,
        versions=field.versions,
        cores=options.cores,
        client_cores=client_cores(options.cores),
        load_before=load_before,
        load_after=load_average(),
        machine=describe(options.cores),
    )


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds the stack: what sleeps would outlive us."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

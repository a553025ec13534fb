"""From runs to medians, ratios and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich import box
from rich.table import Table

from starsd.bench.machine import Machine
from starsd.bench.peers.drive import Run
from starsd.bench.peers.server import Server

PLAIN, STAR = "plain", "star"

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""Output tokens/s of each repeat, by server and by requests at once (JSON keys are strings)."""
Medians = dict[str, dict[str, float]]
Ratios = dict[str, dict[str, float]]


@dataclass(frozen=True)
class PeersResult:
    """``plain_over[peer][requests]`` is our plain decoding over the peer's in medians, ours in
    the precision that ``pairs`` names; ``star_over`` likewise. ``prompt_tokens``, of all prompts
    together, should be the same everywhere. ``left_out`` says why of each that is missing."""

    tokens_per_s: Medians
    spread: dict[str, dict[str, tuple[float, float]]]
    precisions: dict[str, str]
    pairs: dict[str, str]
    plain_over: Ratios
    star_over: Ratios
    prompt_tokens: dict[str, int]
    left_out: dict[str, str]
    versions: dict[str, dict[str, str]]
    cores: tuple[int, ...]
    client_cores: tuple[int, ...]
    load_before: float
    load_after: float
    machine: Machine


def samples(runs: Sequence[Run]) -> Samples:
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        of_server = found.setdefault(run.server, {})
        of_server.setdefault(str(run.concurrency), []).append(run.tokens_per_s)
    return found


def medians(found: Samples) -> Medians:
    return {
        name: {requests: median(values) for requests, values in by_requests.items()}
        for name, by_requests in found.items()
    }


def spread(found: Samples) -> dict[str, dict[str, tuple[float, float]]]:
    """Least and most."""
    return {
        name: {requests: (min(values), max(values)) for requests, values in by_requests.items()}
        for name, by_requests in found.items()
    }


def over(kind: str, pairs: Mapping[str, str], found: Medians) -> Ratios:
    """``kind`` (plain or star) of ours over each peer, where our side of the pair was measured."""
    return {
        peer: {requests: ours[requests] / theirs for requests, theirs in found[peer].items()}
        for peer, precision in pairs.items()
        if peer in found and (ours := found.get(f"{kind}-{precision}"))
    }


def prompt_tokens(runs: Sequence[Run]) -> dict[str, int]:
    return {run.server: sum(reply.prompt_tokens for reply in run.replies) for run in runs}


def pairs(servers: Sequence[Server]) -> dict[str, str]:
    """Each peer's precision of ours."""
    return {server.name: server.pair for server in servers if server.pair}


def table(result: PeersResult) -> Table:
    """In Markdown's form, as docs/benchmarks.md has it: medians, least and most in brackets."""
    columns = requests_of(result)
    kinds = _kinds(result)
    shown = Table(box=box.MARKDOWN)
    shown.add_column("server", no_wrap=True)
    shown.add_column("precision", no_wrap=True)
    for requests in columns:
        shown.add_column(f"tokens/s, {requests} at once", justify="right", no_wrap=True)
    for kind in kinds:
        for requests in columns:
            shown.add_column(f"{kind} over it, {requests}", justify="right", no_wrap=True)
    for name in result.tokens_per_s:
        rates = (_rate(result, name, requests) for requests in columns)
        ratios = (_ratio(kinds[kind], name, requests) for kind in kinds for requests in columns)
        shown.add_row(name, result.precisions[name], *rates, *ratios)
    return shown


def remarks(result: PeersResult) -> Iterator[str]:
    """What a reader of the table must know besides."""
    cores, clients = (", ".join(map(str, cores)) for cores in (result.cores, result.client_cores))
    shared = not set(result.cores).isdisjoint(result.client_cores)
    client = "shared with the client" if shared else f"the client on {clients}"
    yield f"every server on cores {cores}, {client}; {result.machine.cpu}"
    yield f"load average {result.load_before} before, {result.load_after} after"
    for group, versions in result.versions.items():
        yield f"{group}: " + ", ".join(f"{name} {number}" for name, number in versions.items())
    counts = set(result.prompt_tokens.values())
    if len(counts) > 1:
        yield f"the prompts differ in tokens: {result.prompt_tokens}"
    for name, reason in result.left_out.items():
        yield f"left out: {name}: {reason}"


def requests_of(result: PeersResult) -> list[str]:
    """The numbers of requests at once that were measured."""
    return list(
        dict.fromkeys(r for by_requests in result.tokens_per_s.values() for r in by_requests)
    )


def _kinds(result: PeersResult) -> dict[str, Ratios]:
    kinds = {PLAIN: result.plain_over, STAR: result.star_over}
    return {kind: ratios for kind, ratios in kinds.items() if ratios}


def _rate(result: PeersResult, name: str, requests: str) -> str:
    least, most = result.spread[name][requests]
    return f"{result.tokens_per_s[name][requests]:.1f} ({least:.1f} to {most:.1f})"


def _ratio(ratios: Ratios, name: str, requests: str) -> str:
    ratio = ratios.get(name, {}).get(requests)
    return "" if ratio is None else f"{ratio:.2f}"

"""The paper's claims, each with whether it shows here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from starsd.bench.scale.result import Result, Row
from starsd.bench.scale.setup import DEPTH
from starsd.plan.star import STARS, Mode


def claims(result: Result) -> Iterator[str]:
    """A line each."""
    at = {(row.mode, row.targets): row for row in result.rows if _of_curve(row)}
    fifo = {targets: row for (mode, targets), row in at.items() if mode == Mode.FIFO}
    first, last = min(fifo, default=0), max(fifo, default=0)
    if fifo and result.full_predicted:
        yield from _fifo_claims(result, fifo, first, last)
    if result.gaps:
        steady, worst = result.gaps[0], max(result.gaps, key=lambda one: one.mean_ms)
        shown = worst.mean_ms > 1.1 * steady.mean_ms
        yield (
            f"steady drafting takes less time a token than bursts, and varies less: "
            f"{_verdict(shown)} ({steady.mean_ms:.2f} ms, p99 {steady.p99_ms:.2f}, against "
            f"{worst.mean_ms:.2f}, p99 {worst.p99_ms:.2f}, after gaps of {worst.gap_ms:g} ms)"
        )


def _fifo_claims(result: Result, fifo: Mapping[int, Row], first: int, last: int) -> Iterator[str]:
    full = result.full_predicted or 1
    below = [count for count in fifo if first < count < full]
    if below:
        count = max(below)
        share = fifo[count].expected / fifo[first].expected / (count / first)
        yield (
            f"throughput grows about linearly below N_full: {_verdict(share > 0.8)} "
            f"({share:.0%} of linear at {count} targets)"
        )
    above = [count for count in fifo if count >= full]
    if above:
        growth = fifo[last].expected / fifo[min(above)].expected
        yield (
            f"a one-at-a-time hub saturates at N_full: {_verdict(growth < 1.15)} (x{growth:.2f} "
            f"from {min(above)} to {last} targets)"
        )
    plain = {other.targets: other.plain for other in result.others}
    if plain.get(full) and full in fifo:
        gain = fifo[full].expected / plain[full]
        yield (
            f"at N_full the star still beats its targets alone: {_verdict(gain > 1)} "
            f"(x{gain:.2f} of {full} plain targets)"
        )


def _of_curve(row: Row) -> bool:
    """With a hub, of the usual depth, all targets alike."""
    return row.mode in STARS and row.depth == DEPTH and not row.note


def _verdict(shown: bool) -> str:
    return "shown" if shown else "NOT shown here"

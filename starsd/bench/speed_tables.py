"""A result of ``starsd bench speed`` as tables for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from starsd.bench.speed_result import VARIANTS, Result

NONE = "-"
WHERE = {
    "plain": "target",
    "colocated": "target and draft on one core",
    "star": "target and draft on a core each",
}


def tables(result: Result) -> Iterator[Table]:
    yield _variants(result)
    if result.round_us:
        yield _round(result)
        yield _positions(result)
    yield _categories(result)


def lines(result: Result) -> Iterator[str]:
    """Identity and circumstances."""
    machine = result.machine
    ratios = {
        "star_over_plain": result.star_over_plain,
        "star_over_colocated": result.star_over_colocated,
    }
    for name, value in ratios.items():
        low, high = result.spread[name]
        yield f"{name} {value:.3f}, half of the answers within {low:.3f} to {high:.3f}"
    if len(result.plain_by_precision) > 1:
        speeds = ", ".join(f"{name} {one:.1f}" for name, one in result.plain_by_precision.items())
        yield f"star_over_best_plain {result.star_over_best_plain:.3f} ({speeds} tokens/s)"
    if result.looping:
        without = number(result.tokens_per_round_without_loops)
        yield f"{result.looping} answers of the star loop; {without} tokens a round without them"
    answers = f"{result.identical} of {result.total} answers identical to plain decoding"
    yield answers + ("" if result.passed else ": FAILED, batch-invariant mode excuses none")
    yield (
        f"{machine['cpu']}, cores {machine['cores_used']}; load average "
        f"{machine['load_before']} before, {machine['load_after']} after"
    )
    if machine["siblings"]:
        yield "The cores are threads of one physical core: the star is measured too low."


def _variants(result: Result) -> Table:
    table = Table("variant", "runs", "tokens/s", "TTFT ms", title="Medians", title_justify="left")
    speeds = {
        "plain": result.plain_tokens_per_s,
        "colocated": result.colocated_tokens_per_s,
        "star": result.star_tokens_per_s,
    }
    for name in VARIANTS:
        table.add_row(name, WHERE[name], f"{speeds[name]:.1f}", f"{result.ttft_ms[name]:.0f}")
    return table


def _round(result: Result) -> Table:
    title = f"One of the star's {result.rounds} rounds, us (mean)"
    table = Table(*result.round_us, "tokens", title=title, title_justify="left")
    times = (f"{value:.0f}" for value in result.round_us.values())
    table.add_row(*times, number(result.tokens_per_round))
    return table


def _positions(result: Result) -> Table:
    shares = result.acceptance_by_position
    headings = (str(position + 1) for position in range(len(shares)))
    title = "Acceptance by position in the proposal"
    table = Table("all", *headings, title=title, title_justify="left")
    table.add_row(*map(number, (result.acceptance, *shares)))
    return table


def _categories(result: Result) -> Table:
    headings = ("category", "prompts", "acceptance", "tokens/round", "star/plain", "star/colocated")
    table = Table(*headings, title="The star by category", title_justify="left")
    for row in result.categories:
        ratios = (row.star_over_plain, row.star_over_colocated)
        cells = map(number, (row.acceptance, row.tokens_per_round, *ratios))
        table.add_row(row.category, str(row.prompts), *cells)
    return table


def number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"

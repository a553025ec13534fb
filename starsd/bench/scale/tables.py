"""A result of ``starsd bench scale`` as tables and lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from starsd.bench.scale.claims import claims
from starsd.bench.scale.result import Bar, Result, Row
from starsd.bench.scale.setup import DEPTH
from starsd.plan.star import STARS, Mode


def tables(result: Result) -> Iterator[Table]:
    yield bars(result)
    if result.rows:
        yield throughput(result)
        yield hub(result)
    if depths := [row for row in result.rows if row.mode in (Mode.PLAIN, Mode.BATCHED)]:
        yield by_depth(depths)
    if result.shares:
        yield shares(result)
    if result.real:
        yield real(result)
    if result.gaps:
        yield gaps(result)
    if result.costs_us or result.memory_mb:
        yield parts(result)


def lines(result: Result) -> Iterator[str]:
    """Claims and circumstances."""
    yield from claims(result)
    yield (
        f"N_full of a one-at-a-time hub: {_or_none(result.full_predicted)} predicted, "
        f"{_or_none(result.full_measured)} measured (the least number measured at which it is full)"
    )
    if result.mismatched:
        yield f"{result.mismatched} PIECES OF TEXT WERE NOT THE RECORDED ONES"
    elif result.rows:
        yield "every replayed text was the recorded one"
    machine = result.machine
    yield (
        f"{machine['cpu']}, {machine['cores_allowed']} cores; load average "
        f"{machine['load_before']} before, {machine['load_after']} after"
    )


def bars(result: Result) -> Table:
    table = _table("Bars", "bar", "tier", "value", "want", "met", "S/V")
    for bar in result.bars:
        sign = ">=" if bar.at_least else "<="
        table.add_row(
            bar.name,
            bar.tier,
            _number(bar.value),
            f"{sign} {bar.limit:g}",
            _met(bar),
            _number(bar.s_over_v),
        )
    return table


def throughput(result: Result) -> Table:
    """System throughput of the emulated tier."""
    title = f"Emulated tier, tokens/s of all targets together (depth {DEPTH}), and of each"
    others = {one.targets: one for one in result.others}
    modes = [mode for mode in STARS if any(row.mode == mode for row in result.rows)]
    names = ("targets", "plain", "N + 1 plain", "co-located (computed)", *modes)
    table = _table(title, *names)
    for targets in counts(result):
        other = others.get(targets)
        given = (other.plain, other.one_more_plain, other.colocated) if other else (None,) * 3
        stars = [curve_row(result, mode, targets) for mode in modes]
        cells = [*given, *(row.expected if row else None for row in stars)]
        table.add_row(str(targets), *(_shared(cell, targets) for cell in cells))
    return table


def hub(result: Result) -> Table:
    """Idle shares, waits and predictions."""
    table = _table(
        f"Emulated tier, the hub (depth {DEPTH})",
        "mode",
        "targets",
        "idle",
        "unforced, at most",
        "round ms",
        "wait ms",
        "simulated / measured",
        "formula / measured",
    )
    for mode in STARS:
        for targets in counts(result):
            if (row := curve_row(result, mode, targets)) is not None:
                table.add_row(
                    row.mode,
                    str(targets),
                    f"{1 - row.busy:.1%}",
                    f"{row.unforced:.1%}",
                    f"{row.round_ms:.1f}",
                    f"{row.wait_ms:.1f}",
                    _number(row.simulated),
                    _number(row.formula),
                )
    return table


def by_depth(rows: Sequence[Row]) -> Table:
    """Batched stars of every depth, and plain decoding as depth 0."""
    alike = [row for row in rows if row.note in ("", "auto")]
    depths = sorted({(row.note, row.depth) for row in alike})
    names = [note or f"depth {depth}" if depth else "plain" for note, depth in depths]
    table = _table("Emulated tier, tokens/s by depth, batched", "targets", *names)
    for targets in sorted({row.targets for row in alike}):
        found = {(row.note, row.depth): row.expected for row in alike if row.targets == targets}
        table.add_row(str(targets), *(_number(found.get(depth), 1) for depth in depths))
    return table


def shares(result: Result) -> Table:
    """Points at which targets differ."""
    table = _table(
        "Emulated tier, unequal targets",
        "point",
        "target",
        "sequences",
        "rounds/s",
        "tokens/s",
        "p95 of a round, ms",
    )
    for one in result.shares:
        table.add_row(
            one.point,
            str(one.target + 1),
            str(one.sequences),
            f"{one.rounds_per_s:.1f}",
            f"{one.tokens_per_s:.1f}",
            f"{one.p95_round_ms:.0f}",
        )
    return table


def real(result: Result) -> Table:
    table = _table(
        "Real tier, one request: ms of a round by part",
        "variant",
        "delay each way, ms",
        "tokens/s",
        "foreseen",
        "waits for a proposal",
        "draft",
        "queue",
        "network",
        "verify",
    )
    for one in result.real:
        parts = (one.wait_ms, one.draft_ms, one.queue_ms, one.network_ms, one.verify_ms)
        drafted = (f"{one.foreseen:.0%}", *(f"{part:.2f}" for part in parts))
        star = drafted if one.verify_ms else ("",) * len(drafted)
        table.add_row(one.variant, f"{one.delay_ms:g}", f"{one.tokens_per_s:.1f}", *star)
    return table


def gaps(result: Result) -> Table:
    table = _table("Real draft, ms of a drafted token", "gap ms", "mean", "std", "p99")
    for one in result.gaps:
        found = (one.mean_ms, one.std_ms, one.p99_ms)
        table.add_row(f"{one.gap_ms:g}", *(f"{value:.2f}" for value in found))
    return table


def parts(result: Result) -> Table:
    """What a round costs besides the models, and what roles hold in memory."""
    table = _table("Costs and memory", "what", "how much")
    for name, value in result.costs_us.items():
        table.add_row(f"round: {name}", f"{value:.0f} us")
    for name, value in result.bytes_per_round.items():
        table.add_row(f"round: bytes over Redis, {name} tier", f"{value:.0f}")
    for name, value in result.memory_mb.items():
        table.add_row(f"memory: {name}", f"{value:.0f} MB")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    return table


def counts(result: Result) -> list[int]:
    return sorted({row.targets for row in result.rows if not row.note})


def curve_row(result: Result, mode: str, targets: int) -> Row | None:
    found = (
        row
        for row in result.rows
        if (row.mode, row.targets, row.depth, row.note) == (mode, targets, DEPTH, "")
    )
    return next(found, None)


def _shared(value: float | None, targets: int) -> str:
    return "" if value is None else f"{value:.1f} ({value / targets:.1f})"


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _met(bar: Bar) -> str:
    return {None: "not measured", True: "yes", False: "NO"}[bar.met]


def _or_none(value: int | None) -> str:
    return "none" if value is None else str(value)

"""A result of ``starsd bench engine`` as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from starsd.bench.engine.contexts import Contexts
from starsd.bench.engine.flips import Flips
from starsd.bench.engine.invariance import Invariance
from starsd.bench.engine.result import Result
from starsd.bench.engine.setup import CONTEXT
from starsd.bench.engine.shapes import Shapes
from starsd.bench.engine.steps import FLAT_LIMIT, VERIFIED, Steps
from starsd.bench.engine.throughput import BAR, BAR_CORES, BAR_PRECISION, Throughput

NONE = "-"


def tables(result: Result) -> Iterator[Table]:
    if result.steps:
        yield _steps(result.steps)
    if result.throughput:
        yield _throughput(result.throughput)
    if result.sampling_us:
        yield _sampling(result.sampling_us)
    if result.flips:
        yield _flips(result.flips)
    if result.contexts:
        yield _contexts(result.contexts)
    if result.invariance:
        yield _invariance(result.invariance)


def lines(result: Result) -> Iterator[str]:
    """Bars, what the tables leave open, and circumstances."""
    yield from _flat(result.steps or [])
    if result.throughput:
        yield _throughput_bar(result.throughput)
    if result.shapes:
        yield _shapes(result.shapes)
    for one in result.contexts or ():
        if one.left_out:
            yield f"{one.precision}: the model has no room for contexts of {one.left_out}"
    if result.invariance:
        yield "Compiled code is batch-invariant as it is, at no further cost."
    yield from _circumstances(result)


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(first, title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _steps(found: Sequence[Steps]) -> Table:
    cases = list(found[0].ms)
    title = f"Step of rows of sequences at context {CONTEXT}: ms, times a row's"
    table = _table(title, "", *cases)
    for one in found:
        cells = (f"{one.ms[case]:.1f} {one.over_one[case]:.2f}" for case in cases)
        table.add_row(one.precision, *cells)
    return table


def _flat(found: Sequence[Steps]) -> Iterator[str]:
    for one in found:
        if one.flat is not None:
            ratio = one.over_one[VERIFIED]
            told = f"16 rows of one take {ratio:.2f} of 1 row, want {FLAT_LIMIT} at most"
            yield f"{_met(one.flat)}: {one.precision}: {told}"


def _throughput(found: Throughput) -> Table:
    title = f"Decoding {found.sequences} sequences at context {found.context}"
    table = _table(title, "", "tokens/s", "over transformers")
    for name, rate in found.tokens_per_s.items():
        table.add_row(name, f"{rate:.0f}", _number(found.over_hf.get(name)))
    return table


def _throughput_bar(found: Throughput) -> str:
    if found.met is None:
        return f"The bar for decoding is for {BAR_PRECISION} on {BAR_CORES} cores."
    ratio = found.over_hf[BAR_PRECISION]
    told = f"decoding is {ratio:.2f} of eager transformers, want {BAR} at least"
    return f"{_met(found.met)}: {BAR_PRECISION}: {told}"


def _sampling(found: Mapping[str, float]) -> Table:
    table = _table("Choosing a token, us a row", "", *found)
    table.add_row("", *(f"{value:.0f}" for value in found.values()))
    return table


def _flips(found: Sequence[Flips]) -> Table:
    wheres = list(found[0].rate_at)
    columns = (*(f"at {where}" for where in wheres), "KL")
    table = _table("Tokens that are not float32's own", "", "positions", "flips", "rate", *columns)
    for one in found:
        reference = one.precision == found[0].precision
        table.add_row(
            f"{one.precision}, batched" if reference else one.precision,
            str(one.positions),
            str(one.flips),
            _rate(one.rate),
            *(_rate(one.rate_at[where]) for where in wheres),
            NONE if reference else f"{one.kl:.5f}",
        )
    return table


def _shapes(found: Shapes) -> str:
    if found.rate is None:
        return f"{found.dtype} by torch: too few long answers to tell what a batch's shape changes"
    return (
        f"{found.dtype} by torch: {found.flips} of {found.positions} tokens "
        f"({_rate(found.rate)}) differ between a row alone and one of {found.rows}"
    )


def _contexts(found: Sequence[Contexts]) -> Table:
    lengths = list(dict.fromkeys(at for one in found for at in one.step_ms))
    table = _table("Contexts: cache of a sequence, and a step of a row", "", *lengths)
    for one in found:
        cells = (f"{one.cache_mb[at]:.1f} MB {one.step_ms[at]:.1f} ms" for at in one.step_ms)
        table.add_row(one.precision, *cells)
    return table


def _invariance(found: Sequence[Invariance]) -> Table:
    cases = list(found[0].over_normal)
    title = "Step in batch-invariant over normal mode, by torch"
    table = _table(title, "", *cases)
    for one in found:
        table.add_row(one.dtype, *(f"{one.over_normal[case]:.2f}" for case in cases))
    return table


def _circumstances(result: Result) -> Iterator[str]:
    machine = result.machine
    yield (
        f"{machine['cpu']}, cores {machine['cores_used']}, {result.clock} time; load average "
        f"{machine['load_before']} before, {machine['load_after']} after"
    )
    if machine["siblings"]:
        yield "Some cores are threads of one physical core."


def _met(value: bool) -> str:
    return "met" if value else "missed"


def _rate(value: float) -> str:
    return f"{value:.3%}"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"

"""A result of ``starsd bench profile`` as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.table import Table

from starsd.bench.profile_result import Profile, Result, undivided


def tables(result: Result) -> Iterator[Table]:
    """One for each service and batch, its samplings side by side."""
    ordered = sorted(result.profiles, key=lambda one: (one.service != "target", one.batch))
    for (service, batch), group in groupby(ordered, lambda one: (one.service, one.batch)):
        yield _table(service, batch, list(group))


def lines(result: Result) -> Iterator[str]:
    """Bars and circumstances."""
    missed = [bar for bar in result.bars if not bar.met]
    yield f"{len(result.bars) - len(missed)} of {len(result.bars)} bars met"
    for bar in missed:
        yield (
            f"missed: {bar.service}, batch {bar.batch}, {bar.sampling}: {bar.name} "
            f"{bar.value:.1%} of a step, want {bar.limit:.0%} at most"
        )
    if undivided(result):
        yield "torch computes: a forward is not divided, so what is outside the matrices is unknown"
    machine = result.machine
    yield (
        f"{machine['cpu']}, target and hub on cores {machine['cores_used']}; load average "
        f"{machine['load_before']} before, {machine['load_after']} after"
    )
    if machine["siblings"]:
        yield "The cores are threads of one physical core: both services are slowed down."


def _table(service: str, batch: int, profiles: list[Profile]) -> Table:
    title = f"Step of the {service}, batch {batch}: us"
    table = Table("part", title=title, title_justify="left")
    for one in profiles:
        table.add_column(one.sampling, justify="right")
    for part in profiles[0].us:
        table.add_row(part, *(f"{one.us[part]:.0f} {one.share[part]:6.1%}" for one in profiles))
    table.add_section()
    table.add_row("step", *(f"{one.step_us:.0f}       " for one in profiles))
    table.add_row("outside matrices", *(_share(one.outside_matrices) for one in profiles))
    table.add_row("waiting, beside", *(f"{one.wait_us:.0f}       " for one in profiles))
    table.add_row("steps", *(f"{one.steps}       " for one in profiles))
    if profiles[0].sequences is not None:
        table.add_row("sequences", *(f"{one.sequences or 0:.1f}       " for one in profiles))
    return table


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:6.1%}"

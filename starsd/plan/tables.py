"""A plan as tables and lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.box import SIMPLE
from rich.table import Table

from starsd.plan.acceptance import Acceptance
from starsd.plan.answers import Answer
from starsd.plan.costs import Costs, Curve

DEPTHS = (1, 2, 3, 5, 8)


def plan_table(answer: Answer, mode: str) -> Table:
    title = f"Plan of a {mode} star"
    table = Table(title=title, title_justify="left", box=SIMPLE, padding=0)  # within 80 columns
    for name in (
        "targets",
        "depth",
        "tok/s",
        "by formula",
        "each",
        "ms a token",
        "hub busy",
        "over plain",
        "per device",
        "draft beside",
    ):
        table.add_column(name, justify="right")
    for one in answer.lines:
        found = one.simulated
        table.add_row(
            str(one.targets),
            str(one.depth),
            f"{found.throughput:.1f}",
            f"{one.formula.throughput:.1f}",
            f"{found.throughput / one.targets:.1f}",
            f"{1000 * found.token_s:.1f}",
            f"{found.busy:.0%}",
            f"{one.over_plain:.2f}",
            f"{one.per_accelerator:.2f}",
            f"{one.colocated:.1f}",
        )
    return table


def plan_lines(answer: Answer) -> Iterator[str]:
    most = answer.lines[-1].targets
    if not answer.carries:
        yield "speculation does not pay here: no target gets more than plain decoding gives it"
        return
    more = ", as far as was looked" if answer.carries == most else ""
    yield f"a hub carries {answer.carries} targets, each faster than plain decoding{more}"
    if answer.full_at is not None:
        yield f"served one job at a time it would be full at {answer.full_at} (the paper's N_full)"
    if answer.second_hub_at is None:
        yield f"a second hub does not pay up to {most} targets: one more target gives more"
    else:
        yield f"a second hub pays from {answer.second_hub_at} targets on"


def costs_table(costs: Costs, acceptance: Acceptance) -> Table:
    """What a plan rests on."""
    table = Table("cost", "ms", title="Costs", title_justify="left")
    table.add_row("draft, first step, by sequences", _curve(costs.draft_first))
    table.add_row("draft, further steps, by sequences", _curve(costs.draft_next))
    table.add_row("verify, by rows", _curve(costs.verify))
    table.add_row("way of a round, up and down", f"{1000 * costs.network_s:.2f}")
    table.add_row("hub, a job besides its model", f"{1000 * costs.hub_job_s:.2f}")
    table.add_row("target, a step besides its model", f"{1000 * costs.target_step_s:.2f}")
    tokens = ", ".join(f"{depth}: {acceptance.tokens(depth):.2f}" for depth in DEPTHS)
    table.add_row("tokens of a round, by depth", tokens)
    return table


def _curve(curve: Curve) -> str:
    pairs = zip(curve.sizes, curve.seconds, strict=True)
    return ", ".join(f"{size:g}: {1000 * seconds:.2f}" for size, seconds in pairs)

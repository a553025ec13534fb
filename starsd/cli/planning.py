"""``starsd plan``: how many targets a hub carries, before any of them is bought."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from starsd.bench.peers.plot import check_installed
from starsd.bench.record import check_writable
from starsd.cli.choices import choices, numbers
from starsd.cli.console import show, told
from starsd.errors import ConfigError
from starsd.plan.acceptance import Acceptance, constant
from starsd.plan.answers import Answer, Question, answer
from starsd.plan.costs import Costs, straight
from starsd.plan.plot import draw
from starsd.plan.star import STARS, Mode
from starsd.plan.tables import costs_table, plan_lines, plan_table

DRAFT_MS, VERIFY_MS, ROUND_TRIP_MS, RATE = 2.0, 20.0, 1.0, 0.6
"""A head of a tenth of its target, on one machine."""


@dataclass(frozen=True)
class Known:
    """What is known of a machine; what was typed in goes before what was measured."""

    costs: Costs
    acceptance: Acceptance


def plan(
    costs: Annotated[
        Path | None, typer.Option(help="Written by starsd bench calibrate --out.")
    ] = None,
    draft_ms: Annotated[
        float | None, typer.Option(min=0.001, help="A step of the draft, for one sequence.")
    ] = None,
    draft_growth: Annotated[
        float, typer.Option(min=0, help="Share of it on top for each further sequence in a step.")
    ] = 0.05,
    verify_ms: Annotated[
        float | None, typer.Option(min=0.001, help="A step of a target, with one row.")
    ] = None,
    verify_growth: Annotated[
        float, typer.Option(min=0, help="Share of it on top for each further row.")
    ] = 0.01,
    round_trip_ms: Annotated[
        float | None, typer.Option(min=0, help="Way to the hub and back.")
    ] = None,
    acceptance: Annotated[
        float | None, typer.Option(min=0, max=1, help="Chance of each drafted token.")
    ] = None,
    mode: Annotated[str, typer.Option(help=f"The hub: {', '.join(STARS)}.")] = Mode.BATCHED,
    depths: Annotated[str, typer.Option(help="Depths to choose from.")] = "1,2,3,4,5,6,8",
    targets: Annotated[int, typer.Option(min=1, max=256, help="Most to look at.")] = 32,
    sequences: Annotated[int, typer.Option(min=1, max=256, help="Of each target at once.")] = 1,
    hubs: Annotated[int, typer.Option(min=1, max=16, help="That share the targets.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    plot: Annotated[Path | None, typer.Option(help="File for a PNG.")] = None,
) -> None:
    """How many targets a hub carries, at what depth, how fast, and when a second hub pays."""
    with told():
        if plot is not None:
            check_installed()
            check_writable(plot)
        known = _known(costs)
        known = replace(
            known,
            costs=_typed(
                known.costs, draft_ms, draft_growth, verify_ms, verify_growth, round_trip_ms
            ),
            acceptance=known.acceptance if acceptance is None else constant(acceptance),
        )
        (chosen,) = choices("--mode", mode, STARS)
        asked = Question(Mode(chosen), numbers("--depths", depths), targets, sequences, hubs)
        found = answer(asked, known.costs, known.acceptance)
        if plot is not None:
            draw(found, plot)
    _show(found, known, mode, as_json=as_json)


def _show(found: Answer, known: Known, mode: str, *, as_json: bool) -> None:
    parts = [costs_table(known.costs, known.acceptance), plan_table(found, mode)]
    show(found, [*parts, *plan_lines(found)], as_json=as_json)


def _known(path: Path | None) -> Known:
    """Raises ConfigError: no calibration."""
    if path is None:
        step, verify = straight(DRAFT_MS / 1000, 0.05), straight(VERIFY_MS / 1000, 0.01)
        costs = Costs(step, step, verify, ROUND_TRIP_MS / 1000)
        return Known(costs, constant(RATE))
    try:
        raw: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        return msgspec.convert({name: raw[name] for name in ("costs", "acceptance")}, type=Known)
    except (OSError, KeyError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path}: not written by starsd bench calibrate ({error})", param="--costs"
        ) from error


def _typed(
    costs: Costs,
    draft_ms: float | None,
    draft_growth: float,
    verify_ms: float | None,
    verify_growth: float,
    round_trip_ms: float | None,
) -> Costs:
    """Instead of what is there."""
    if draft_ms is not None:
        step = straight(draft_ms / 1000, draft_growth)
        costs = replace(costs, draft_first=step, draft_next=step)
    if verify_ms is not None:
        costs = replace(costs, verify=straight(verify_ms / 1000, verify_growth))
    if round_trip_ms is not None:
        costs = replace(costs, network_s=round_trip_ms / 1000)
    return costs

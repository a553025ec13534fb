"""``starsd bench scale`` and ``starsd bench calibrate``: what a hub carries."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from starsd.bench import record
from starsd.bench.machine import allowed_cores, describe
from starsd.bench.peers.plot import check_installed
from starsd.bench.scale import calibration, plots
from starsd.bench.scale.calibration import Calibration
from starsd.bench.scale.models import Source
from starsd.bench.scale.result import Result
from starsd.bench.scale.run import measure
from starsd.bench.scale.setup import (
    EMULATED,
    MODES,
    QUICK_TARGETS,
    SIMULATED,
    TARGETS,
    TIERS,
    Setup,
)
from starsd.bench.scale.tables import lines, tables
from starsd.cli.choices import choices, numbers
from starsd.cli.console import show, told
from starsd.plan.star import Mode
from starsd.plan.tables import costs_table

RESULT = "scale.json"


def scale(
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    draft: Annotated[str, typer.Option(help="As for starsd up, but not none.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8 or int4.")] = "none",
    tiers: Annotated[
        str, typer.Option(help="emulated, simulated, real. Default: all; with --quick not real.")
    ] = "",
    modes: Annotated[str, typer.Option(help="Who drafts.")] = ",".join(MODES),
    targets: Annotated[str, typer.Option(help="Default: 1 to 16; with --quick 1, 4, 16.")] = "",
    full_at: Annotated[
        int, typer.Option(min=0, help="N_full of the emulated hub, one at a time; 0: as measured.")
    ] = 4,
    verify_ms: Annotated[
        float, typer.Option(min=1, help="Emulated steps are stretched until one takes this.")
    ] = 100.0,
    quick: Annotated[bool, typer.Option("--quick", help="Two minutes instead of fifteen.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    out: Annotated[
        Path, typer.Option(help="Folder of result, raw data and plots; a broken run goes on there.")
    ] = Path("scale"),
) -> None:
    """The paper's experiments: throughput, idling, fairness over the number of targets.

    Exit code 1 if a replayed text was not the recorded one.
    """
    console = Console(stderr=True, highlight=False)
    with told():
        check_installed()
        setup = Setup(
            model=model,
            draft=draft,
            dtype=dtype,
            quantize=quantize,
            tiers=choices("--tiers", tiers or _tiers(quick), TIERS),
            modes=tuple(map(Mode, choices("--modes", modes, MODES))),
            targets=numbers("--targets", targets or _targets(quick)),
            full_at=full_at,
            verify_ms=verify_ms,
            quick=quick,
        )
        result = measure(setup, out, console.print)
        _write(result, out)
    show(result, (*tables(result), *lines(result)), as_json=as_json)
    raise typer.Exit(1 if result.mismatched else 0)


def _tiers(quick: bool) -> str:
    return ",".join((EMULATED, SIMULATED) if quick else TIERS)


def _targets(quick: bool) -> str:
    return ",".join(map(str, QUICK_TARGETS if quick else TARGETS))


def _write(result: Result, folder: Path) -> None:
    record.write(folder / RESULT, "scale", result, {})
    plots.draw(result, folder)


def calibrate(
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    draft: Annotated[str, typer.Option(help="As for starsd up, but not none.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8 or int4.")] = "none",
    prompts: Annotated[int, typer.Option(min=1, help="Answers to learn acceptance from.")] = 24,
    max_tokens: Annotated[int, typer.Option(min=16, help="Tokens per answer.")] = 96,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for starsd plan --costs.")] = None,
) -> None:
    """Measure what starsd plan must know of this machine: steps, messages, acceptance."""
    console = Console(stderr=True, highlight=False)
    source = Source(model, draft, dtype, quantize, prompts, max_tokens)
    with told():
        if out is not None:
            record.check_writable(out)
        found = _calibrate(source, console)
        if out is not None:
            record.write(out, "calibrate", found, {})
    show(found, [costs_table(found.costs, found.acceptance)], as_json=as_json)


def _calibrate(source: Source, console: Console) -> Calibration:
    recording = calibration.record(source, console.print)
    whole = calibration.with_messages(recording, console.print)
    machine = asdict(describe(allowed_cores()))
    return Calibration(whole.costs, calibration.acceptance(whole), asdict(source), machine)

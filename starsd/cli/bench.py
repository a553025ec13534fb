"""``starsd bench``: measurements that anyone can repeat on their own machine and model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from starsd.bench import record
from starsd.bench import report as reports
from starsd.bench.speed import Setup, calls, measure
from starsd.bench.speed_result import Result
from starsd.bench.speed_tables import lines, tables
from starsd.check.lab import Lab
from starsd.cli.console import show, told
from starsd.cli.plan import wait_budget
from starsd.settings.target import TargetSettings

app = typer.Typer(no_args_is_help=True, help="Measurements to repeat yourself.")


@app.command()
def speed(
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    draft: Annotated[str, typer.Option(help="As for starsd up, but not none.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8 or int4.")] = "none",
    depth: Annotated[int, typer.Option(min=1, max=64, help="Tokens to propose per round.")] = 6,
    nodes: Annotated[
        int,
        typer.Option(min=0, max=15, help="At most, of a tree, where hubs draft trees; 0: chains."),
    ] = 15,
    budget: Annotated[
        float | None,
        typer.Option("--wait-budget", min=0, help="In plain steps. Default: as starsd up."),
    ] = None,
    invariant: Annotated[
        bool, typer.Option("--invariant", help="Batch-invariant mode; answers must be identical.")
    ] = False,
    others: Annotated[
        bool, typer.Option("--others", help="Plain decoding in our other precisions too.")
    ] = False,
    prompts: Annotated[int, typer.Option(min=0, help="Of all categories; 0: all 96.")] = 24,
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens per answer.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    repeats: Annotated[int, typer.Option(min=1, help="Times to ask each prompt.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the result and raw data.")] = None,
) -> None:
    """Plain decoding, speculation on one core, and the star on two, at one request.

    Exit code 1 if an answer of the star differs and none may: with --invariant, or quantised.
    """
    setup = Setup(
        model=model,
        draft=draft,
        dtype=dtype,
        quantize=quantize,
        depth=depth,
        nodes=nodes,
        wait_budget=budget_of(draft, depth) if budget is None else budget,
        invariant=invariant,
        others=others,
        prompts=prompts,
        max_tokens=max_tokens,
        temperature=temperature,
        repeats=repeats,
    )
    with told():
        result = record.kept(out, "speed", lambda: _measure(setup))
    show(result, (*tables(result), *lines(result)), as_json=as_json)
    raise typer.Exit(0 if result.passed else 1)


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(help="Written by --out.", show_default=False)],
) -> None:
    """The tables of several results in Markdown, as in docs/benchmarks.md."""
    with told():
        typer.echo(reports.report(files))


def _measure(setup: Setup) -> tuple[Result, dict[str, Any]]:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("answers", total=calls(setup))
        with Lab(log_level="warning") as lab:
            result, timed = measure(setup, lab, lambda: progress.advance(task))
    return result, {"answers": [one.as_json() for one in timed]}


def budget_of(draft: str, depth: int) -> float:
    """What ``starsd up`` would give its targets."""
    default = TargetSettings.model_fields["wait_budget"].default
    return float(wait_budget(draft, depth, {}).get("WAIT_BUDGET", default))

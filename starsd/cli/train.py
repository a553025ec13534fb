"""``starsd train-draft``."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from starsd.cli.console import told
from starsd.errors import ConfigError
from starsd.process.early import end_on_sigterm

if TYPE_CHECKING:
    from training.plan import Plan


def train_draft(
    out: Annotated[Path, typer.Argument(help="Folder for the draft, its data and its state.")],
    model: Annotated[str | None, typer.Option(help="The target, as for starsd up.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="eagle (default), or lm: layers of the target itself.")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="eagle: hidden states it reads; lm: layers it keeps. Like 0,29."),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            help="Tokens an eagle head can propose: those the dialogues say most. "
            "Default: as many as --start does, else 8192."
        ),
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Of dialogues to sample from the target. Default: 2000000.")
    ] = None,
    passes: Annotated[
        float | None, typer.Option(help="Over these, in training. Default: 2.")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens of an update at most. Default: 3072.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Of learning, at its highest. Default: 0.001.")
    ] = None,
    keep_gb: Annotated[
        float | None,
        typer.Option(help="Disk for what the target computed, for later passes. Default: 12."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="Head to go on from, with its layers and weights: as --draft, or auto."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of another draft's dialogues, to begin with.")
    ] = None,
    chats: Annotated[
        Path | None, typer.Option(help="JSON lines with messages, whose users are answered first.")
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(help="engine (ours, default), or vllm where that is installed.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu (default), cuda or mps.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Compute threads. Default: one for each core.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of dialogues and first weights.")] = None,
) -> None:
    """Train a draft for a target on what that target says.

    It may be stopped at any time: the same command goes on where it was, also with more --tokens
    or --passes. Exit codes: 0 done, 2 bad option or setting, 143 stopped by SIGTERM.
    """
    given = locals() | {"layers": layers.split(",") if layers else None}
    with told():
        _train(_plan({name: value for name, value in given.items() if value is not None}))


def _plan(given: dict[str, Any]) -> Plan:
    plans = importlib.import_module("training.plan")
    try:
        plan: Plan = plans.Plan(**given)
    except ValidationError as error:
        first = error.errors()[0]
        option = f"--{first['loc'][0]}"
        raise ConfigError(f"{option}={first['input']!r}: {first['msg']}", param=option) from error
    return plan


def _train(plan: Plan) -> None:
    run = importlib.import_module("training.run")  # torch takes seconds to import
    end_on_sigterm()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, TextColumn("{task.fields[state]}"), console=console) as progress:
        bars = {
            phase: progress.add_task(phase, total=1.0, state="")
            for phase in ("sampling", "training", "judging")
        }

        def tell(phase: str, done: float, state: str) -> None:
            progress.update(bars[phase], completed=done, state=state)

        acceptance = run.train_draft(plan, tell)
    shares = ", ".join(f"{share:.3f}" for share in acceptance)
    typer.echo(f"{plan.out}: acceptance by position {shares}; starsd up --draft {plan.out}")

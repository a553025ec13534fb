"""``starsd bench engine``: the engine alone, without services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from starsd.bench import record
from starsd.bench.engine.run import measure
from starsd.bench.engine.setup import FLIPS, SUBJECTS, Setup
from starsd.bench.engine.tables import lines, tables
from starsd.bench.peers.ours import PRECISIONS
from starsd.cli.choices import choices, numbers
from starsd.cli.console import show, told
from starsd.cli.peers import cores_of


def engine(
    precisions: Annotated[str, typer.Option(help="Which.")] = ",".join(PRECISIONS),
    cores: Annotated[str, typer.Option(help="One thread on each. Default: the first core.")] = "",
    only: Annotated[str, typer.Option(help="Which subjects.")] = ",".join(SUBJECTS),
    with_flips: Annotated[
        bool, typer.Option("--flips/--no-flips", help="Compare tokens; half of the time.")
    ] = True,
    contexts: Annotated[str, typer.Option(help="Long contexts, in tokens.")] = "512,2048,8192",
    tokens: Annotated[int, typer.Option(min=1, help="To compare for flips.")] = 10_000,
    repeats: Annotated[int, typer.Option(min=1, help="Of each timing.")] = 7,
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the result and raw data.")] = None,
) -> None:
    """Steps, throughput, sampling, flipped tokens, long contexts and invariance, by precision."""
    err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    with told():
        subjects = choices("--only", only, SUBJECTS)
        setup = Setup(
            model=model,
            precisions=choices("--precisions", precisions, tuple(PRECISIONS)),
            cores=cores_of(cores),
            only=tuple(name for name in subjects if with_flips or name != FLIPS),
            contexts=numbers("--contexts", contexts),
            tokens=tokens,
            repeats=repeats,
        )
        result = record.kept(out, "engine", lambda: measure(setup, err.print))
    show(result, (*tables(result), *lines(result)), as_json=as_json)

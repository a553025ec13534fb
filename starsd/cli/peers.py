"""``starsd bench peers``: our servers and others' on the same cores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from starsd.bench import record
from starsd.bench.machine import allowed_cores
from starsd.bench.peers.catalogue import GROUPS
from starsd.bench.peers.options import NO_DRAFT, Options
from starsd.bench.peers.ours import PRECISIONS
from starsd.bench.peers.result import PeersResult, remarks, table
from starsd.bench.peers.run import run
from starsd.cli.bench import budget_of
from starsd.cli.console import told
from starsd.errors import ConfigError
from starsd.process.spawn import parse_cores
from starsd.settings.target import TargetSettings

DEPTH: int = TargetSettings.model_fields["draft_depth"].default
WIDTH = 200
"""A Markdown row is one line, whatever the terminal."""


def peers(
    only: Annotated[str, typer.Option(help="Which peers.")] = ",".join(GROUPS),
    ours: Annotated[str, typer.Option(help="Our precisions.")] = ",".join(PRECISIONS),
    cores: Annotated[str, typer.Option(help="For every server. Default: the first.")] = "",
    draft: Annotated[
        str,
        typer.Option(help="Adds the star, on two cores: target on the first, hub on the other."),
    ] = NO_DRAFT,
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    prompts: Annotated[int, typer.Option(min=1, help="Short ones, of all categories.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer.")] = 96,
    repeats: Annotated[int, typer.Option(min=1, help="Turns of each server.")] = 3,
    envs: Annotated[
        Path, typer.Option(help="Folder of the peers' environments, made on demand, 6 GB.")
    ] = Path("~/.cache/starsd/peers"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the result and raw data.")] = None,
    plot: Annotated[Path | None, typer.Option(help="File for a bar chart (PNG).")] = None,
) -> None:
    """HF generate and prompt lookup, vLLM, OpenVINO GenAI and llama-server against plain decoding.

    Greedy, over HTTP, at 1 and 8 requests at once, one server awake at a time; half an hour.
    """
    err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    with told():
        options = Options(
            cores=cores_of(cores),
            only=tuple(only.split(",")),
            ours=tuple(ours.split(",")),
            draft=draft,
            wait_budget=budget_of(draft, DEPTH),
            model=model,
            prompts=prompts,
            max_tokens=max_tokens,
            repeats=repeats,
            envs=envs,
            out=out,
            plot=plot,
        )
        result = run(options, err.print)
    _print(result, as_json=as_json)


def cores_of(given: str) -> tuple[int, ...]:
    """Of an option ``--cores``; the first one if it is empty. Raises ConfigError."""
    if not given:
        return tuple(allowed_cores()[:1])
    try:
        return tuple(sorted(parse_cores(given)))
    except ConfigError as error:
        raise ConfigError(f"--cores {given!r}: write it like 0 or 0,1", param="--cores") from error


def _print(result: PeersResult, *, as_json: bool) -> None:
    console = Console(stderr=as_json, highlight=False, width=WIDTH)
    console.print(table(result))
    for remark in remarks(result):
        console.print(remark, markup=False, soft_wrap=True)
    if as_json:
        typer.echo(record.as_line(result))

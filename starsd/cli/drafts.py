"""``starsd bench draft``: what drafts are worth for a target, without services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from starsd.bench import record
from starsd.bench.draft.run import measure
from starsd.bench.draft.setup import Setup
from starsd.bench.draft.tables import lines, tables
from starsd.cli.choices import decimals
from starsd.cli.console import show, told


def draft(
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    drafts: Annotated[
        str, typer.Option(help="Each as for starsd up, or ngram, separated by commas.")
    ] = "auto,ngram",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8 or int4.")] = "none",
    temperatures: Annotated[str, typer.Option(help="0 is greedy.")] = "0,1",
    prompts: Annotated[int, typer.Option(min=0, help="Of all categories; 0: all 96.")] = 24,
    max_tokens: Annotated[int, typer.Option(min=3, help="Tokens per answer.")] = 128,
    depth: Annotated[int, typer.Option(min=1, max=64, help="Tokens to propose per round.")] = 6,
    nodes: Annotated[
        int, typer.Option(min=0, max=15, help="Of a tree; up to the depth: chains only.")
    ] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the result and raw data.")] = None,
) -> None:
    """Tokens per round, cost and expected speed of each draft, on answers replayed here."""
    err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False)
    with told():
        setup = Setup(
            model=model,
            drafts=tuple(drafts.split(",")),
            dtype=dtype,
            quantize=quantize,
            temperatures=decimals("--temperatures", temperatures),
            prompts=prompts,
            max_tokens=max_tokens,
            depth=depth,
            nodes=nodes,
        )
        result = record.kept(out, "draft", lambda: measure(setup, err.print))
    show(result, (*tables(result), *lines(result)), as_json=as_json)

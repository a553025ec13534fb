"""``starsd bench profile``: where a step's time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from starsd.bench import record
from starsd.bench.profile import MAX_TOKENS, Setup, measure, turns
from starsd.bench.profile_result import SAMPLINGS, Result
from starsd.bench.profile_tables import lines, tables
from starsd.check.lab import Lab
from starsd.cli.bench import budget_of
from starsd.cli.choices import choices, numbers
from starsd.cli.console import show, told
from starsd.settings.target import TargetSettings

DEPTH: int = TargetSettings.model_fields["draft_depth"].default


def profile(
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    draft: Annotated[str, typer.Option(help="As for starsd up.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8 or int4.")] = "none",
    batch: Annotated[str, typer.Option(help="Answers at once.")] = "1,16",
    sampling: Annotated[str, typer.Option(help="Which ways to sample.")] = ",".join(SAMPLINGS),
    tokens: Annotated[
        int, typer.Option(min=1, max=MAX_TOKENS, help="Of each answer, to look at.")
    ] = 96,
    temperature: Annotated[
        float, typer.Option(min=0.01, help="Of filtered and unfiltered sampling.")
    ] = 1.0,
    top_p: Annotated[float, typer.Option(min=0, max=1, help="Of filtered sampling.")] = 0.95,
    top_k: Annotated[int, typer.Option(min=0, help="Of filtered sampling.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
    out: Annotated[Path | None, typer.Option(help="File for the result.")] = None,
) -> None:
    """A step's time by part at target and hub, while a batch of answers decodes."""
    with told():
        setup = Setup(
            model=model,
            draft=draft,
            dtype=dtype,
            quantize=quantize,
            wait_budget=budget_of(draft, DEPTH),
            batches=numbers("--batch", batch),
            samplings=choices("--sampling", sampling, SAMPLINGS),
            tokens=tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
        )
        result = record.kept(out, "profile", lambda: (_measure(setup), {}))
    show(result, (*tables(result), *lines(result)), as_json=as_json)


def _measure(setup: Setup) -> Result:
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("batches", total=len(list(turns(setup))))
        with Lab(log_level="warning") as lab:
            return measure(setup, lab, lambda: progress.advance(task))

"""``starsd check``: proofs that anyone can run on their own machine and model."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from starsd.check.client import Answer, Question, ask_all
from starsd.check.identity import Report, compare, make_questions
from starsd.check.lab import Lab
from starsd.cli.console import told

app = typer.Typer(no_args_is_help=True, help="Proofs to run yourself.")

NAME = "checked"
CONCURRENCY = 8
QUICK_PROMPTS = 16
WAIT_BUDGET = 100.0
"""The drafts here are slow on purpose, and the proof wants their proposals verified, not missed."""


@app.command()
def identity(
    prompts: Annotated[int, typer.Option(min=1, help="(prompt, seed) pairs.")] = 200,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer.")] = 24,
    model: Annotated[str, typer.Option(help="As for starsd up.")] = "smollm2-135m-instruct",
    draft: Annotated[str, typer.Option(help="As for starsd up.")] = "noisy:0.05",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8 or int4.")] = "none",
    normal: Annotated[
        bool, typer.Option("--normal", help="Normal mode; near ties are excused and counted.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="At most two minutes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object as last line.")] = False,
) -> None:
    """Is the star's text the target's own? Two targets and a hub against plain decoding.

    Exit code 1 if an answer is wrong or ties are too many.
    """
    questions = make_questions(min(prompts, QUICK_PROMPTS) if quick else prompts, max_tokens)
    settings = {
        "model": model,
        "dtype": dtype,
        "quantize": quantize,
        "batch_invariant": not normal,
    }
    with told():
        star, plain = asyncio.run(_answers(questions, settings, draft))
        report = _judge(questions, star, plain, settings if normal else None)
    _print(report, as_json=as_json)
    raise typer.Exit(0 if report.passed else 1)


async def _answers(
    questions: Sequence[Question], settings: dict[str, Any], draft: str
) -> tuple[list[Answer], list[Answer]]:
    """The star's answers and plain decoding's, one after the other on the same machine."""
    with Lab(log_level="warning", served_model_name=NAME, **settings) as lab:
        lab.start("draft", "draft", draft=draft)
        targets = [lab.start(name, "target", wait_budget=WAIT_BUDGET) for name in ("one", "two")]
        await asyncio.to_thread(lab.wait_ready)
        await asyncio.to_thread(lab.wait_hubs)
        urls = [target.url for target in targets]
        star = await ask_all(urls, NAME, questions, CONCURRENCY)
        for service in lab.services.values():
            service.stop()
        alone = lab.start("plain", "target", drafting=False)
        await asyncio.to_thread(alone.wait_ready)
        return star, await ask_all([alone.url], NAME, questions, CONCURRENCY)


def _judge(
    questions: Sequence[Question],
    star: Sequence[Answer],
    plain: Sequence[Answer],
    settings: dict[str, Any] | None,
) -> Report:
    """``settings`` of the reference in normal mode; None where no excuse is admitted."""
    if settings is None:
        return compare(questions, star, plain, None)
    # Imports torch; the other commands do not need it.
    from starsd.engine.loading import load_model
    from starsd.settings.loading import load
    from starsd.settings.target import TargetSettings

    reference = load_model(load(TargetSettings, max_sequences=1, **settings)).runner()
    return compare(questions, star, plain, reference)


def _print(report: Report, *, as_json: bool) -> None:
    verdict = "passed" if report.passed else "FAILED"
    Console(stderr=as_json, highlight=False).print(
        f"{verdict}: {report.total} answers, {report.tokens} tokens: {report.identical} identical, "
        f"{report.near_ties} near ties, {report.wrong} wrong; acceptance {report.acceptance:.3f}"
    )
    if as_json:
        typer.echo(json.dumps({**dataclasses.asdict(report), "acceptance": report.acceptance}))

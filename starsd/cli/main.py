"""The ``starsd`` command."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table

from starsd.cli import (
    bench,
    check,
    drafts,
    engine,
    peers,
    planning,
    profile,
    reference,
    scale,
    train,
)
from starsd.cli import chat as chatting
from starsd.cli.console import told
from starsd.cli.talk import talk
from starsd.cli.up import Options
from starsd.cli.up import up as run_star

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="One draft model serves many targets. Settings: `starsd settings`.",
)


bench.app.command()(peers.peers)
bench.app.command()(profile.profile)
bench.app.command()(engine.engine)
bench.app.command()(drafts.draft)
bench.app.command()(scale.scale)
bench.app.command()(scale.calibrate)
app.add_typer(bench.app, name="bench")
app.add_typer(check.app, name="check")
app.command()(train.train_draft)
app.command()(planning.plan)


@app.command()
def up(
    targets: Annotated[int | None, typer.Option(help="Targets to start. Default: 2.")] = None,
    draft: Annotated[
        str, typer.Option(help="auto, self, layers:N, noisy:S, a folder or hub name, or none.")
    ] = "",
    model: Annotated[str, typer.Option(help="Folder, hub name, or smollm2-135m-instruct.")] = "",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "",
    quantize: Annotated[str, typer.Option(help="none, int8 or int4.")] = "",
    kv_memory: Annotated[
        str, typer.Option(help="Keys and values of each model process, like 512MiB. Default: 4GiB.")
    ] = "",
    port: Annotated[
        int | None, typer.Option(help="Port of the gateway. Default: 8000 if free; 0: any.")
    ] = None,
    redis: Annotated[str, typer.Option(help="URL of a Redis to use instead of our own.")] = "",
) -> None:
    """Start the whole star here: Redis, a draft, targets and a gateway; Ctrl-C ends it.

    Exit codes: 0 stopped, 1 a process kept dying, 2 bad option or setting, 3 not ready in time.
    """
    options = Options(targets, draft, model, dtype, quantize, kv_memory, port, redis)
    with told():
        raise typer.Exit(run_star(options))


@app.command()
def chat(
    text: Annotated[
        str, typer.Argument(help="What to say. Without it: a dialogue, until Ctrl-D.")
    ] = "",
    url: Annotated[str, typer.Option(help="Where the gateway is.")] = "http://127.0.0.1:8000",
    model: Annotated[str, typer.Option(help="Default: the first it lists.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, help="0 is greedy.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Same seed, same answer.")] = None,
) -> None:
    """Ask a running star; then print TTFT, tokens/s and acceptance (on stderr).

    On a terminal, accepted draft tokens are green, the target's own after a proposal (recovered
    and bonus) yellow, and those without a proposal plain.
    """
    base = url.rstrip("/").removesuffix("/v1")
    with told(), httpx.Client(timeout=chatting.TIMEOUT, trust_env=False) as client:
        name = model or chatting.first_model(base, client)
        wishes = chatting.Wishes(name, max_tokens, temperature, seed)
        talk(chatting.Dialogue(base, wishes, client), text)


@app.command()
def gateway() -> None:
    """Run one gateway here, by its STARSD_* settings."""
    _become("gateway")


@app.command()
def target() -> None:
    """Run one target here, by its STARSD_* settings."""
    _become("target")


@app.command()
def draft() -> None:
    """Run one draft hub here, by its STARSD_* settings."""
    _become("draft")


def _become(service: str) -> None:
    os.execv(sys.executable, [sys.executable, "-m", f"services.{service}"])


@app.command()
def settings(
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print docs/settings.md instead.")
    ] = False,
) -> None:
    """List every STARSD_* variable with its default and meaning."""
    if as_markdown:
        typer.echo(reference.markdown(), nl=False)
        return
    console = Console(highlight=False)
    for title, cls in reference.SECTIONS:
        table = Table("variable", "values", "default", "meaning", title=title, title_justify="left")
        for entry in reference.entries(cls):
            table.add_row(entry.variable, entry.values, entry.default, entry.description)
        console.print(table)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed_version("starsd"))

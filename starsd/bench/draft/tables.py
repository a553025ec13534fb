"""A result of ``starsd bench draft`` as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from starsd.bench.draft.result import Drafted, Result, Rounds, Told
from starsd.bench.draft.setup import CHAIN, TREE

NONE = "-"
ROUNDS = ("shape", "tokens", "no loops", "steps", "nodes", "cost", "speed", "no loops")


def tables(result: Result) -> Iterator[Table]:
    yield _drafts(result)
    yield _rounds(result)
    if any(one.hits for one in result.drafts):
        yield _hits(result)


def lines(result: Result) -> Iterator[str]:
    """What the tables mean, and circumstances."""
    yield (
        "tokens, steps and nodes are those of a round; cost is that of a draft step (a chain's "
        "token) in plain steps of the target, each on one core; no loops: without answers that "
        "repeat themselves"
    )
    yield (
        "chains right so far are a share of all rounds; nodes right after right ones a share of "
        "the trees' nodes of that depth and rank whose parents the target said"
    )
    yield (
        "speed is what to expect over plain decoding: tokens / (verification + steps x cost), one "
        "after the other, without transport; a round without a proposal is a plain step"
    )
    yield from map(_target, result.targets)
    if result.left_out:
        yield f"{result.left_out} prompts are too long for target or drafts and left out"
    machine = result.machine
    yield (
        f"{machine['cpu']}, cores {machine['cores_used']}, {result.clock} time; load average "
        f"{machine['load_before']} before, {machine['load_after']} after"
    )


def _target(one: Told) -> str:
    verify = ", ".join(f"of a {shape} {cost:.2f}" for shape, cost in one.verify.items())
    return (
        f"temperature {one.temperature:g}: {one.answers} answers, {one.tokens} tokens in all; "
        f"{one.looping} of them loop. A plain step takes {one.plain_ms:.1f} ms, verification "
        f"{verify} times that"
    )


def _drafts(result: Result) -> Table:
    """All that decides between them, a row for each at each temperature."""
    depth = len(result.drafts[0].acceptance)
    title = "Cost, chains right so far by position, tokens and speed of the better shape"
    table = _table(title, "cost", *_ordinals(depth), "tokens", "speed")
    for one in result.drafts:
        best = max((one.chain, one.tree or one.chain), key=lambda rounds: rounds.speed)
        found = (one.chain.step_cost, *one.acceptance, best.tokens, best.speed)
        table.add_row(*_who(one), *map(number, found))
    return table


def _rounds(result: Result) -> Table:
    table = _table("Rounds", *ROUNDS)
    for one in result.drafts:
        table.add_row(*_who(one), CHAIN, *_cells(one.chain))
        if one.tree is not None:
            table.add_row(*_who(one), TREE, *_cells(one.tree))
    return table


def _cells(rounds: Rounds) -> list[str]:
    r = rounds
    found = (r.tokens, r.tokens_without_loops, r.steps, r.nodes, r.step_cost)
    return [number(value) for value in (*found, r.speed, r.speed_without_loops)]


def _hits(result: Result) -> Table:
    ranks = max(hit.rank for one in result.drafts for hit in one.hits)
    title = "Nodes right after right ones, by rank"
    table = _table(title, "depth", *_ordinals(ranks))
    for one in result.drafts:
        shares = {(hit.depth, hit.rank): hit.rate for hit in one.hits if hit.reached}
        for depth in sorted({depth for depth, _ in shares}):
            cells = (number(shares.get((depth, rank))) for rank in range(1, ranks + 1))
            table.add_row(*_who(one), str(depth), *cells)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("draft", overflow="fold")
    for column in ("T", *columns):
        table.add_column(column, justify="right")
    return table


def _who(one: Drafted) -> tuple[str, str]:
    """A folder by its name."""
    return Path(one.draft).name, f"{one.temperature:g}"


def _ordinals(count: int) -> list[str]:
    return [str(number + 1) for number in range(count)]


def number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"

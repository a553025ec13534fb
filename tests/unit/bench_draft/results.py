"""A result made up for tables and command line."""

from __future__ import annotations

from starsd.bench.draft.costs import Costs
from starsd.bench.draft.replay import Round
from starsd.bench.draft.result import Result, drafted, told
from tests.unit.bench.answers import MACHINE

COSTS = Costs(
    20.0, {"chain": 1.0, "tree": 1.1}, {("/x/head", "chain"): 0.1, ("/x/head", "tree"): 0.2}
)
CHAIN = Round([1, 2], None, [0], tokens=2, steps=2, looping=False)
TREE = Round([7, 8, 9], [-1, -1, 1], [1, 2], tokens=3, steps=2, looping=True)


def made() -> Result:
    return Result(
        targets=[told(0.0, [], COSTS)],
        drafts=[
            drafted("/x/head", 0.0, {"chain": [CHAIN], "tree": [TREE]}, COSTS, 2),
            drafted("ngram", 0.0, {"chain": [CHAIN]}, COSTS, 2),
        ],
        left_out=3,
        clock="processor",
        settings={},
        machine=MACHINE,
    )

"""A small recorded world, and points as if they had been measured."""

from __future__ import annotations

import random
from typing import Any

from starsd.bench.scale.point import Measured, Point
from starsd.bench.scale.setup import MODES, TIERS, Setup
from starsd.bench.scale.world import Text, World
from starsd.plan.acceptance import CHOICES
from starsd.plan.costs import Costs, straight
from starsd.plan.star import Mode

EOS, VOCAB = 2, 500
COSTS = Costs(straight(0.002, 0.1), straight(0.002, 0.1), straight(0.020, 0.01))
SETUP = Setup(
    model="m",
    draft="self",
    dtype="auto",
    quantize="none",
    tiers=TIERS,
    modes=MODES,
    targets=(1, 4, 16),
    full_at=4,
    verify_ms=100.0,
    quick=False,
)


def make_text(number: int, tokens: int = 40, right: float = 0.6) -> Text:
    luck = random.Random(number)
    answer = [luck.randrange(3, VOCAB) for _ in range(tokens - 1)]
    ranks = [0 if luck.random() < right else luck.choice((1, 2, CHOICES)) for _ in range(tokens)]
    return Text((1, 3 + number, 4), (*answer, EOS), (CHOICES, *ranks[1:]))


def make_world(texts: int = 12, **changes: Any) -> World:
    given = {
        "texts": tuple(make_text(number) for number in range(texts)),
        "eos": (EOS,),
        "vocab_size": VOCAB,
        "vocabulary": "00000000000b17e5",
        "revision": "recorded",
        "costs": COSTS,
        "verify_factors": (0.9, 1.0, 1.1),
    }
    return World(**{**given, **changes})


def measured(
    mode: Mode = Mode.BATCHED,
    sequences: tuple[int, ...] = (1,),
    depth: int = 5,
    note: str = "",
    round_ms: float = 100.0,
    **changes: Any,
) -> Measured:
    """All rounds alike. ``changes`` are of the hub's counters."""
    hub = {"busy_s": 4.0, "idle_s": 5.0, "ahead_s": 0.0, "other_s": 1.0, "steps": 400.0}
    steps = 10_000 / round_ms * len(sequences)
    deep = {f"reaching_{token}": steps for token in range(depth)}
    server = {"total_net_input_bytes": 5e5, "total_net_output_bytes": 5e5}
    return Measured(
        point=Point(mode, sequences, 0 if mode is Mode.PLAIN else depth, note),
        seconds=10.0,
        tokens_per_s=[1000 * count * 2 / round_ms for count in sequences],
        tokens_per_round=2.0,
        gaps_ms=[[round_ms] * 20 for _ in sequences],
        mismatched=0,
        between_s=0.05,
        hub={} if mode is Mode.PLAIN else {**hub, "served": 80.0, **changes},
        target={"steps": steps, "rounds": steps, "wait_s": 0.5, **deep},
        server={**server, "used_cpu_user": 0.1, "used_cpu_sys": 0.1},
    )

"""A result made up for tables and command line."""

from __future__ import annotations

from starsd.bench.engine.contexts import Contexts
from starsd.bench.engine.flips import Flips
from starsd.bench.engine.invariance import Invariance
from starsd.bench.engine.result import Result
from starsd.bench.engine.setup import SEQUENCES
from starsd.bench.engine.shapes import Shapes
from starsd.bench.engine.steps import steps
from starsd.bench.engine.throughput import BLOCK, HF, throughput
from tests.unit.bench.answers import MACHINE

RATE = {"0.0": 0.01, "0.7": 0.03}


def made(threads: int = 2) -> Result:
    second = BLOCK * SEQUENCES
    return Result(
        clock="real",
        seconds={"steps": 3.0},
        settings={},
        machine=MACHINE,
        steps=[
            steps("bfloat16", {"1 of one": 20.0, "16 of one": 22.0}),
            steps("int8", {"1 of one": 10.0, "16 of one": 12.0}),
            steps("int4", {"1 of one": 8.0, "16 of one": 32.0}),
        ],
        throughput=throughput({"bfloat16": second / 800, HF: second / 320}, threads),
        sampling_us={"greedy": 30.0, "unfiltered": 1400.0},
        flips=[
            Flips("float32", 1000, 1, 0.001, 0.0, dict.fromkeys(RATE, 0.001)),
            Flips("int8", 1000, 20, 0.02, 0.0041, RATE),
        ],
        shapes=Shapes("bfloat16", 8, 1024, 16, 0.015625),
        contexts=[Contexts("int8", {"512": 11.8}, {"512": 19.04}, [8192])],
        invariance=[Invariance("float32", {"1 of one": 70.0}, {"1 of one": 2.5})],
    )

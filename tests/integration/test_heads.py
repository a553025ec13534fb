"""A real head, random as it is, reads a real model's states over a real Redis."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.livestar import Heard, LiveStar, eventually, forgot_hub, questions, texts
from tests.unit.engine.eagle.heads import EAGLE3, eagle3, write

PATIENT = {"wait_budget": 1000, "ngram": 0, "depth_control": "fixed"}
"""A step of the tiny model takes less time than a message."""


def total(answers: list[Heard], name: str) -> int:
    return sum(one.starsd[name] for one in answers)


def test_a_head_may_say_what_it_likes(tiny_model: Path, tmp_path: Path) -> None:
    """The text stays the target's; now and then even a random head is right."""
    model = {"model": str(tiny_model), "max_length": 256, "max_sequences": 8, "dtype": "float32"}
    target = {**model, "scripted": "", "batch_invariant": True, **PATIENT}
    hub = {**model, "scripted": "", "draft": str(write(tmp_path / "head", eagle3(), EAGLE3))}
    asked = questions(8, max_tokens=160)  # far longer than the first reply of a busy hub takes
    with LiveStar(step_s=0.0, target=target, hub=hub) as star:
        star.start("a", "b", "gateway", "hub")
        star.lab.wait_ready()
        star.lab.wait_hubs()
        heard = star.through(asked)
        star["hub"].kill()
        for one in star.targets:
            eventually(partial(forgot_hub, one), "the hub is forgotten")
        plain = star.through(asked)
    assert texts(heard) == texts(plain)
    assert total(heard, "rounds") > total(heard, "fallbacks")
    assert total(heard, "proposed") > total(heard, "accepted") > 0
    assert total(plain, "rounds") == 0

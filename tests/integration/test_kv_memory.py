"""A target with memory for a few sequences serves many, and a starved hub hurts nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.livestar import LiveStar, eventually, forgot_hub, questions, quiet, texts, value
from tests.tiny import LAYERS_DRAFT

STREAMS = 10


def test_more_streams_than_fit_say_what_they_do_alone(tiny_model: Path) -> None:
    """Eight blocks for ten streams of two to three, and as few at the hub."""
    model: dict[str, Any] = {"model": str(tiny_model), "max_length": 256, "dtype": "float32"}
    target = {
        **model,
        "kv_memory": "512KiB",
        "batch_invariant": True,
        "wait_budget": 20,
        "ngram": 0,
        "depth_control": "fixed",
    }
    hub = {**model, "kv_memory": "256KiB", "draft": LAYERS_DRAFT}
    asked = questions(STREAMS, max_tokens=120)
    with LiveStar(step_s=0.0, target=target, hub=hub) as star:
        star.start("a", "b", "hub", "gateway")
        star.wait_whole()
        star["b"].kill()
        eventually(lambda: value(star["gateway"], "starsd:targets_live") == 1, "only a is left")
        heard = star.through(asked)
        eventually(lambda: quiet(star["a"]), "all memory is free")
        preemptions = value(star["a"], "starsd:preemptions_total")
        assert preemptions > 0
        assert value(star["a"], "starsd:kv_blocks") == value(star["hub"], "starsd:kv_blocks") == 8
        assert value(star["a"], "starsd:kv_blocks_used") == 0
        assert value(star["hub"], "starsd:hub_jobs_total", status="refused") > 0

        star["hub"].kill()
        eventually(lambda: forgot_hub(star["a"]), "the hub is forgotten")
        alone = [star.through([question])[0] for question in asked]
        assert texts(heard) == texts(alone)
        assert sum(one.starsd["accepted"] for one in heard) > 0
        assert sum(one.starsd["proposed"] for one in alone) == 0
        assert value(star["a"], "starsd:preemptions_total") == preemptions

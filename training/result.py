"""What a run leaves: weights, config, a model card, and a plot of how it went."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import structlog
from safetensors.torch import save_file

from starsd.engine.checkpoint import BUNDLED
from training.curve import Point, read_curve
from training.files import replaced
from training.plan import Plan
from training.student import Student
from training.trainer import tokens_per_round

log = structlog.get_logger()

DEFAULT_LICENCE = "apache-2.0"
"""Of SmolLM2, whose package carries no model card."""

CARD = """---
base_model: {model}
license: {licence}
tags: [speculative-decoding, {kind}]
---
# A draft for {model}

Made by `starsd train-draft`; `starsd up --draft FOLDER` uses it. It proposes tokens that the target
verifies, and can never change a text.

| | |
|---|---|
| kind | {kind}, layers {layers}, draft vocabulary {vocabulary:,} |
| target | {model}, revision {revision} |
| data | {tokens:,} tokens of dialogues of the target with itself |
| first weights | {start} |
| training | {updates:,} updates of about {batch:,} tokens, seed {seed} |
| acceptance by position, greedy, held out | {acceptance} |
| tokens a round, chain of {depth} | {round:.2f} |
| licence | the target's: {licence} |
"""


def write(student: Student, plan: Plan, folder: Path, revision: str, facts: Point) -> None:
    """Into ``plan.out``: model.safetensors, config.json, README.md, curve.png.

    ``folder`` and ``revision`` are the target's.
    """
    weights, config = student.checkpoint()
    config["starsd"] = {"target": plan.model, "target_revision": revision}
    whole = {name: weight.contiguous() for name, weight in weights.items()}
    with replaced(plan.out / "model.safetensors") as part:
        save_file(whole, part, {"format": "pt"})
        part.chmod(0o644)  # safetensors keeps it to its owner, services may run as another
    with replaced(plan.out / "config.json") as part:
        part.write_text(json.dumps(config, indent=2) + "\n")
    card = CARD.format(
        model=plan.model,
        licence=licence(folder, plan.model),
        kind=plan.kind,
        layers=config.get("eagle_aux_hidden_state_layer_ids", plan.layers),
        vocabulary=len(student.draft_ids),
        revision=revision,
        tokens=facts.tokens,
        start=Path(plan.start).name or "the target's own",
        updates=facts.updates,
        batch=plan.batch_tokens,
        seed=plan.seed,
        acceptance=", ".join(f"{share:.3f}" for share in facts.acceptance),
        depth=len(facts.acceptance),
        round=tokens_per_round(facts.acceptance),
    )
    with replaced(plan.out / "README.md") as part:
        part.write_text(card)


def licence(folder: Path, model: str) -> str:
    """As the target's own model card states it."""
    card = folder / "README.md"
    if card.exists() and (stated := re.search(r"^license: *(\S+)", card.read_text(), re.MULTILINE)):
        return stated[1]
    return DEFAULT_LICENCE if model == BUNDLED else "not stated"


def plot(curve: Path, picture: Path) -> None:
    """Loss and acceptance over updates; without matplotlib the numbers stay in ``curve``."""
    if importlib.util.find_spec("matplotlib") is None:
        log.warning("no plot: pip install matplotlib", curve=str(curve))
        return
    figures: Any = importlib.import_module("matplotlib.figure")
    points = read_curve(curve)
    figure = figures.Figure(figsize=(7, 4), layout="constrained")
    left = figure.subplots()
    losses = [(one.updates, one.loss) for one in points if one.loss is not None]
    left.plot(*zip(*losses, strict=True), color="0.6", label="loss")
    left.set(xlabel="updates", ylabel="loss")
    right = left.twinx()
    judged = [one for one in points if one.acceptance]
    for position in range(len(judged[0].acceptance) if judged else 0):
        shares = [one.acceptance[position] for one in judged]
        right.plot([one.updates for one in judged], shares, label=f"position {position + 1}")
    right.set(ylabel="acceptance, greedy, held out", ylim=(0, 1))
    right.legend(loc="lower right")
    figure.savefig(picture, dpi=120)

"""A plan as a PNG."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from starsd.plan.answers import Answer


def draw(answer: Answer, path: Path) -> Any:
    """Throughput and latency over the number of targets. Writes a PNG of the figure that it
    returns; needs matplotlib."""
    figures: Any = importlib.import_module("matplotlib.figure")  # not needed without --plot
    figure = figures.Figure(figsize=(10.0, 4.0), layout="constrained")
    total, latency = figure.subplots(1, 2)
    targets = [one.targets for one in answer.lines]
    total.plot(targets, [one.simulated.throughput for one in answer.lines], "o-", label="star")
    total.plot(targets, [one.formula.throughput for one in answer.lines], ":", label="by formula")
    total.plot(targets, [one.plain for one in answer.lines], "k--", label="plain")
    total.plot(targets, [one.colocated for one in answer.lines], color="gray", label="co-located")
    if answer.second_hub_at is not None:
        total.axvline(answer.second_hub_at, color="tab:red", alpha=0.4, label="second hub pays")
    total.set_ylabel("tokens/s of all targets")
    total.legend()
    latency.plot(targets, [1000 * one.simulated.token_s for one in answer.lines], "o-")
    latency.set_ylabel("ms a token")
    for axes in (total, latency):
        axes.set_xlabel("targets")
    figure.savefig(path, dpi=150, format="png")
    return figure

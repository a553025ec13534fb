"""A bar for each server, one panel for each number of requests at once."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from starsd.bench.peers.result import PeersResult, requests_of
from starsd.errors import ConfigError

OURS, THEIRS = "tab:orange", "tab:gray"


def check_installed() -> None:
    """Before the work, not after it. Raises ConfigError."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("a plot needs matplotlib: pip install matplotlib", param="--plot")


def draw(result: PeersResult, path: Path) -> Any:
    """Medians, with the least and the most of the repeats as whiskers. Writes a PNG of the figure
    that it returns."""
    figures: Any = importlib.import_module("matplotlib.figure")  # not needed without --plot
    columns = requests_of(result)
    size = (5.0 * len(columns), 1.2 + 0.35 * len(result.tokens_per_s))
    figure = figures.Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(columns), squeeze=False, sharey=True)[0]
    for requests, panel in zip(columns, panels, strict=True):
        _fill(panel, result, requests)
    panels[0].invert_yaxis()  # the panels share it
    cores = ", ".join(map(str, result.cores))
    figure.suptitle(f"{result.machine.cpu}, cores {cores}")
    figure.savefig(path, dpi=150, format="png")
    return figure


def _fill(panel: Any, result: PeersResult, requests: str) -> None:
    names = list(result.tokens_per_s)
    medians = [result.tokens_per_s[name][requests] for name in names]
    spreads = [result.spread[name][requests] for name in names]
    below = [value - least for value, (least, _) in zip(medians, spreads, strict=True)]
    above = [most - value for value, (_, most) in zip(medians, spreads, strict=True)]
    colours = [THEIRS if name in result.pairs else OURS for name in names]
    bars = panel.barh(names, medians, xerr=(below, above), color=colours)
    panel.bar_label(bars, fmt="%.0f", padding=3)
    panel.set_xlabel("output tokens/s")
    panel.set_title(f"{requests} at once")
    panel.margins(x=0.15)

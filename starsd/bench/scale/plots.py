"""A result's curves as PNG files."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from starsd.bench.scale.result import Result, Row
from starsd.bench.scale.tables import counts, curve_row
from starsd.plan.star import STARS


def draw(result: Result, folder: Path) -> list[Path]:
    """Those for which there is data. Needs matplotlib (``peers.plot.check_installed``)."""
    figures: Any = importlib.import_module("matplotlib.figure")
    written = []
    for name, fill in _PLOTS.items():
        figure = figures.Figure(figsize=(7.0, 4.5), layout="constrained")
        axes = figure.subplots()
        if fill(axes, result):
            written.append(folder / f"{name}.png")
            figure.savefig(written[-1], dpi=150, format="png")
    return written


def _throughput(axes: Any, result: Result) -> bool:
    others = result.others
    if others:
        counts = [one.targets for one in others]
        axes.plot(counts, [one.plain for one in others], "k--", label="plain")
        axes.plot(counts, [one.one_more_plain for one in others], "k:", label="N + 1 plain")
        colocated = [one.colocated for one in others]
        axes.plot(counts, colocated, color="gray", label="co-located (computed)")
    drawn = _by_mode(axes, result, lambda row: row.expected)
    _mark_full(axes, result)
    return _labelled(axes, "tokens/s of all targets", drawn)


def _each(axes: Any, result: Result) -> bool:
    drawn = _by_mode(axes, result, lambda row: row.expected / row.targets)
    for one in result.others[:1]:
        axes.axhline(one.plain / one.targets, color="k", linestyle="--", label="plain")
    _mark_full(axes, result)
    return _labelled(axes, "tokens/s of a target", drawn)


def _idle(axes: Any, result: Result) -> bool:
    drawn = _by_mode(axes, result, lambda row: 100 * (1 - row.busy))
    axes.set_ylim(0, 100)
    _mark_full(axes, result)
    return _labelled(axes, "hub idle, %", drawn)


def _gaps(axes: Any, result: Result) -> bool:
    if not result.gaps:
        return False
    names = [f"{one.gap_ms:g}" for one in result.gaps]
    means = [one.mean_ms for one in result.gaps]
    axes.bar(names, means, yerr=[one.std_ms for one in result.gaps], capsize=4)
    axes.plot(names, [one.p99_ms for one in result.gaps], "kv", label="p99")
    axes.set_xlabel("gap before a round, ms")
    axes.set_ylabel("ms of a drafted token")
    axes.legend()
    return True


def _by_mode(axes: Any, result: Result, value: Callable[[Row], float]) -> bool:
    for mode in STARS:
        if rows := list(_rows(result, mode)):
            targets = [row.targets for row in rows]
            axes.plot(targets, [value(row) for row in rows], marker="o", label=str(mode))
    return bool(axes.lines)


def _rows(result: Result, mode: str) -> Iterator[Row]:
    for targets in counts(result):
        if (row := curve_row(result, mode, targets)) is not None:
            yield row


def _mark_full(axes: Any, result: Result) -> None:
    if result.full_predicted:
        axes.axvline(result.full_predicted, color="tab:red", alpha=0.4, label="N_full (fifo)")


def _labelled(axes: Any, what: str, drawn: bool) -> bool:
    axes.set_xlabel("targets")
    axes.set_ylabel(what)
    axes.set_title("emulated tier", loc="left", fontsize="small")
    if drawn:
        axes.legend()
    return drawn


_PLOTS: dict[str, Callable[[Any, Result], bool]] = {
    "throughput": _throughput,
    "per-target": _each,
    "hub-idle": _idle,
    "draft-gaps": _gaps,
}

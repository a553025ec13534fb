from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from starsd.bench.peers import plot
from starsd.errors import ConfigError
from tests.unit.bench_peers.test_result import made


def test_plot_needs_matplotlib_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        plot.check_installed()


def test_a_bar_for_each_server_in_a_panel_for_each_number(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.check_installed()
    file = tmp_path / "bars.png"
    figure = plot.draw(made(), file)
    assert file.read_bytes().startswith(b"\x89PNG")
    one, eight = figure.axes
    assert [bar.get_width() for bar in one.patches] == [30, 20, 90]
    assert [bar.get_width() for bar in eight.patches] == [100, 190, 270]
    names = [label.get_text() for label in one.get_yticklabels()]
    assert names == ["plain-bfloat16", "vllm", "llama"]
    colours = [bar.get_facecolor() for bar in one.patches]
    assert colours[0] != colours[1] == colours[2]

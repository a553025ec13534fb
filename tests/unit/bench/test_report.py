from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from starsd.bench import profile_result, record
from starsd.bench.report import report
from starsd.bench.speed_result import summarise
from starsd.errors import ConfigError
from tests.unit.bench.answers import COUNTS, MACHINE, trio
from tests.unit.bench.profiles import windows
from tests.unit.bench_draft.results import made as draft_made
from tests.unit.bench_engine.results import made as engine_made
from tests.unit.bench_peers.test_result import made

DATED = {**MACHINE, "date": "2026-11-30T00:00:00", "command": "starsd bench"}


def test_peers_as_their_table(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    record.write(path, "peers", made(), {"runs": []})
    text = report([path])
    assert text.startswith("## `starsd bench peers`, 20")
    assert f"raw data in [peers.json]({path.as_posix()})" in text
    assert "| vllm           | bfloat16  |" in text
    assert "- load average 0.1 before, 1.2 after" in text


def test_links_lead_from_a_folder_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record.write(Path("peers.json"), "peers", made(), {})
    assert "[peers.json](../peers.json)" in report([Path("peers.json")])


def test_speed_as_its_tables_with_their_titles(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    machine = {**DATED, "command": "/opt/x/starsd bench speed"}
    result = summarise(trio(10, 10, 20), COUNTS, {}, machine, batch_invariant=True)
    record.write(path, "speed", result, {"answers": []})
    text = report([path])
    assert "`starsd bench speed`; raw data" in text
    assert "Acceptance by position in the proposal:" in text
    assert "- star_over_plain 2.000" in text


def test_engine_and_profile(tmp_path: Path) -> None:
    engine, profile = tmp_path / "engine.json", tmp_path / "profile.json"
    record.write(engine, "engine", replace(engine_made(), machine=DATED), {})
    record.write(profile, "profile", profile_result.summarise(windows(), {}, DATED), {})
    text = report([engine, profile])
    assert "## `starsd bench engine`, 2026-11-30" in text
    assert "## `starsd bench profile`, 2026-11-30" in text
    assert "| part" in text


def test_drafts(tmp_path: Path) -> None:
    path = tmp_path / "draft.json"
    record.write(path, "draft", replace(draft_made(), machine=DATED), {})
    text = report([path])
    assert "Cost, chains right so far by position, tokens and speed of the better shape:" in text
    assert "| ngram | 0 |" in text


def test_files_in_their_order(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("b.json", "a.json")]
    for path in paths:
        record.write(path, "peers", made(), {})
    text = report(paths)
    assert text.index("b.json") < text.index("a.json")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"kind": "Whatever"}'])
def test_other_files_are_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"other\.json"):
        report([path])


def test_a_result_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    record.write(path, "peers", made(), {})
    raw = json.loads(path.read_text())
    del raw["tokens_per_s"]
    path.write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match="another version"):
        report([path])

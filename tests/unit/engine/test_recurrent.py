"""Models with recurrent state, against transformers' forward over the whole text."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BambaConfig,
    FalconH1Config,
    FalconMambaConfig,
    GraniteMoeHybridConfig,
    JambaConfig,
    KimiLinearConfig,
    Lfm2Config,
    Mamba2Config,
    MambaConfig,
    MiniMaxConfig,
    OlmoHybridConfig,
    PreTrainedConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
    RwkvConfig,
)

from starsd.engine.interface import Row, SlotState
from starsd.engine.recurrent import RecurrentRunner
from starsd.engine.support import RECURRENT
from starsd.errors import ConfigError, EngineError, UnsupportedModelError
from starsd.protocol.frames import Submit
from starsd.protocol.sampling import SamplingParams
from tests.identity.reference import Reference
from tests.ministar import MiniStar
from tests.unit.engine.helpers import chunked, make_runner, random_tokens
from tests.unit.engine.test_runner import SIZES

CLOSE = 2e-3
"""Logits here have a deviation of 0.5 to 1.7; a wrong state moves them by 0.07 and more."""
COUNT: dict[str, Any] = {"num_hidden_layers": 4}
BARE: dict[str, Any] = {
    **{key: SIZES[key] for key in ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")},
    "hidden_size": 64,
    "num_hidden_layers": 3,
}
MAMBA: dict[str, Any] = {
    **SIZES,
    "mamba_d_state": 8,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_chunk_size": 16,
}
LINEAR: dict[str, Any] = {
    **SIZES,
    **COUNT,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}

FAMILIES: dict[str, PreTrainedConfig] = {
    "mamba": MambaConfig(**BARE, state_size=8),
    "falcon_mamba": FalconMambaConfig(**BARE, state_size=8),
    "mamba2": Mamba2Config(
        **BARE, state_size=8, num_heads=8, head_dim=16, n_groups=2, chunk_size=16
    ),
    "rwkv": RwkvConfig(vocab_size=320, hidden_size=64, num_hidden_layers=3, context_length=256),
    "falcon_h1": FalconH1Config(**MAMBA, mamba_d_ssm=128, mamba_n_groups=1),
    "bamba": BambaConfig(**MAMBA, attn_layer_indices=[1]),
    "granitemoehybrid": GraniteMoeHybridConfig(
        **MAMBA,
        layer_types=["mamba", "attention"],
        shared_intermediate_size=64,
        num_local_experts=4,
        num_experts_per_tok=2,
    ),
    "jamba": JambaConfig(
        **{**SIZES, **COUNT},
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        mamba_d_state=8,
        mamba_dt_rank=4,
    ),
    "lfm2": Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]),
    "qwen3_next": Qwen3NextConfig(
        **LINEAR, **EXPERTS, num_experts=4, shared_expert_intermediate_size=32
    ),
    "qwen3_5_text": Qwen3_5TextConfig(**LINEAR),
    "olmo_hybrid": OlmoHybridConfig(**{**SIZES, **COUNT}),
    "minimax": MiniMaxConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, block_size=16),
    "kimi_linear": KimiLinearConfig(
        **{**SIZES, "num_key_value_heads": 8},
        **EXPERTS,
        layer_types=["linear_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse"],
        linear_head_dim=16,
        linear_num_heads=4,
        num_local_experts=4,
        kv_lora_rank=16,
        qk_rope_head_dim=16,
        v_head_dim=16,
        qk_nope_head_dim=16,
    ),
}
STATES = {
    **dict.fromkeys(("mamba", "falcon_mamba", "jamba"), SlotState.STEPS),
    **dict.fromkeys(("lfm2", "qwen3_5_text"), SlotState.UNDOES),
}
SAMPLED = SamplingParams(seed=5, temperature=0.8, top_p=0.9, prompt_len=30)
GREEDY = SamplingParams(seed=1, temperature=0.0, prompt_len=30)


@dataclass(frozen=True)
class Made:
    """A random model: its folder, a runner, transformers' own forward over a whole text."""

    folder: Path
    runner: RecurrentRunner
    plain: Reference


Make = Callable[[str], Made]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Models by family, each made once."""

    @functools.cache
    def made(family: str) -> Made:
        folder = save(FAMILIES[family], tmp_path_factory.mktemp(family))
        runner: Any = make_runner(folder)
        return Made(folder, runner, Reference(folder))

    return made


def save(config: PreTrainedConfig, folder: Path) -> Path:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    return folder


each_family = pytest.mark.parametrize("family", FAMILIES)


def serve(
    runner: RecurrentRunner, prompts: list[list[int]], params: SamplingParams
) -> list[list[int]]:
    """Answers of ten tokens each."""
    requests = [
        Submit(id=f"r{number}", prompt=prompt, sampling=params, max_tokens=10, eos=())
        for number, prompt in enumerate(prompts)
    ]
    with MiniStar([runner], target={"drafting": False, "prefill_chunk": 16}) as star:
        return [answer.tokens for answer in star.run(requests)]


def test_what_is_served_is_what_is_tested() -> None:
    assert set(FAMILIES) == RECURRENT


@each_family
@pytest.mark.parametrize(
    "sizes", [[70], [1] * 70, [40] + [1] * 30, [20, 3, 1, 46]], ids=["whole", "ones", "then", "cut"]
)
def test_rows_match_a_plain_forward(make: Make, family: str, sizes: list[int]) -> None:
    model, text = make(family), random_tokens(70, 1)
    found = chunked(model.runner, 1, text, sizes)
    np.testing.assert_allclose(found, model.plain.logits(text), atol=CLOSE)


@each_family
def test_interleaved_texts_and_reused_slots(make: Make, family: str) -> None:
    model = make(family)
    texts = {slot: random_tokens(12, 10 + slot) for slot in (0, 1, 4)}
    model.runner.forward([Row(slot, random_tokens(30, slot), 0, want=0) for slot in texts])
    parts: dict[int, list[Any]] = {slot: [] for slot in texts}
    for start in range(0, 12, 4):
        rows = [Row(slot, text[start : start + 4], start, want=3) for slot, text in texts.items()]
        for row, logits in zip(rows, model.runner.forward(rows), strict=True):
            parts[row.slot].append(logits)
    for slot, text in texts.items():
        exact = model.plain.logits(text).reshape(3, 4, -1)[:, 1:].reshape(9, -1)
        np.testing.assert_allclose(np.concatenate(parts[slot]), exact, atol=CLOSE)


@each_family
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_answers_are_those_of_the_reference(
    make: Make, family: str, params: SamplingParams
) -> None:
    """Through the whole target, eight requests in six slots."""
    model = make(family)
    prompts = [random_tokens(30, seed) for seed in range(8)]
    answers = serve(model.runner, prompts, params)
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer) == 10
        assert model.plain.judge(prompt, answer, params) in (0, 1)


@each_family
def test_state_and_family(make: Make, family: str) -> None:
    assert make(family).runner.state is STATES.get(family, SlotState.GROWS)


@pytest.mark.parametrize("family", ["mamba2", "falcon_h1", "lfm2"])
def test_batch_invariant_mode_takes_prompts_whole(make: Make, family: str) -> None:
    """Then a row's bits depend on its own text alone."""
    runner: Any = make_runner(make(family).folder, batch_invariant=True)
    assert runner.state is SlotState.STEPS
    text, bits = random_tokens(40, 2), []
    for others in (0, 3):
        rows = [Row(slot, random_tokens(20, slot), 0) for slot in range(others)]
        first = runner.forward([*rows, Row(5, text[:20], 0)])[-1]
        later = [runner.forward([*rows, Row(5, text[at : at + 1], at)])[-1] for at in range(20, 40)]
        bits.append(np.concatenate([first, *later]))
    assert np.array_equal(bits[0], bits[1])


def test_hidden_states_are_refused(make: Make) -> None:
    runner = make("mamba").runner
    runner.tap(())
    with pytest.raises(ConfigError, match="a recurrent model gives none"):
        runner.tap((1,))


def test_nothing_rolls_back(make: Make) -> None:
    model, text = make("falcon_h1"), random_tokens(20, 3)
    model.runner.forward([Row(2, text[:10], 0, want=0)])
    for start in (9, 11):
        with pytest.raises(EngineError, match="goes on at 10 to 10 or"):
            model.runner.forward([Row(1, text, 0), Row(2, text[start:], start)])
    with pytest.raises(EngineError, match="a tree"):
        model.runner.forward([Row(2, [1, 2], 10, parents=[-1, -1])])
    found = model.runner.forward([Row(2, text[10:], 10, want=10)])[0]
    np.testing.assert_allclose(found, model.plain.logits(text)[10:], atol=CLOSE)


@pytest.mark.parametrize("family", ["lfm2", "qwen3_5_text"])
@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
def test_e3_rejected_proposals_leave_no_trace(make: Make, family: str, right: float) -> None:
    """Greedy decoding with proposals of four of which some prefix is right, the first one behind
    the last chunk of the prompt; every logit is that of a plain forward."""
    model, rng = make(family), np.random.default_rng(7)
    text, cached = random_tokens(30, 9), 20
    model.runner.forward([Row(3, text[:20], 0, want=0)])
    exact = model.plain.generate(text, GREEDY, 40)
    while len(text) < 60:
        count = 4 if rng.random() < right else int(rng.integers(0, 4)) if right else 0
        rest = exact[len(text) - 30 :]
        proposal = [*rest[:count], *rng.integers(0, 320, 4).tolist()][:4]
        row = Row(3, [*text[cached:], *proposal], cached, want=5)
        found = model.runner.forward([row])[0]
        whole = model.plain.logits([*text, *proposal])[-5:]
        np.testing.assert_allclose(found, whole, atol=CLOSE)
        cached = len(text)
        for scores, proposed in zip(found, [*proposal, -1], strict=True):
            text.append(int(scores.argmax()))
            if text[-1] != proposed:
                break
            cached += 1
    assert text[30:60] == exact[:30]


@pytest.mark.parametrize("family", ["lfm2", "qwen3_5_text"])
def test_drafting_for_what_can_be_undone(make: Make, family: str, tiny_model: Path) -> None:
    """A draft that knows nothing: nearly every proposal is rejected, and the text is the same."""
    model = make(family)
    prompts = [random_tokens(30, seed) for seed in range(8)]
    requests = [
        Submit(id=f"r{number}", prompt=prompt, sampling=SAMPLED, max_tokens=20, eos=())
        for number, prompt in enumerate(prompts)
    ]
    with MiniStar([model.runner], make_runner(tiny_model)) as star:
        answers = star.run(requests)
    assert sum(answer.stats.proposed for answer in answers) > 100
    for prompt, answer in zip(prompts, answers, strict=True):
        assert len(answer.tokens) == 20
        assert model.plain.judge(prompt, answer.tokens, SAMPLED) in (0, 1)


def test_only_the_last_row_can_be_undone(make: Make) -> None:
    model, text = make("lfm2"), random_tokens(30, 5)
    model.runner.forward([Row(0, text[:10], 0)])
    with pytest.raises(EngineError, match="goes on at 10 to 10 or"):
        model.runner.forward([Row(0, text[9:], 9)])
    model.runner.forward([Row(0, text[10:20], 10, want=2)])
    with pytest.raises(EngineError, match="goes on at 10 to 20 or"):
        model.runner.forward([Row(0, text[9:], 9)])
    found = model.runner.forward([Row(0, text[10:], 10, want=20)])[0]
    np.testing.assert_allclose(found, model.plain.logits(text)[10:], atol=CLOSE)


def test_a_failed_row_leaves_no_half_state(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = make("mamba2"), random_tokens(20, 4)
    model.runner.forward([Row(0, text[:10], 0)])
    with monkeypatch.context() as patch:
        patch.setattr(torch, "cat", out_of_memory)
        with pytest.raises(EngineError, match="out of memory"):
            model.runner.forward([Row(0, text[10:], 10)])
    with pytest.raises(EngineError, match="it goes on at 0 to 0"):
        model.runner.forward([Row(0, text[10:], 10)])
    found = model.runner.forward([Row(0, text, 0, want=20)])[0]
    np.testing.assert_allclose(found, model.plain.logits(text), atol=CLOSE)


def out_of_memory(*_: object, **__: object) -> None:
    raise RuntimeError("out of memory")


def test_memory_of_a_slot(make: Make) -> None:
    """A pure recurrence stays as large as it is; attention beside it grows."""
    for family, grows in (("mamba", False), ("rwkv", False), ("falcon_h1", True)):
        runner: Any = make_runner(make(family).folder)
        small = runner.cache_bytes
        runner.forward([Row(0, random_tokens(100, 1), 0)])
        assert small > 0
        assert (runner.cache_bytes > small) is grows


def test_quantised_is_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="'mamba'"):
        make_runner(make("mamba").folder, quantize="int8", cache_dir=tmp_path)

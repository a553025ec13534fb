from __future__ import annotations

from pathlib import Path

import pytest
from transformers import (
    GPTNeoXConfig,
    Llama4TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    RecurrentGemmaConfig,
    T5Config,
    Zamba2Config,
    xLSTMConfig,
)

from starsd.engine.support import context_length
from starsd.errors import UnsupportedModelError
from tests.unit.engine.helpers import make_runner

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "original_max_position_embeddings": 128,
    "short_factor": [1.0] * 16,
    "long_factor": [2.0] * 16,
    "factor": 4.0,
}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (Zamba2Config(), "zamba2.*: recurrent; besides"),
        (RecurrentGemmaConfig(), "recurrent_gemma.*: recurrent"),
        (xLSTMConfig(), "xlstm.*: recurrent"),
        (Llama4TextConfig(), "llama4_text.*layers of type chunked_attention; besides"),
        (T5Config(), "t5"),
        (
            LlamaConfig(hidden_size=64, num_attention_heads=2, rope_parameters=LONGROPE),
            "llama.*longrope.*STARSD_MAX_LENGTH to 128",
        ),
    ],
    ids=["zamba2", "recurrent_gemma", "xlstm", "llama4", "t5", "longrope"],
)
def test_refused_by_name_before_any_weights(
    tmp_path: Path, config: PreTrainedConfig, said: str
) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match=said):
        make_runner(tmp_path)


def test_unknown_type(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "perpetuum"}')
    with pytest.raises(UnsupportedModelError, match="perpetuum"):
        make_runner(tmp_path)


def test_context_caps_the_setting() -> None:
    config = GPTNeoXConfig(max_position_embeddings=100)
    assert context_length(config, 2048) == 100
    assert context_length(config, 64) == 64

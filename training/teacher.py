"""The target as teacher: its features and its distribution over given text, by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from starsd.engine.linears import has_bfloat16
from starsd.engine.native.architecture import HeadArchitecture, described
from starsd.engine.native.rope import KINDS
from starsd.errors import ConfigError


class Teacher:
    """``taps`` number the layers whose outputs are the features, as in transformers'
    ``hidden_states``: 0 is the embedding, the last one is normalised."""

    def __init__(self, folder: Path, device: str, taps: tuple[int, ...] | None = None) -> None:
        dtype = torch.bfloat16 if has_bfloat16(torch.device(device)) else torch.float32
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        self.model = loaded.to(device).eval().requires_grad_(False)
        self.config = self.model.config.get_text_config()
        layers = self.config.num_hidden_layers
        self.taps = taps or (layers // 3, layers * 2 // 3, layers)

    @property
    def embedding(self) -> Tensor:
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    @property
    def head(self) -> Tensor:
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight

    @property
    def layers(self) -> Any:
        return self.model.model.layers

    @torch.no_grad()
    def features(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Of ``tokens [b, t]``, ``lengths [b]`` of which count: features
        ``[b, t, taps * hidden]``, and the final states from which ``logits`` come."""
        seen = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        out = self.model.model(
            tokens, attention_mask=seen.long(), output_hidden_states=True, use_cache=False
        )
        features = torch.cat([out.hidden_states[tap] for tap in self.taps], dim=-1)
        return features, out.last_hidden_state

    def head_architecture(self, draft_vocab: int) -> HeadArchitecture:
        """Of a draft head that is like one of its layers, as Llama has them. Raises ConfigError."""
        try:
            of = described({**self.config.to_dict(), "model_type": "llama"})
        except (KeyError, TypeError) as error:
            raise ConfigError(f"no head for this target: its config.json lacks {error}") from error
        plain = {
            "rope_type": "default",
            "rope_theta": of.rope_parameters.get("rope_theta", 10_000.0),
        }
        own_way = of.rope_parameters["rope_type"] in KINDS
        changes: dict[str, Any] = {
            "num_hidden_layers": 1,
            "vocab_size": len(self.head),
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "qkv_bias": False,
            "out_bias": False,
            "mlp_bias": False,
            "rope_parameters": of.rope_parameters if own_way else plain,
            "sliding_window": None,
            "layer_types": None,
        }
        return HeadArchitecture(
            **vars(of) | changes,
            draft_vocab_size=draft_vocab,
            features=len(self.taps) * of.hidden_size,
            fc_bias=False,
            norm_before_residual=False,
        )

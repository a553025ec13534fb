"""The target as teacher: its features and its distribution over given text, by transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from starsd.engine.native.architecture import HeadArchitecture, described
from starsd.engine.native.rope import KINDS
from starsd.errors import ConfigError
from training.kept import Kept
from training.precision import training_dtype

FAVOURITE = 2
"""Columns of bfloat16 whose bits are one int32."""
CHUNK = 128


@dataclass(frozen=True)
class Lesson:
    """What the target makes of a batch: ``features [b, t, taps * hidden]``, the final ``states
    [b, t, hidden]`` from which logits come, and the token it likes best, ``favourites [b, t]``.
    Zeros where nothing counts."""

    features: Tensor
    states: Tensor
    favourites: Tensor


class Teacher:
    """``taps`` number the layers whose outputs are the features, as in transformers'
    ``hidden_states``: 0 is the embedding, the last one is normalised. What it said of a text is
    ``kept``, if there is room."""

    def __init__(self, folder: Path, device: str, taps: tuple[int, ...] | None = None) -> None:
        self.dtype = training_dtype(torch.device(device))
        self.kept: Kept | None = None
        loaded: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=self.dtype)
        self.model = loaded.to(device).eval().requires_grad_(False)
        self.config = self.model.config.get_text_config()
        layers = self.config.num_hidden_layers
        self.taps = taps or (layers // 3, layers * 2 // 3, layers)

    @property
    def _ends_apart(self) -> bool:
        return self.taps[-1] != int(self.config.num_hidden_layers)

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

    def lesson(self, tokens: Tensor, lengths: Tensor) -> Lesson:
        """Of ``tokens [b, t]``, ``lengths [b]`` of which count."""
        texts = [row[:size] for row, size in zip(tokens.cpu(), lengths.tolist(), strict=True)]
        rows = pad_sequence(self._rows(texts), batch_first=True).to(tokens.device)
        favourites = rows[..., -FAVOURITE:].contiguous().view(torch.int32)[..., 0].long()
        floats, hidden = rows[..., :-FAVOURITE].to(self.dtype), self.head.shape[1]
        return Lesson(floats[..., : len(self.taps) * hidden], floats[..., -hidden:], favourites)

    def _rows(self, texts: list[Tensor]) -> list[Tensor]:
        """Of each text ``[n, width]``, in bfloat16 on the CPU: taps, final states unless the last
        tap is that, favourites."""
        width = (len(self.taps) + self._ends_apart) * self.head.shape[1] + FAVOURITE
        held = [self.kept.get(text, width) if self.kept else None for text in texts]
        new = [text for text, rows in zip(texts, held, strict=True) if rows is None]
        computed = iter(self._computed(new) if new else [])
        return [next(computed) if rows is None else rows for rows in held]

    @torch.no_grad()
    def _computed(self, texts: list[Tensor]) -> list[Tensor]:
        tokens = pad_sequence(texts, batch_first=True).to(self.head.device)
        lengths = torch.tensor([len(text) for text in texts], device=tokens.device)
        seen = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        out = self.model.model(
            tokens, attention_mask=seen.long(), output_hidden_states=True, use_cache=False
        )
        states = out.last_hidden_state
        parts = [*(out.hidden_states[tap] for tap in self.taps), *[states] * self._ends_apart]
        likes = [(part @ self.head.T).argmax(-1) for part in states.flatten(0, 1).split(CHUNK)]
        favourites = torch.cat(likes).view(*tokens.shape, 1).int().view(torch.bfloat16)
        rows = torch.cat([*(part.bfloat16() for part in parts), favourites], dim=-1).cpu()
        found = [one[: len(text)] for one, text in zip(rows, texts, strict=True)]
        if self.kept:
            for text, one in zip(texts, found, strict=True):
                self.kept.put(text, one)
        return found

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

"""A language model of few layers, cut out of the target: the general kind of draft."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from training.student import Student
from training.teacher import Teacher


def _cut(config: Any, kept: tuple[int, ...]) -> Any:
    """What it lists layer by layer (their kinds of attention, say) for those ``kept``."""
    own = copy.deepcopy(config)
    for name, value in config.to_dict().items():
        if "layer" in name and isinstance(value, list):
            setattr(own, name, [value[layer] for layer in kept])
    own.num_hidden_layers = len(kept)
    return own


class PrunedModel(Student):
    """Keeps some layers and the last norm of the target; embedding and head stay the target's.

    ``steps`` is 1: it sees nothing but tokens, so that later positions are like the first.
    """

    steps = 1

    def __init__(self, teacher: Teacher, kept: tuple[int, ...]) -> None:
        super().__init__()
        whole: Any = teacher.model
        self.model = copy.copy(whole.model)
        self.model._modules = dict(whole.model._modules)
        self.model.layers = torch.nn.ModuleList()
        for index, layer in enumerate(kept):
            own = copy.deepcopy(whole.model.layers[layer]).float().requires_grad_(True)
            own.self_attn.layer_idx = index
            self.model.layers.append(own)
        self.model.norm = copy.deepcopy(whole.model.norm).float().requires_grad_(True)
        self.model.config = _cut(whole.model.config, kept)
        self._head = teacher.head
        vocabulary = torch.arange(len(teacher.head), device=teacher.head.device)
        self.register_buffer("draft_ids", vocabulary, persistent=False)

    @property
    def head(self) -> Tensor:
        return self._head

    def drafted(self, features: Tensor, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        seen = torch.arange(tokens.shape[1] - 1, device=tokens.device) < lengths[:, None]
        out = self.model(tokens[:, :-1], attention_mask=seen.long(), use_cache=False)
        return [out.last_hidden_state[:, 1:]]

    def checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """As transformers would save it."""
        config = self.model.config
        weights = {f"model.{name}": one for name, one in self.model.state_dict().items()}
        if not config.tie_word_embeddings:
            weights["lm_head.weight"] = self._head
        facts = config.to_diff_dict() | {"dtype": "bfloat16"}
        return {name: one.to(torch.bfloat16) for name, one in weights.items()}, facts

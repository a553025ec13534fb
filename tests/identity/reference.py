"""The independent reference: a plain sampler over a transformers forward without any cache.

Shares the noise and the pipeline of ``starsd.sampling`` with the engine (they have tests of their
own), and nothing else: no runner, no slots, no batching, no attention of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

from starsd.protocol.sampling import SamplingParams
from starsd.sampling.neartie import near_tie
from starsd.sampling.sampler import sample


class Reference:
    """One sequence at a time, everything recomputed for every token."""

    def __init__(self, folder: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        )
        self._model.train(False)

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """``[len(tokens), vocabulary]``; one teacher-forced forward."""
        ids = torch.tensor([list(tokens)])
        output = self._model(input_ids=ids, use_cache=False)
        logits: npt.NDArray[np.float32] = output.logits[0].numpy()
        return logits

    def generate(self, prompt: Sequence[int], params: SamplingParams, count: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(sample(self.logits(tokens)[-1], params, len(tokens), tokens))
        return tokens[len(prompt) :]

    def judge(self, prompt: Sequence[int], answer: Sequence[int], params: SamplingParams) -> int:
        """Near ties in an answer, each token judged after its own prefix; -1 if one is wrong."""
        text = [*prompt, *answer]
        ties = 0
        logits = self.logits(text[:-1])[len(prompt) - 1 :]
        for position, scores in enumerate(logits, start=len(prompt)):
            own = sample(scores, params, position, text[:position])
            if own != text[position]:
                if not near_tie(scores, params, position, text[:position], own, text[position]):
                    return -1
                ties += 1
        return ties

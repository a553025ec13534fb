"""Dialogues sampled by vLLM where that is installed: a turn of each at a time."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from starsd.errors import ConfigError
from training.dialogues import Speaker, Talk
from training.frame import Frame
from training.shards import Dialogue


class VllmSpeaker(Speaker):
    """Its noise is vLLM's own: the same dialogues come again only on the same machine."""

    def __init__(self, model: str, frame: Frame, eos: frozenset[int], **options: Any) -> None:
        """``options``: the rest of ``Speaker``'s.

        Raises:
            ConfigError: vLLM is not installed.
        """
        if importlib.util.find_spec("vllm") is None:
            raise ConfigError("--sampler vllm: it is not installed here (pip install vllm)")
        self._vllm: Any = importlib.import_module("vllm")
        length = options["max_length"]
        self._engine = self._vllm.LLM(model=model, dtype="bfloat16", max_model_len=length)
        super().__init__(frame, eos, **options)

    def step(self) -> list[Dialogue]:
        talks = list(self._talks)
        prompts = [{"prompt_token_ids": talk.tokens} for talk in talks]
        said = self._engine.generate(
            prompts, [self._params(talk) for talk in talks], use_tqdm=False
        )
        ended = []
        for talk, output in zip(talks, said, strict=True):
            for token in output.outputs[0].token_ids:
                if (over := self._hear(talk, token)) is not None:
                    ended += over
                    break
        return ended

    def _params(self, talk: Talk) -> Any:
        room = self._max_length - len(talk.tokens)
        return self._vllm.SamplingParams(
            temperature=talk.sampling.temperature,
            seed=talk.seed % 2**31 + len(talk.tokens),
            max_tokens=max(1, min(talk.turn_left, room)),
            stop_token_ids=sorted(self._eos),
            detokenize=False,
        )

"""The model whose answers never end of themselves, for ``STARSD_SCRIPTED``: a batch stays whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starsd.engine.interface import Runner, Tokenizer
from starsd.engine.loading import PretrainedModel
from starsd.settings.model import ModelSettings

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class EndlessModel:
    """``starsd.engine.interface.Model``: the one that the settings name, but for its end."""

    def __init__(self, settings: ModelSettings) -> None:
        self._model = PretrainedModel(settings)

    def runner(self) -> Runner:
        return self._model.runner()

    def tokenizer(self) -> EndlessTokenizer:
        return EndlessTokenizer(self._model.tokenizer())

    def vocabulary(self) -> str:
        return self._model.vocabulary()

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        return self._model.grammar_tokenizer(vocab_size)


class EndlessTokenizer:
    """No token ends an answer; all else is the tokenizer's own."""

    eos_ids: tuple[int, ...] = ()

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

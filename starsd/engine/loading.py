"""From settings to a ``Model``: the real one, or a scripted class of the tests.

Nothing here imports torch until a runner of torch is asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from starsd.engine.checkpoint import resolve_checkpoint
from starsd.engine.drafts import DraftSpec, choose_draft, parse_draft
from starsd.engine.interface import Model, Runner, SlotState
from starsd.engine.native.loading import load_native
from starsd.engine.native.runner import NativeRunner
from starsd.engine.native.source import Source
from starsd.errors import ConfigError
from starsd.settings.draft import DraftSettings
from starsd.settings.model import ModelSettings

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from starsd.engine.recurrent import RecurrentRunner
    from starsd.engine.runner import TorchRunner
    from starsd.engine.tokenizer import HfTokenizer

log = structlog.get_logger()


class PretrainedModel:
    """``starsd.engine.interface.Model`` over a checkpoint, of which is fetched or converted what is
    asked for: a hub that drafts with another model wants nothing of its target but the tokenizer.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings

    @property
    def folder(self) -> Path:
        """With the weights."""
        return resolve_checkpoint(self._settings)

    def runner(self) -> TorchRunner | NativeRunner | RecurrentRunner:
        return load_runner(self.folder, self._settings)

    def tokenizer(self) -> HfTokenizer:
        from starsd.engine.tokenizer import HfTokenizer  # transformers takes a second to import

        return HfTokenizer(self._text_folder)

    def vocabulary(self) -> str:
        from starsd.engine.vocabulary import vocabulary_fingerprint

        return vocabulary_fingerprint(self._text_folder)

    def grammar_tokenizer(self, vocab_size: int) -> LLTokenizer:
        from starsd.engine.vocabulary import grammar_tokenizer

        return grammar_tokenizer(self._text_folder, vocab_size)

    @property
    def _text_folder(self) -> Path:
        return resolve_checkpoint(self._settings, weights=None)


def load_model(settings: ModelSettings) -> Model:
    """The model that the settings name.

    Raises:
        ConfigError: ``scripted`` names no class, or (from its methods) the model cannot be found or
            fetched.
        UnsupportedModelError: (from ``runner()``) an architecture that the engine refuses.
    """
    if settings.scripted:
        return _scripted(settings)
    return PretrainedModel(settings)


def load_runner(
    folder: Path, settings: ModelSettings, spec: DraftSpec | None = None
) -> TorchRunner | NativeRunner | RecurrentRunner:
    """The model in ``folder``, changed as ``spec`` says, in compiled code or in torch.

    Raises:
        ConfigError: weights that do not load, a cache that does not fit, or (quantised) no C
            compiler.
        UnsupportedModelError: an architecture that the engine refuses.
    """
    chosen = spec or DraftSpec()
    runner = _native(folder, settings, chosen) or _torch(folder, settings, chosen)
    log.info(
        "model loaded",
        revision=runner.revision,
        slots=runner.slots,
        max_length=runner.max_length,
        kv_cache_mb=round(runner.cache_bytes / 1e6),
        compiled=isinstance(runner, NativeRunner),
    )
    return runner


def _native(folder: Path, settings: ModelSettings, spec: DraftSpec) -> NativeRunner | None:
    def derived() -> Source:
        from starsd.engine.pretrained import load_weights

        return load_weights(folder, settings, spec)

    return load_native(folder, settings, spec, derived)


def _torch(folder: Path, settings: ModelSettings, spec: DraftSpec) -> TorchRunner | RecurrentRunner:
    from starsd.engine.pretrained import load_runner

    return load_runner(folder, settings, spec)


def load_drafter_runner(settings: DraftSettings) -> Runner:
    """The runner of the hub's drafter: the ``draft`` setting applied to the target's model.

    Raises:
        ConfigError: a draft setting that cannot work, besides what ``load_model`` raises.
    """
    runner = _drafter_runner(settings)
    if runner.state is not SlotState.ROLLS_BACK:
        raise ConfigError(
            f"STARSD_DRAFT={settings.draft!r}: a draft must roll back to what the target "
            "accepted, and this model's state cannot; want one with attention only, or no draft "
            "(starsd up --draft none)",
            param="STARSD_DRAFT",
        )
    return runner


def _drafter_runner(settings: DraftSettings) -> Runner:
    if settings.scripted:
        return _scripted(settings).runner()
    spec = parse_draft(choose_draft(settings.draft, settings.model))
    revision = settings.draft_revision if spec.checkpoint else None
    return load_runner(resolve_checkpoint(settings, spec.checkpoint, revision), settings, spec)


def _scripted(settings: ModelSettings) -> Model:
    module_name, _, class_name = settings.scripted.partition(":")
    try:
        cls = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"STARSD_SCRIPTED={settings.scripted!r}: want module:Class ({error})",
            param="STARSD_SCRIPTED",
        ) from error
    model: Model = cls(settings)
    return model

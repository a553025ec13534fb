"""From settings to a ``Model``: the real one, or a scripted class of the tests.

Nothing here imports torch until a runner is asked for, so a front can load its tokenizer alone.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from starsd.engine.checkpoint import resolve_checkpoint
from starsd.engine.drafts import parse_draft
from starsd.engine.interface import Model, Runner
from starsd.errors import ConfigError
from starsd.settings import DraftSettings, ModelSettings

if TYPE_CHECKING:
    from starsd.engine.native.runner import NativeRunner
    from starsd.engine.runner import TorchRunner
    from starsd.engine.tokenizer import HfTokenizer


class PretrainedModel:
    """``starsd.engine.interface.Model`` over a checkpoint; fetched or converted on construction."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._folder = resolve_checkpoint(settings)

    @property
    def folder(self) -> Path:
        return self._folder

    def runner(self) -> TorchRunner | NativeRunner:
        from starsd.engine.pretrained import load_runner

        return load_runner(self._folder, self._settings)

    def tokenizer(self) -> HfTokenizer:
        from starsd.engine.tokenizer import HfTokenizer  # transformers takes a second to import

        return HfTokenizer(self._folder)


def load_model(settings: ModelSettings) -> Model:
    """The model that the settings name.

    Raises:
        ConfigError: it cannot be found or fetched, or ``scripted`` names no class.
        UnsupportedModelError: (from ``runner()``) its state cannot be rolled back.
    """
    if settings.scripted:
        return _scripted(settings)
    return PretrainedModel(settings)


def load_drafter_runner(settings: DraftSettings) -> Runner:
    """The runner of the hub's drafter: the ``draft`` setting applied to the target's model.

    Raises:
        ConfigError: a draft setting that cannot work, besides what ``load_model`` raises.
    """
    spec = parse_draft(settings.draft)
    if settings.scripted:
        return _scripted(settings).runner()
    from starsd.engine.pretrained import load_runner

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

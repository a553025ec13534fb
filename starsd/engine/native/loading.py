"""A checkpoint folder to a runner of compiled code, without torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import structlog

from starsd.compiler import find_compiler, library
from starsd.engine.checkpoint import model_fingerprint, weights_files, weights_revision
from starsd.engine.drafts import DraftSpec
from starsd.engine.native.architecture import Architecture, read_architecture
from starsd.engine.native.decoder import ROUNDING, SOURCE, NativeDecoder, arithmetic
from starsd.engine.native.packing import fits
from starsd.engine.native.runner import NativeRunner
from starsd.engine.native.source import Checkpoint, Source
from starsd.engine.native.store import Arrays, Store, Weights
from starsd.engine.support import check_compiled, context_length
from starsd.errors import ConfigError, StarsdError
from starsd.settings.model import ModelSettings

log = structlog.get_logger()

_BRAIN = ("auto", "bfloat16")
_SLOW = "portable"
"""Arithmetic without wide vectors; torch's own code may have them."""

Derived = Callable[[], Source]
"""Weights that are not as they lie in the folder, from torch."""


def load_native(
    folder: Path, settings: ModelSettings, spec: DraftSpec, derived: Derived
) -> NativeRunner | None:
    """The model in ``folder``, changed as ``spec`` says, with its KV cache allocated; None: torch
    is to compute it.

    Raises:
        ConfigError: no C compiler (if quantised), no room for packed weights, too little KV memory.
        UnsupportedModelError: an architecture that the engine refuses, or (if quantised) one that
            the compiled decoder does not know.
    """
    whole = _architecture(folder, settings)
    if whole is None:
        return None
    compiled = library(settings.cache_dir, SOURCE)
    if prefers_float32(settings, compiled):
        return None
    of = whole if spec.layers is None else whole.first(spec.layers)
    max_length = context_length(of, settings.max_length)
    decoder = NativeDecoder(
        compiled,
        Weights(of, bits_of(settings), _arrays(folder, settings, spec, whole, derived)),
        slots=settings.max_sequences,
        max_length=max_length,
        threads=settings.threads,
    )
    revision = weights_revision(folder) + spec.suffix
    sums = f"{arithmetic(compiled)}-{ROUNDING}"
    return NativeRunner(
        decoder,
        slots=settings.max_sequences,
        max_length=max_length,
        kv_memory=settings.kv_memory,
        revision=revision,
        fingerprint=model_fingerprint(revision, _precision(settings), sums),
    )


def wants_native(settings: ModelSettings) -> bool:
    """Whether compiled code is to compute a model if it can."""
    wanted = settings.compiled and settings.device == "cpu" and settings.dtype in _BRAIN
    return settings.quantize != "none" or wanted


def prefers_float32(settings: ModelSettings, compiled: ctypes.CDLL) -> bool:
    """Whether the choice is ours, and torch's float32 faster than compiled bfloat16."""
    open_choice = settings.dtype == "auto" and settings.quantize == "none"
    return open_choice and arithmetic(compiled) == _SLOW


def _architecture(folder: Path, settings: ModelSettings) -> Architecture | None:
    if not wants_native(settings):
        return None
    try:
        of = read_architecture(folder)
        check_compiled(of, context_length(of, settings.max_length))
        find_compiler()
    except StarsdError as error:
        if settings.quantize != "none":
            raise
        say = log.info if settings.dtype == "auto" else log.warning
        say("torch computes, not compiled code", reason=error.message)
        return None
    return of


def _precision(settings: ModelSettings) -> str:
    return "bfloat16" if settings.quantize == "none" else settings.quantize


def bits_of(settings: ModelSettings) -> int:
    """Of the matrices."""
    return 16 if settings.quantize == "none" else int(settings.quantize.removeprefix("int"))


def _arrays(
    folder: Path, settings: ModelSettings, spec: DraftSpec, of: Architecture, derived: Derived
) -> Arrays:
    """A draft of the first layers shares the whole model's."""

    def source() -> Source:
        own = None if spec.noise else _own(folder, of)
        return derived() if own is None else own

    store = Store(
        settings.cache_dir.expanduser() / "native",
        weights_revision(folder) + (spec.suffix if spec.noise else ""),
        tuple(weights_files(folder)),
        bits_of(settings),
    )
    return store.load(of, source)


def _own(folder: Path, of: Architecture) -> Source | None:
    """None: transformers may make sense of these weights, or say what is wrong with them."""
    try:
        found = Checkpoint(folder)
    except ConfigError:
        return None
    return found if fits(of, found) else None

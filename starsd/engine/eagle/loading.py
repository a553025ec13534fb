"""A draft head's checkpoint to its runner."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from starsd.compiler import find_compiler, library
from starsd.engine.checkpoint import resolve_checkpoint, weights_files
from starsd.engine.drafts import choose_draft, parse_draft
from starsd.engine.eagle.checkpoint import Head, is_head, read_head
from starsd.engine.eagle.native_head import NativeHead
from starsd.engine.native.architecture import HeadArchitecture, faults
from starsd.engine.native.decoder import SOURCE
from starsd.engine.native.head import HeadDecoder
from starsd.engine.native.loading import bits_of, prefers_float32, wants_native
from starsd.engine.native.store import Store
from starsd.errors import ConfigError, StarsdError, UnsupportedModelError
from starsd.settings.draft import DraftSettings

if TYPE_CHECKING:
    from starsd.engine.eagle.torch_head import TorchHead

log = structlog.get_logger()

AUTO_BITS = 8


def head_folder(settings: DraftSettings) -> Path | None:
    """Of the draft head that the ``draft`` setting names; None: it names a language model.

    Raises:
        ConfigError: there is no such checkpoint, or the hub cannot be reached.
    """
    if settings.scripted:
        return None
    spec = parse_draft(choose_draft(settings.draft, settings.model))
    if spec.checkpoint is None:
        return None
    folder = _resolve(settings, spec.checkpoint)
    return folder if is_head(folder) else None


def load_head(settings: DraftSettings, folder: Path) -> NativeHead | TorchHead:
    """The head in ``folder`` for the target that the settings name, in compiled code or in torch.

    Raises:
        ConfigError: weights that do not fit its config or the target, too little KV memory, or
            (quantised) no C compiler.
        UnsupportedModelError: (quantised) a head that compiled code does not know.
    """
    target = resolve_checkpoint(settings)
    head = read_head(folder, target)
    runner = _native(settings, head, folder, target) or _torch(settings, head)
    log.info(
        "draft head loaded",
        revision=runner.revision,
        reads=runner.layers,
        slots=runner.slots,
        max_length=runner.max_length,
        vocabulary=len(runner.draft_ids),
        compiled=isinstance(runner, NativeHead),
        bits=_bits(settings) if isinstance(runner, NativeHead) else None,
    )
    return runner


def _resolve(settings: DraftSettings, name: str) -> Path:
    """Some heads are only published in torch's own format."""
    try:
        return resolve_checkpoint(settings, name, settings.draft_revision)
    except ConfigError as error:
        try:
            return resolve_checkpoint(settings, name, settings.draft_revision, weights="*.bin")
        except ConfigError:
            raise error from None


def _length(settings: DraftSettings, head: Head) -> int:
    """The target's context: what a head's config says of its own, published code ignores."""
    return min(settings.max_length, head.target.max_length)


def _native(settings: DraftSettings, head: Head, folder: Path, target: Path) -> NativeHead | None:
    of = _architecture(settings, head)
    if of is None:
        return None
    compiled = library(settings.cache_dir, SOURCE)
    if prefers_float32(settings, compiled):
        return None
    files = (*weights_files(folder), *weights_files(target))
    revision = f"{head.revision}+{head.target.revision}"
    cache = settings.cache_dir.expanduser() / "native"
    bits = _bits(settings)
    sizes = {"slots": settings.max_sequences, "max_length": _length(settings, head)}
    arrays = Store(cache, revision, files, bits).load(of, lambda: head.weights)
    decoder = HeadDecoder(compiled, of, bits, arrays, threads=settings.threads, **sizes)
    return NativeHead(head, decoder, kv_memory=settings.kv_memory, **sizes)


def _bits(settings: DraftSettings) -> int:
    """Of the matrices. A head in 8 bits proposes as well as in 16, and takes half the time; what it
    proposes changes no text."""
    free = settings.dtype == "auto" and settings.quantize == "none"
    return AUTO_BITS if free else bits_of(settings)


def _architecture(settings: DraftSettings, head: Head) -> HeadArchitecture | None:
    """None: torch is to compute it."""
    if not wants_native(settings):
        return None
    try:
        if not isinstance(head.of, HeadArchitecture):
            raise UnsupportedModelError("the compiled decoder knows no EAGLE-1 head")
        if reasons := faults(head.of):
            raise UnsupportedModelError(
                f"the compiled decoder knows no draft head with {', '.join(reasons)}"
            )
        find_compiler()
    except StarsdError as error:
        if settings.quantize != "none":
            raise
        log.info("torch computes the draft head, not compiled code", reason=error.message)
        return None
    return head.of


def _torch(settings: DraftSettings, head: Head) -> TorchHead:
    import torch

    from starsd.engine.eagle.torch_head import TorchHead
    from starsd.engine.forward import packing
    from starsd.engine.pretrained import torch_dtype, use_threads

    use_threads(settings.threads)
    device, dtype = torch.device(settings.device), torch_dtype(settings)
    try:
        return TorchHead(
            head,
            packing(settings, device, dtype),
            dtype=dtype,
            device=device,
            slots=settings.max_sequences,
            max_length=_length(settings, head),
            kv_memory=settings.kv_memory,
            batch_invariant=settings.batch_invariant,
        )
    except (RuntimeError, AssertionError) as error:  # a torch built without CUDA asserts
        raise ConfigError(
            f"STARSD_DEVICE={settings.device!r}: {error}", param="STARSD_DEVICE"
        ) from error

"""Loads a checkpoint folder into a ``TorchRunner``. Imported only where the model runs."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import structlog
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from starsd.engine import attention
from starsd.engine.checkpoint import weights_revision
from starsd.engine.drafts import DraftSpec
from starsd.engine.forward import make_forward
from starsd.engine.native.build import find_compiler, library
from starsd.engine.native.decoder import NativeDecoder, check_family
from starsd.engine.native.runner import NativeRunner
from starsd.engine.runner import TorchRunner
from starsd.engine.selftest import check_invariance
from starsd.engine.support import check_supported, context_length
from starsd.errors import ConfigError, StarsdError, UnsupportedModelError
from starsd.sampling.noise import NOISE_VERSION
from starsd.settings import ModelSettings

_NOISE_SEED = 20_260_121

log = structlog.get_logger()


def load_runner(
    folder: Path, settings: ModelSettings, spec: DraftSpec | None = None
) -> TorchRunner | NativeRunner:
    """The model in ``folder``, changed as ``spec`` says, with its KV cache allocated.

    Raises:
        ConfigError: weights that do not load, a cache that does not fit, or (quantised) no C
            compiler.
        UnsupportedModelError: an architecture that the engine refuses.
    """
    spec = spec or DraftSpec()
    _use_threads(settings.threads)
    attention.register()
    config = _config(folder, spec.layers)
    max_length = context_length(config.get_text_config(), settings.max_length)
    check_supported(config.get_text_config(), _model_class(config), max_length)
    model = _load(folder, config, settings)
    if spec.noise:
        add_noise(model, spec.noise)
    revision = weights_revision(folder) + spec.suffix
    facts: dict[str, Any] = {
        "slots": settings.max_sequences,
        "max_length": max_length,
        "revision": revision,
    }
    bits = _compiled_bits(model, settings)
    make = _torch_runner if bits is None else functools.partial(_native_runner, bits)
    runner = make(model, settings, facts)
    log.info(
        "model loaded",
        revision=revision,
        slots=runner.slots,
        max_length=max_length,
        kv_cache_mb=round(runner.cache_bytes / 1e6),
        compiled=bits is not None,
    )
    return runner


def _torch_runner(model: Any, settings: ModelSettings, facts: dict[str, Any]) -> TorchRunner:
    vocab_size = int(model.get_output_embeddings().weight.shape[0])
    runner = TorchRunner(
        make_forward(model, settings, facts["max_length"]),
        vocab_size=vocab_size,
        dtype=model.dtype,
        device=model.device,
        batch_invariant=settings.batch_invariant,
        fingerprint=_fingerprint(facts["revision"], settings, "torch"),
        **facts,
    )
    if settings.batch_invariant:
        _self_test(runner)
    return runner


def _native_runner(
    bits: int, model: Any, settings: ModelSettings, facts: dict[str, Any]
) -> NativeRunner:
    decoder = NativeDecoder(
        library(settings.cache_dir),
        model,
        bits,
        slots=facts["slots"],
        max_length=facts["max_length"],
        threads=settings.threads,
    )
    fingerprint = _fingerprint(facts["revision"], settings, decoder.arithmetic)
    return NativeRunner(decoder, fingerprint=fingerprint, **facts)


def _fingerprint(revision: str, settings: ModelSettings, arithmetic: str) -> str:
    """Different arithmetic rounds differently, and may so say something else."""
    return "/".join((revision, settings.dtype, settings.quantize, arithmetic, NOISE_VERSION))


def _compiled_bits(model: Any, settings: ModelSettings) -> int | None:
    """Bits of the compiled decoder's weights; None: torch computes.

    Raises:
        ConfigError: quantisation, and no C compiler.
        UnsupportedModelError: quantisation, and a model that the compiled decoder does not know.
    """
    wanted = settings.compiled and settings.device == "cpu" and settings.dtype == "bfloat16"
    if settings.quantize == "none" and not wanted:
        return None
    try:
        check_family(model)
        find_compiler()
    except StarsdError as error:
        if settings.quantize != "none":
            raise
        log.warning("torch computes, not compiled code", reason=error.message)
        return None
    return 16 if settings.quantize == "none" else int(settings.quantize.removeprefix("int"))


@torch.no_grad()
def add_noise(model: torch.nn.Module, strength: float) -> None:
    """Multiply every weight by ``1 + strength * N(0, 1)``, always with the same noise."""
    for number, weight in enumerate(model.parameters()):
        generator = torch.Generator().manual_seed(_NOISE_SEED + number)
        noise = torch.randn(weight.shape, generator=generator)
        weight.mul_(1 + strength * noise.to(weight.device, weight.dtype))


def _use_threads(count: int) -> None:
    torch.set_num_threads(count)
    if torch.get_num_interop_threads() != 1:
        # Settable only before torch has worked in parallel; we never use these threads anyway.
        with contextlib.suppress(RuntimeError):
            torch.set_num_interop_threads(1)


def _config(folder: Path, layers: int | None) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        raise UnsupportedModelError(f"{folder.name}: {error}", param="STARSD_MODEL") from error
    if layers is not None:
        _keep_layers(config.get_text_config(), layers)
    return config


def _keep_layers(config: Any, layers: int) -> None:
    if layers > config.num_hidden_layers:
        raise ConfigError(
            f"STARSD_DRAFT='layers:{layers}': the model has {config.num_hidden_layers} layers",
            param="STARSD_DRAFT",
        )
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = config.layer_types[:layers]


def _model_class(config: Any) -> Any:
    try:
        return AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        raise UnsupportedModelError(
            f"model type {config.model_type!r}: no causal language model", param="STARSD_MODEL"
        ) from None


def _load(folder: Path, config: Any, settings: ModelSettings) -> Any:
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, settings.dtype),
            attn_implementation=attention.NAME,
            use_safetensors=True,
            output_loading_info=True,
        )
        model, report = loaded
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ConfigError(f"model in {folder} does not load: {error}") from error
    if missing := sorted(report["missing_keys"]):
        # transformers would go on with random weights in their place
        raise ConfigError(f"model in {folder} lacks weights: {', '.join(missing[:5])}")
    return _placed(model, settings.device).eval().requires_grad_(False)


def _placed(model: Any, device: str) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:  # a torch built without CUDA asserts
        raise ConfigError(f"STARSD_DEVICE={device!r}: {error}", param="STARSD_DEVICE") from error


def _self_test(runner: TorchRunner) -> None:
    result = check_invariance(runner)
    runner.invariance_holds = result.ok
    if not result.ok:
        log.warning(
            "batch-invariant mode does not hold on this machine",
            different=result.different,
            compared=result.compared,
            largest=result.largest,
        )

"""Loads a checkpoint folder into a ``TorchRunner``. Imported only where the model runs."""

from __future__ import annotations

import contextlib
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
from starsd.engine.runner import TorchRunner
from starsd.engine.selftest import check_invariance
from starsd.engine.support import check_supported, context_length
from starsd.errors import ConfigError, UnsupportedModelError
from starsd.sampling.noise import NOISE_VERSION
from starsd.settings import ModelSettings

_NOISE_SEED = 20_260_121

log = structlog.get_logger()


def load_runner(
    folder: Path, settings: ModelSettings, spec: DraftSpec | None = None
) -> TorchRunner:
    """The model in ``folder``, changed as ``spec`` says, with its KV cache allocated.

    Raises:
        ConfigError: weights that do not load, or a cache that does not fit.
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
    runner = TorchRunner(
        model,
        slots=settings.max_sequences,
        max_length=max_length,
        revision=revision,
        fingerprint=f"{revision}/{settings.dtype}/unquantised/{NOISE_VERSION}",
        batch_invariant=settings.batch_invariant,
    )
    log.info(
        "model loaded",
        revision=revision,
        slots=runner.slots,
        max_length=max_length,
        kv_cache_mb=round(runner.cache_bytes / 1e6),
    )
    if settings.batch_invariant:
        _self_test(runner)
    return runner


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

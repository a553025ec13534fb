"""Loads a checkpoint folder into a runner. Imported only where the model runs."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from starsd.engine import attention
from starsd.engine.checkpoint import model_fingerprint, weights_revision
from starsd.engine.cuda import arithmetic
from starsd.engine.drafts import DraftSpec, check_layers
from starsd.engine.forward import make_forward, make_graphs
from starsd.engine.native.tensors import Floats
from starsd.engine.recurrent import RecurrentRunner, slot_state
from starsd.engine.runner import TorchRunner
from starsd.engine.selftest import check_invariance
from starsd.engine.support import RECURRENT, check_supported, context_length, layer_windows
from starsd.errors import ConfigError, UnsupportedModelError
from starsd.settings.model import ModelSettings

_NOISE_SEED = 20_260_121

log = structlog.get_logger()


def load_runner(
    folder: Path, settings: ModelSettings, spec: DraftSpec
) -> TorchRunner | RecurrentRunner:
    """The model in ``folder``, changed as ``spec`` says, with its KV cache.

    Raises:
        ConfigError: weights that do not load, or too little KV memory.
        UnsupportedModelError: an architecture that the engine refuses.
    """
    model, max_length = _model(folder, settings, spec)
    revision = weights_revision(folder) + spec.suffix
    precision = str(model.dtype).removeprefix("torch.")
    facts: dict[str, Any] = {
        "slots": settings.max_sequences,
        "max_length": max_length,
        "revision": revision,
        "fingerprint": model_fingerprint(revision, precision, arithmetic(model.device)),
    }
    if _recurrent(model.config):
        state = slot_state(model, invariant=settings.batch_invariant)
        return RecurrentRunner(model, state=state, **facts)
    return _torch_runner(model, settings, facts)


def _recurrent(config: Any) -> bool:
    return config.get_text_config().model_type in RECURRENT


def _torch_runner(model: Any, settings: ModelSettings, facts: dict[str, Any]) -> TorchRunner:
    runner = TorchRunner(
        make_forward(model, settings, facts["max_length"]),
        vocab_size=int(model.get_output_embeddings().weight.shape[0]),
        dtype=model.dtype,
        device=model.device,
        kv_memory=settings.kv_memory,
        batch_invariant=settings.batch_invariant,
        graphs=make_graphs(settings, model.device),
        windows=layer_windows(model.config.get_text_config()),
        **facts,
    )
    if settings.batch_invariant:
        _self_test(runner)
    return runner


class StateDict:
    """The weights of a transformers model, as the compiled decoder reads them."""

    def __init__(self, model: Any) -> None:
        self._tensors: dict[str, torch.Tensor] = model.state_dict()

    def shape(self, name: str) -> tuple[int, ...] | None:
        return tuple(self._tensors[name].shape) if name in self._tensors else None

    def rows(self, name: str, first: int, last: int) -> Floats:
        found: Floats = self._tensors[name][first:last].float().numpy()
        return found


def load_weights(folder: Path, settings: ModelSettings, spec: DraftSpec) -> StateDict:
    """Raises what ``load_runner`` raises."""
    return StateDict(_model(folder, settings, replace(spec, layers=None))[0])


def _model(folder: Path, settings: ModelSettings, spec: DraftSpec) -> tuple[Any, int]:
    """And the positions per slot."""
    use_threads(settings.threads)
    attention.register()
    config = _config(folder, spec.layers)
    max_length = context_length(config.get_text_config(), settings.max_length)
    check_supported(config.get_text_config(), _model_class(config), max_length)
    model = _load(folder, config, settings)
    if spec.noise:
        add_noise(model, spec.noise)
    return model, max_length


@torch.no_grad()
def add_noise(model: torch.nn.Module, strength: float) -> None:
    """Multiply every weight by ``1 + strength * N(0, 1)``, always with the same noise."""
    for number, weight in enumerate(model.parameters()):
        generator = torch.Generator().manual_seed(_NOISE_SEED + number)
        noise = torch.randn(weight.shape, generator=generator)
        weight.mul_(1 + strength * noise.to(weight.device, weight.dtype))


def use_threads(count: int) -> None:
    """torch's, in this process."""
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
    check_layers(layers, config.num_hidden_layers)
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
            dtype=torch_dtype(settings),
            attn_implementation=None if _recurrent(config) else attention.NAME,
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


def torch_dtype(settings: ModelSettings) -> torch.dtype:
    """Of weights and cache."""
    if settings.dtype != "auto":
        found: torch.dtype = getattr(torch, settings.dtype)
        return found
    kinds = {"cuda": torch.bfloat16, "mps": torch.float16}
    return kinds.get(torch.device(settings.device).type, torch.float32)


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

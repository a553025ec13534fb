"""The peers, each as its own documentation starts it for a CPU: environment, model, command."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starsd.bench.peers import envs, shim
from starsd.bench.peers.envs import Environment, Recipe
from starsd.bench.peers.models import Models
from starsd.bench.peers.server import LOCAL

CONTEXT = 2048
"""Positions of a sequence, as our own default."""


@dataclass(frozen=True)
class Place:
    """Where a peer runs: its environment, cores and port, the models, the requests at once."""

    environment: Environment
    cores: Sequence[int]
    port: int
    models: Models
    at_once: int

    @property
    def threads(self) -> str:
        return str(len(self.cores))


Command = Callable[[Place], list[str]]
Variables = Callable[[Place], dict[str, str]]


@dataclass(frozen=True)
class Peer:
    """``group`` is its word for ``--only``; ``pair`` the precision of ours it is compared with."""

    name: str
    group: str
    precision: str
    pair: str
    recipe: Recipe
    command: Command
    variables: Variables = field(default=lambda place: {})


def env(peer: Peer, place: Place) -> Mapping[str, str]:
    """What is set for every peer, and for this one. Nothing is fetched: the weights are here.

    No OMP_NUM_THREADS: vLLM warns of it, and the others take their threads by option.
    """
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**offline, **peer.variables(place)}


def _shim(library: str, dtype: str, place: Place, model: Path) -> list[str]:
    script = [str(place.environment.python), "-P", shim.__file__, library]
    words = {"--model": model, "--dtype": dtype, "--port": place.port}
    limits = {"--threads": place.threads, "--batch": place.at_once}
    return [*script, *(str(word) for pair in {**words, **limits}.items() for word in pair)]


def _hf(library: str, dtype: str) -> Command:
    return lambda place: _shim(library, dtype, place, place.models.folder)


def _openvino(weights: str) -> Command:
    def command(place: Place) -> list[str]:
        return _shim("openvino", "bf16", place, place.models.openvino(place.environment, weights))

    return command


def _vllm(place: Place) -> list[str]:
    return [
        *(str(place.environment.python), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(place.models.folder), "--served-model-name", "vllm"),
        *("--dtype", "bfloat16", "--max-model-len", str(CONTEXT)),
        *("--max-num-seqs", str(place.at_once), "--no-enable-prefix-caching"),
        *("--host", LOCAL, "--port", str(place.port)),
    ]


def _vllm_variables(place: Place) -> dict[str, str]:
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GB
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, place.cores)),
        "VLLM_CACHE_ROOT": str(place.environment.folder / "cache"),
        "VLLM_NO_USAGE_STATS": "1",
    }


def _llama(place: Place) -> list[str]:
    return [
        *(str(_llama_folder(place) / "llama-server"), "--model", str(place.models.gguf())),
        *("--threads", place.threads, "--parallel", str(place.at_once)),
        *("--ctx-size", str(CONTEXT * place.at_once), "--no-cache-prompt", "--cache-ram", "0"),
        *("--n-gpu-layers", "0", "--device", "none", "--no-webui"),
        *("--host", LOCAL, "--port", str(place.port)),
    ]


def _llama_folder(place: Place) -> Path:
    return next(place.environment.folder.glob("lib/python*/site-packages/skulk_*/bin"))


def _llama_variables(place: Place) -> dict[str, str]:
    paths = (str(_llama_folder(place)), os.environ.get("LD_LIBRARY_PATH", ""))
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths))}


# OpenVINO 2026.4 dies of SIGFPE with 16-bit weights in bfloat16 on one core; with int8 it does not.
PEERS = (
    Peer("hf", "hf", "bfloat16", "bfloat16", envs.HF, _hf("hf", "bfloat16")),
    Peer("hf-float32", "hf", "float32", "float32", envs.HF, _hf("hf", "float32")),
    Peer("hf-lookup", "hf", "bfloat16", "bfloat16", envs.HF, _hf("lookup", "bfloat16")),
    Peer("vllm", "vllm", "bfloat16", "bfloat16", envs.VLLM, _vllm, _vllm_variables),
    Peer("openvino", "openvino", "bfloat16", "bfloat16", envs.OPENVINO, _openvino("fp16")),
    Peer("openvino-int8", "openvino", "int8", "int8", envs.OPENVINO, _openvino("int8")),
    Peer("llama", "llama", "Q4_1", "int4", envs.LLAMA, _llama, _llama_variables),
)
GROUPS = tuple(dict.fromkeys(peer.group for peer in PEERS))

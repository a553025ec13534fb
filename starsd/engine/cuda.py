"""What is particular to CUDA: full precision, copies that nobody waits for, recorded steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt
import torch
from torch import Tensor

Replay = Callable[[], Tensor]
"""Does again what was recorded, on the same memory; returns the same tensor, filled anew."""


class Graphs(Protocol):
    """Records the tensor operations of a function, to launch them later without its Python."""

    def capture(self, step: Callable[[], Tensor]) -> Replay:
        """``step`` reads and writes memory that stays in place, and may do its work here already,
        so doing it twice must do no harm. Raises RuntimeError if it cannot be recorded."""


class CudaGraphs:
    """``torch.cuda.CUDAGraph`` for steps that never run at the same time.

    They share one pool of memory: what a replay returns is valid until the next one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, step: Callable[[], Tensor]) -> Replay:
        """See ``Graphs.capture``."""
        self._run(step)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            output = step()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay

    def _run(self, step: Callable[[], Tensor]) -> None:
        """Handles and workspaces must exist on the recording stream before it records."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            step()
        current.wait_stream(self._stream)


def use_full_precision() -> None:
    """No TF32, no sums in half precision, whatever the environment says: float32 is float32."""
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False


def arithmetic(device: torch.device) -> str:
    """Part of the fingerprint: different processors round differently."""
    if device.type == "cuda":
        return f"torch on {torch.cuda.get_device_name(device)}"
    return "torch" if device.type == "cpu" else f"torch on {device.type}"


def to_device(values: npt.NDArray[Any], device: torch.device) -> Tensor:
    """On CUDA the copy goes through pinned memory and is not waited for."""
    tensor = torch.from_numpy(values)
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def to_host(tensor: Tensor) -> npt.NDArray[Any]:
    """The only wait of a step."""
    if not tensor.is_cuda:
        found: npt.NDArray[Any] = tensor.cpu().numpy()
        return found
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(tensor.device).synchronize()
    copied: npt.NDArray[Any] = host.numpy()
    return copied

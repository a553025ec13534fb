"""CUDA graphs played on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from starsd.engine.cuda import Replay

_WAITS = frozenset({"_local_scalar_dense", "equal", "lift_fresh", "masked_select", "nonzero"})
"""Operations that wait for the device, have shapes made of values, or read the host's memory."""


class Tape:
    """``starsd.engine.cuda.Graphs`` as strict as CUDA: what is recorded are tensor operations and
    the memory they use, nothing of the Python around them; a replay computes in the same memory.
    """

    def __init__(self) -> None:
        self.recordings = 0
        self.replays = 0

    def capture(self, step: Callable[[], Tensor]) -> Replay:
        self.recordings += 1
        step()
        recorder = _Recorder()
        with recorder:
            output = step()
        output.fill_(torch.nan)  # a recording computes nothing

        def replay() -> Tensor:
            self.replays += 1
            for launch in recorder.launches:
                launch()
            return output

        return replay


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches: list[Callable[[], None]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:  # inference mode hands us operations made of others
            if (result := func.decompose(*args, **kwargs)) is not NotImplemented:
                return result
        if _waits(func.overloadpacket.__name__, _tensors(args), kwargs):
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        result = func(*args, **kwargs)
        made = _tensors(result)
        if func._schema.is_mutable or _storages(made) - _storages(_tensors((args, kwargs))):
            self.launches.append(_launch(functools.partial(func, *args, **kwargs), made))
        return result


def _waits(name: str, tensors: Sequence[Tensor], kwargs: dict[str, Any]) -> bool:
    if name == "_to_copy":
        return kwargs.get("device") not in (None, tensors[0].device)
    if name == "index":
        return any(tensor.dtype is torch.bool for tensor in tensors[1:])
    return name in _WAITS


def _launch(operation: Callable[[], Any], made: Sequence[Tensor]) -> Callable[[], None]:
    def launch() -> None:
        for place, value in zip(made, _tensors(operation()), strict=True):
            if place.data_ptr() != value.data_ptr():
                place.copy_(value)

    return launch


def _storages(tensors: Iterable[Tensor]) -> set[int]:
    """Views are no work: their memory is an argument's."""
    return {one.untyped_storage().data_ptr() for one in tensors if not one.is_mkldnn}


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]

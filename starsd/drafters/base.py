"""What all drafters that run a model share: it decides how much there is room for."""

from __future__ import annotations

from typing import Generic, TypeVar

from starsd.engine.interface import HeadRunner, Runner
from starsd.process.parts import Parts
from starsd.settings.draft import DraftSettings

R = TypeVar("R", bound=Runner | HeadRunner)


class ModelDrafter(Generic[R]):
    """The part of ``Drafter`` that is its runner's."""

    def __init__(self, runner: R, settings: DraftSettings, parts: Parts | None = None) -> None:
        """Its time is charged to ``parts``."""
        self._runner = runner
        self._settings = settings
        self._parts = parts or Parts()

    @property
    def slots(self) -> int:
        return self._runner.slots

    @property
    def kv_blocks(self) -> int:
        return self._runner.kv_blocks

    @property
    def vocab_size(self) -> int:
        return self._runner.vocab_size

    @property
    def max_length(self) -> int:
        return self._runner.max_length

    def release(self, slot: int) -> None:
        """Its sequence is gone: give the slot's memory back."""
        self._runner.release(slot)

"""Reading what a service exposes at /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


class Exposition:
    """Samples with one label at most, which is all that our counters have."""

    def __init__(self, text: str) -> None:
        self._samples = {
            (sample.name, next(iter(sample.labels.values()), "")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def value(self, name: str) -> float:
        """0 if there is no such sample."""
        return self._samples.get((name, ""), 0.0)

    def labelled(self, name: str) -> dict[str, float]:
        """By label."""
        return {label: value for (found, label), value in self._samples.items() if found == name}


def less(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """What counters by label rose by."""
    return {label: value - before.get(label, 0.0) for label, value in after.items()}

"""The ``draft`` setting: which checkpoint a drafter comes from, and what is done to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starsd.errors import ConfigError

AUTO, SELF = "auto", "self"
SHIPPED = {
    "smollm2-135m-instruct": Path(__file__).parents[1] / "weights" / "smollm2-135m-instruct-eagle3"
}
"""Drafts that come with us, by the target's name."""


def choose_draft(setting: str, model: str) -> str:
    """What ``auto`` stands for: the draft shipped for the model.

    Raises ConfigError: there is none. The model's own weights would do, slower than no draft.
    """
    if setting != AUTO:
        return setting
    if lacks_draft(setting, model):
        raise _bad(
            setting, f"none is shipped for {model!r}; train one (starsd train-draft), or use no hub"
        )
    return str(SHIPPED[model])


def lacks_draft(setting: str, model: str) -> bool:
    """Whether it asks for the shipped draft of a model that has none."""
    return setting == AUTO and model not in SHIPPED


@dataclass(frozen=True)
class DraftSpec:
    """``checkpoint`` None is the target's own; then ``layers`` or ``noise`` may change it."""

    checkpoint: str | None = None
    layers: int | None = None
    noise: float = 0.0

    @property
    def suffix(self) -> str:
        """Tells derived weights from the original in a revision."""
        if self.layers is not None:
            return f"+layers:{self.layers}"
        return f"+noisy:{self.noise:g}" if self.noise else ""


def parse_draft(setting: str) -> DraftSpec:
    """``self``, ``layers:N``, ``noisy:S``, or a folder or hub name.

    Raises:
        ConfigError: empty, or N or S is no sensible number.
    """
    kind, colon, value = setting.partition(":")
    if setting == SELF:
        return DraftSpec()
    if colon and kind == "layers":
        return DraftSpec(layers=int(_number(setting, value, whole=True)))
    if colon and kind == "noisy":
        return DraftSpec(noise=_number(setting, value, whole=False))
    if not setting or colon:
        raise _bad(setting, "want self, layers:N, noisy:S, a folder or a hub name")
    return DraftSpec(checkpoint=setting)


def check_layers(wanted: int, there: int) -> None:
    """Raises ConfigError for a draft of more layers than the model has."""
    if wanted > there:
        raise _bad(f"layers:{wanted}", f"the model has {there} layers")


def _number(setting: str, value: str, *, whole: bool) -> float:
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        raise _bad(setting, f"{value!r} is no number") from None
    if not 0 < number < 1e6:
        raise _bad(setting, "the number must be positive")
    return number


def _bad(setting: str, reason: str) -> ConfigError:
    return ConfigError(f"STARSD_DRAFT={setting!r}: {reason}", param="STARSD_DRAFT")

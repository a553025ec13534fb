"""A benchmark's result as JSON: one line for programs, a file with the raw data for the record."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starsd.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DIGITS = 5

R = TypeVar("R", bound="DataclassInstance")


def as_line(result: DataclassInstance) -> str:
    return json.dumps(rounded(dataclasses.asdict(result)))


def kept(out: Path | None, kind: str, measure: Callable[[], tuple[R, Mapping[str, Any]]]) -> R:
    """The result that ``measure`` gives beside its raw data; both are in ``out`` then, if that is
    given. Raises ConfigError before it measures: ``out`` cannot be written."""
    if out is not None:
        check_writable(out)
    result, raw = measure()
    if out is not None:
        write(out, kind, result, raw)
    return result


def check_writable(path: Path) -> None:
    """Before the work, not after it. Raises ConfigError."""
    try:
        path.open("a").close()
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", param="--out") from error


def write(path: Path, kind: str, result: DataclassInstance, raw: Mapping[str, Any]) -> None:
    """The result of the command ``starsd bench KIND``, and the fields of ``raw`` beside its own."""
    whole = {"kind": kind, **dataclasses.asdict(result), **raw}
    path.write_text(json.dumps(rounded(whole), indent=1, ensure_ascii=False) + "\n", "utf-8")


def rounded(value: Any) -> Any:
    """Floats to five significant digits, all through."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {key: rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [rounded(item) for item in value]
        case _:
            return value

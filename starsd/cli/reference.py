"""Every ``STARSD_*`` variable with its values, default and meaning; docs/settings.md is this."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_settings import BaseSettings

from starsd.settings.common import PREFIX, BusSettings, PodSettings, ServiceSettings
from starsd.settings.draft import DraftSettings
from starsd.settings.gateway import GatewaySettings
from starsd.settings.model import ModelSettings
from starsd.settings.target import TargetSettings
from starsd.settings.up import UpSettings

SECTIONS: tuple[tuple[str, type[BaseSettings]], ...] = (
    ("Every service", ServiceSettings),
    ("Redis (every service)", BusSettings),
    ("Pod (target and draft)", PodSettings),
    ("Model (target and draft)", ModelSettings),
    ("Target", TargetSettings),
    ("Draft", DraftSettings),
    ("Gateway", GatewaySettings),
    ("starsd up", UpSettings),
)

HEAD = """# Settings

Written by `starsd settings --markdown`; do not edit. Each service reads these variables once, at
its start. A bad value, or a `STARSD_*` variable that no service knows, is refused.
"""


@dataclass(frozen=True)
class Entry:
    variable: str
    values: str
    default: str
    description: str


def entries(cls: type[BaseSettings]) -> Iterator[Entry]:
    """The settings that a class itself declares: its own, and those it gives another default."""
    schemas = cls.model_json_schema()["properties"]
    for name in inspect.get_annotations(cls):
        if name in schemas:
            schema = schemas[name]
            yield Entry(
                variable=PREFIX + name.upper(),
                values=_values(schema),
                default=_default(schema.get("default")),
                description=schema.get("description", ""),
            )


def _values(schema: dict[str, Any]) -> str:
    if choices := schema.get("enum"):
        return ", ".join(choices)
    above = _bound(schema, ("minimum", ">="), ("exclusiveMinimum", ">"))
    below = _bound(schema, ("maximum", "<="), ("exclusiveMaximum", "<"))
    return ", ".join([_TYPES[schema.get("format", schema["type"])], *above, *below])


_TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true, false",
    "array": "JSON list",
    "object": "JSON object",
    "path": "text",
    "bytes": "size, like 512MiB",
}


def _bound(schema: dict[str, Any], *kinds: tuple[str, str]) -> list[str]:
    return [f"{sign} {schema[key]:g}" for key, sign in kinds if key in schema]


def _default(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value in ("", [], {}) else str(value)


def markdown() -> str:
    """The whole of docs/settings.md."""
    return "\n".join([HEAD, *(_section(title, cls) for title, cls in SECTIONS)])


def _section(title: str, cls: type[BaseSettings]) -> str:
    rows = [
        f"| `{e.variable}` | {e.values} | {f'`{e.default}`' if e.default else ''} "
        f"| {e.description} |"
        for e in entries(cls)
    ]
    head = ["| variable | values | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}\n", *head, *rows, ""])

"""docs/settings.md and the settings say the same."""

from __future__ import annotations

from pathlib import Path

from starsd.cli.reference import SECTIONS, entries, markdown
from starsd.settings.loading import known_variables

DOCUMENT = Path(__file__).parents[3] / "docs" / "settings.md"
ENTRIES = [entry for _, cls in SECTIONS for entry in entries(cls)]


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == markdown(), "run `make docs`"


def test_every_variable_is_listed() -> None:
    assert {entry.variable for entry in ENTRIES} == known_variables()


def test_every_variable_is_explained() -> None:
    assert [e.variable for e in ENTRIES if not e.description.endswith((".", ")", '"'))] == []


def test_values_and_defaults_read_well() -> None:
    found = {(entry.variable, entry.values, entry.default) for entry in ENTRIES}
    assert ("STARSD_PORT", "integer, >= 0, <= 65535", "8001") in found
    assert ("STARSD_DTYPE", "auto, float32, bfloat16, float16", "auto") in found
    assert ("STARSD_DRAFTING", "true, false", "true") in found
    assert ("STARSD_TARGETS", "JSON list", "") in found

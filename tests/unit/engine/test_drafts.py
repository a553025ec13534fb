from __future__ import annotations

import pytest

from starsd.engine.drafts import DraftSpec, parse_draft
from starsd.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "spec"),
    [
        ("self", DraftSpec()),
        ("layers:3", DraftSpec(layers=3)),
        ("noisy:0.05", DraftSpec(noise=0.05)),
        ("org/name", DraftSpec(checkpoint="org/name")),
        ("./folder", DraftSpec(checkpoint="./folder")),
    ],
)
def test_parse(setting: str, spec: DraftSpec) -> None:
    assert parse_draft(setting) == spec


@pytest.mark.parametrize(
    "setting",
    [
        "",
        "layers:",
        "layers:0",
        "layers:-1",
        "layers:1.5",
        "noisy:x",
        "noisy:nan",
        "noisy:0",
        "x:1",
    ],
)
def test_bad_setting_is_named(setting: str) -> None:
    with pytest.raises(ConfigError, match="STARSD_DRAFT") as error:
        parse_draft(setting)
    assert error.value.param == "STARSD_DRAFT"


def test_suffix_tells_derived_weights_apart() -> None:
    suffixes = {parse_draft(s).suffix for s in ("self", "layers:1", "layers:2", "noisy:0.1")}
    assert len(suffixes) == 4
    assert DraftSpec().suffix == ""

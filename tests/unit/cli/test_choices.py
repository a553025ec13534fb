from __future__ import annotations

import pytest

from starsd.cli.choices import choices, decimals, numbers
from starsd.errors import ConfigError


def test_choices() -> None:
    assert choices("--only", "b,a", ("a", "b", "c")) == ("b", "a")
    with pytest.raises(ConfigError, match=r"--only x,: want of a,b"):
        choices("--only", "a,x,", ("a", "b"))


def test_numbers() -> None:
    assert numbers("--batch", "16,1") == (16, 1)


@pytest.mark.parametrize("bad", ["", "0", "1,", "1,-2", "1.5", "a"])
def test_no_numbers(bad: str) -> None:
    with pytest.raises(ConfigError, match="write it like 1,16"):
        numbers("--batch", bad)


def test_decimals() -> None:
    assert decimals("--temperatures", "0,0.7,1") == (0.0, 0.7, 1.0)


@pytest.mark.parametrize("bad", ["", "-1", "1,", "inf", "nan", "a"])
def test_no_decimals(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"write it like 0,0\.7"):
        decimals("--temperatures", bad)

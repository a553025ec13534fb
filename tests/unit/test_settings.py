"""Settings come from ``STARSD_*``, and a bad one is told in one line."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from starsd.errors import ConfigError
from starsd.settings.common import PREFIX
from starsd.settings.draft import DraftSettings
from starsd.settings.gateway import GatewaySettings
from starsd.settings.loading import SERVICES, load
from starsd.settings.target import TargetSettings

OTHER_VALUES: dict[str, tuple[str, Any]] = {
    "cores": ("0,2-3", "0,2-3"),
    "depth_control": ("fixed", "fixed"),
    "draft_confidence": ("0.25", 0.25),
    "draft_nodes": ("7", 7),
    "dtype": ("bfloat16", "bfloat16"),
    "kv_memory": ("512MiB", 2**29),
    "log_level": ("debug", "debug"),
    "prefix_cache": ("0.25", 0.25),
    "quantize": ("int8", "int8"),
    "tool_parser": ("mistral", "mistral"),
    "run_ahead": ("on", "on"),
    "scheduler": ("fifo", "fifo"),
    "trees": ("on", "on"),
    "targets": ('["http://a"]', ("http://a",)),
    "weights": ('{"a": 2}', {"a": 2.0}),
    "served_model_aliases": ('["other"]', ("other",)),
}
FIELDS = [
    pytest.param(cls, name, field, id=f"{cls.__name__}.{name}")
    for cls in SERVICES
    for name, field in cls.model_fields.items()
]


def other_value(name: str, field: FieldInfo) -> tuple[str, Any]:
    """A value that is not the default: as a variable, and as it should be read."""
    default = field.default
    if name in OTHER_VALUES:
        return OTHER_VALUES[name]
    if isinstance(default, bool):
        return str(not default).lower(), not default
    if isinstance(default, int | float):
        return str(default + 1), default + 1
    return "another", type(default)("another")


@pytest.mark.parametrize(("cls", "name", "field"), FIELDS)
def test_each_is_read_from_its_variable(
    cls: type[BaseSettings], name: str, field: FieldInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, value = other_value(name, field)
    assert getattr(load(cls), name) != value  # type: ignore[type-var]
    monkeypatch.setenv(PREFIX + name.upper(), text)
    assert getattr(load(cls), name) == value  # type: ignore[type-var]


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STARSD_DRAFT", "layers:2")
    assert load(DraftSettings, draft="noisy:0.1").draft == "noisy:0.1"


def test_another_services_variable_is_fine_and_nobodys_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STARSD_DRAFT", "layers:2")
    load(TargetSettings)
    monkeypatch.setenv("STARSD_DRAUGHT", "layers:2")
    with pytest.raises(ConfigError, match="STARSD_DRAUGHT"):
        load(TargetSettings)


@pytest.mark.parametrize(
    ("variable", "value", "right"),
    [
        ("STARSD_TARGETS", "http://a", "JSON"),
        ("STARSD_TARGETS", '{"a": 1}', "tuple"),
        ("STARSD_TARGETS", "[1]", "string"),
        ("STARSD_PORT", "70000", "65535"),
        ("STARSD_LOG_LEVEL", "loud", "'debug', 'info', 'warning' or 'error'"),
        ("STARSD_NAMESPACE", "a:b", "pattern"),
    ],
)
def test_a_bad_value_is_named_with_what_would_be_right(
    variable: str, value: str, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=right) as error:
        load(GatewaySettings)
    assert error.value.message.startswith(f"{variable}=")


def test_pod_ttl_s_outlives_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the pod would drop out of the registry between any two of its own beats."""
    monkeypatch.setenv("STARSD_HEARTBEAT_S", "5")
    with pytest.raises(ConfigError, match=r"STARSD_POD_TTL_S=5\.0: want more than .*=5\.0"):
        load(TargetSettings)
    monkeypatch.setenv("STARSD_POD_TTL_S", "5.5")
    assert load(TargetSettings).pod_ttl_s == 5.5


@pytest.mark.parametrize(("name", "value"), [("DTYPE", "bfloat16"), ("DEVICE", "cuda")])
def test_quantised_models_have_their_own_types_and_place(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("STARSD_QUANTIZE", "int4")
    assert load(TargetSettings).quantize == "int4"
    monkeypatch.setenv(f"STARSD_{name}", value)
    with pytest.raises(ConfigError, match=f"STARSD_QUANTIZE='int4': want .*{value}"):
        load(TargetSettings)

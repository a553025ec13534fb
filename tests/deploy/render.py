"""What is written from something else: the chart's settings schema from the settings models, and
``k8s/manifests`` from the chart. ``python -m tests.deploy.render`` renews both.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starsd.settings.common import ServiceSettings
from starsd.settings.draft import DraftSettings
from starsd.settings.gateway import GatewaySettings
from starsd.settings.target import TargetSettings
from tests.deploy.helm import CHART, Helm, unpack_helm

SCHEMA = CHART / "values.schema.json"
MANIFESTS = CHART.parent / "manifests"

ROLES: Mapping[str, type[ServiceSettings]] = {
    "gateway": GatewaySettings,
    "target": TargetSettings,
    "draft": DraftSettings,
}

CHART_SETS = frozenset(
    {"host", "port", "metrics_port", "redis_url", "id", "advertise_url", "model", "cache_dir"}
)
"""Settings that follow from other values and the pod's place."""
NOT_FOR_PODS = frozenset({"boot", "scripted"})
"""Each life draws its boot id, and scripted models are for tests."""
FOR_ALL_ONLY = frozenset({"namespace"})
"""Settings that would split the star if one role had its own."""


def settings_definitions() -> dict[str, Any]:
    """JSON schema of the ``settings`` maps, by definition name."""
    by_role = {role: _properties(model) for role, model in ROLES.items()}
    shared = set.intersection(*(set(properties) for properties in by_role.values()))
    definitions = {"settings": _object({name: by_role["draft"][name] for name in shared})}
    # Empty: the chart derives it from the release.
    definitions["settings"]["properties"]["namespace"]["pattern"] = r"^[A-Za-z0-9_.-]{0,64}$"
    for role, properties in by_role.items():
        own = {name: facts for name, facts in properties.items() if name not in FOR_ALL_ONLY}
        definitions[f"{role}Settings"] = _object(own)
    return definitions


def _properties(model: type[ServiceSettings]) -> dict[str, Any]:
    schema = model.model_json_schema()["properties"]
    owned = CHART_SETS | NOT_FOR_PODS
    return {name: _facts(facts) for name, facts in schema.items() if name not in owned}


def _facts(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in ("title", "default")}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    ordered = dict(sorted(properties.items()))
    return {"type": "object", "additionalProperties": False, "properties": ordered}


def schema_text() -> str:
    """values.schema.json as it should be: the definitions above, the rest as it is."""
    schema = json.loads(SCHEMA.read_text())
    schema["definitions"] |= settings_definitions()
    return json.dumps(schema, indent=2) + "\n"


def manifest_texts(helm: Helm) -> dict[str, str]:
    """The default values' objects, by file name; one file for each template."""
    with tempfile.TemporaryDirectory() as folder:
        helm.template("--output-dir", folder)
        files = sorted(Path(folder).rglob("*.yaml"))
        return {file.name: file.read_text() for file in files}


def main() -> None:
    SCHEMA.write_text(schema_text())
    MANIFESTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        texts = manifest_texts(unpack_helm(Path(folder)))
    for stale in MANIFESTS.glob("*.yaml"):
        stale.unlink()
    for name, text in texts.items():
        (MANIFESTS / name).write_text(text)


if __name__ == "__main__":
    main()

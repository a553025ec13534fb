"""A helm for the session, and the chart rendered with each set of values."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.helm import CHART, Helm, Manifest, unpack_helm

VALUES_FILES = (
    CHART / "values.yaml",
    *sorted(CHART.glob("values-*.yaml")),
    Path(__file__).parent / "values-everything.yaml",
)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return unpack_helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session", params=VALUES_FILES, ids=lambda file: file.stem)
def values_file(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    return file


@pytest.fixture(scope="session")
def objects(helm: Helm, values_file: Path) -> list[Manifest]:
    """What each values file makes of the chart."""
    return helm.render(values=[values_file])


@pytest.fixture(scope="session")
def trial(helm: Helm) -> list[Manifest]:
    """The default values."""
    return helm.render()

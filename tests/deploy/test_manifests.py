"""``k8s/manifests`` is the chart with its default values."""

from __future__ import annotations

from tests.deploy.helm import Helm
from tests.deploy.render import MANIFESTS, manifest_texts


def test_manifests_are_the_chart(helm: Helm) -> None:
    written = {file.name: file.read_text() for file in MANIFESTS.iterdir()}
    assert written == manifest_texts(helm), "run `make manifests`"

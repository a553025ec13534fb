"""One star for all faults; each test finds it whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.livestar import LiveStar


@pytest.fixture(scope="package")
def shared_star() -> Iterator[LiveStar]:
    with LiveStar() as star:
        star.start_all()
        yield star


@pytest.fixture
def star(shared_star: LiveStar) -> LiveStar:
    shared_star.repair(*shared_star.lab.services)
    shared_star.wait_whole()
    return shared_star

"""One star for all cases; none of them harms it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cases.star import Cases, running


@pytest.fixture(scope="package")
def cases() -> Iterator[Cases]:
    yield from running()

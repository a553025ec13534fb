from __future__ import annotations

from collections.abc import Iterator

import pytest

from starsd.sampling import compiled


@pytest.fixture(scope="module", autouse=True)
def by_numpy_alone() -> Iterator[None]:
    """Whatever another test has installed; test_compiled.py installs its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "_draw", None)
        patch.setattr(compiled, "_rank", None)
        yield

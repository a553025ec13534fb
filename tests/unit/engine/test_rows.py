from __future__ import annotations

import numpy as np

from starsd.engine.interface import Row
from starsd.engine.rows import ancestors, depths, last_tokens


def test_depths_and_ancestors() -> None:
    row = Row(0, [1, 2, 3, 4], 0, parents=[-1, -1, 0, 2])
    assert depths(row).tolist() == [0, 0, 1, 2]
    assert depths(Row(0, [1, 2], 0)).tolist() == [0, 1]
    np.testing.assert_array_equal(
        ancestors([-1, -1, 0, 2]),
        np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]),
    )


def test_last_tokens() -> None:
    rows = [Row(0, [1, 2, 3], 0, want=2), Row(2, [4], 9, want=0), Row(1, [5, 6], 1)]
    assert last_tokens(rows).tolist() == [1, 2, 5]

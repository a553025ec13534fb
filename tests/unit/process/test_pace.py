from __future__ import annotations

from starsd.process.pace import Every


def test_due_at_once_then_once_per_interval() -> None:
    now = iter([0.0, 0.1, 0.9, 1.0, 1.5, 7.0, 7.5, 8.0])
    every = Every(1.0, lambda: next(now))
    assert [every.due() for _ in range(8)] == [True, False, False, True, False, True, False, True]

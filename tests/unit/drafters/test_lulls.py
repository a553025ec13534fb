"""Lulls of a hub, as they were and as the next one should be."""

from __future__ import annotations

from starsd.drafters.lulls import Lulls


def after_lulls(length_s: float, count: int = 20) -> tuple[Lulls, float]:
    """A hub whose steps ahead take a millisecond, at the beginning of a lull."""
    lulls, now = Lulls(), 0.0
    for _ in range(count):
        lulls.enough(now)
        lulls.stepped(0.001)
        lulls.ended(now + length_s)
        now += length_s + 0.01
    return lulls, now


def test_short_lulls_are_left_alone_and_long_ones_are_not() -> None:
    for length_s, enough in ((0.002, False), (0.02, True)):
        lulls, now = after_lulls(length_s)
        assert lulls.enough(now) is enough


def test_a_lull_that_proves_long_is_used_after_all() -> None:
    lulls, now = after_lulls(0.002)
    assert [lulls.enough(now + more) for more in (0.0, 0.005, 0.0085)] == [False, False, True]


def test_shortly_before_its_usual_end_it_is_left_alone_until_it_proves_longer() -> None:
    lulls, now = after_lulls(0.02)
    moments = (0.0, 0.0185, 0.0195, 0.039, 0.041)
    assert [lulls.enough(now + more) for more in moments] == [True, True, False, False, True]


def test_long_lulls_now_and_then_do_not_make_short_ones_long() -> None:
    lulls, now = after_lulls(0.002)
    for length_s in (1000.0, 0.002, 1000.0, 0.002):
        lulls.enough(now)
        lulls.ended(now + length_s)
        now += 2000.0
        assert [lulls.enough(now + more) for more in (0.0, 0.005, 0.0085)] == [False, False, True]


def test_one_short_lull_does_not_make_long_ones_short() -> None:
    lulls, now = after_lulls(0.02)
    lulls.enough(now)
    lulls.ended(now + 0.001)
    assert lulls.enough(now + 1.0)


def test_before_anything_is_known_a_lull_is_used() -> None:
    assert Lulls().enough(5.0)

from __future__ import annotations

from starsd.bus.streams import Entry, after, entries, entries_of, entry_ms


def test_entries_of_a_read() -> None:
    reply = [
        [b"q1", [[b"5-0", [b"d", b"one"]], [b"5-1", [b"boot", b"b1"]], [b"5-2", None]]],
        [b"q2", [[b"9-3", [b"x", b"y", b"d", b"two"]]]],
    ]
    assert list(entries(reply)) == [
        Entry("q1", "5-0", b"one"),
        Entry("q1", "5-1", None),
        Entry("q1", "5-2", None),
        Entry("q2", "9-3", b"two"),
    ]
    assert list(entries(None)) == []


def test_deleted_entries_of_an_old_autoclaim_are_skipped() -> None:
    assert list(entries_of("q", [None, [b"1-0", [b"d", b""]]])) == [Entry("q", "1-0", b"")]


def test_ids() -> None:
    assert entry_ms("1700-3") == 1700
    assert after("1700-3") == "1700-4"

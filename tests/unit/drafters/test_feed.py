"""Which states of a sequence a head still has to read, as jobs come."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starsd.drafters.interface import DraftSequence
from starsd.engine.interface import Features
from starsd.protocol.sampling import SamplingParams


def rows(first: int, last: int) -> Features:
    """Row ``i`` says ``i``."""
    return np.arange(first, last, dtype=np.uint16)[:, None]


def make_sequence() -> DraftSequence:
    return DraftSequence(slot=0, sampling=SamplingParams(seed=1), vocab_limit=100)


def extend(sequence: DraftSequence, base: int, length: int, first: int, depth: int = 4) -> None:
    """A job with new tokens up to ``length`` and the states from position ``first`` on."""
    tokens = [*range(base, length)]
    sequence.extend(base, tokens, depth, features=rows(first, length - 1))


def read(sequence: DraftSequence, count: int) -> list[int]:
    """The head reads so many positions; which they were."""
    start = sequence.cached - 1
    found: list[int] = sequence.feed.of(start, count)[:, 0].tolist()
    sequence.cached += count
    sequence.feed.forget(sequence.cached - 1)
    return found


def test_a_prefix_and_what_follows() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 10, 0)
    assert (sequence.cached, sequence.feed.origin) == (1, 0)
    assert read(sequence, 4) == [0, 1, 2, 3]
    assert read(sequence, 5) == [4, 5, 6, 7, 8]
    assert sequence.cached == 10
    extend(sequence, 10, 13, 9)
    assert read(sequence, 3) == [9, 10, 11]
    assert sequence.cached == 13


def test_several_jobs_before_any_is_read() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 10, 0, depth=0)
    extend(sequence, 10, 20, 9, depth=0)
    extend(sequence, 20, 25, 19)
    assert read(sequence, 24) == [*range(24)]
    assert sequence.depth == 4


def test_the_last_position_can_be_read_again() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 10, 0)
    read(sequence, 9)
    extend(sequence, 10, 10, 9)
    assert (sequence.cached, sequence.depth) == (10, 4)
    assert sequence.feed.of(8, 1)[:, 0].tolist() == [8]
    assert len(sequence.feed.rows) == 1


def test_a_long_text_begins_where_its_states_do() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 100, 80)
    assert (sequence.feed.origin, sequence.cached) == (80, 81)
    assert read(sequence, 19) == [*range(80, 99)]


def test_tokens_without_states_leave_nothing_to_draft_from() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 50, 49)
    assert sequence.complete
    assert sequence.idle
    extend(sequence, 50, 52, 49)
    assert (sequence.feed.origin, sequence.depth) == (49, 4)
    assert read(sequence, 2) == [49, 50]


def test_after_a_gap_the_head_begins_anew() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 20, 0)
    read(sequence, 19)
    extend(sequence, 20, 60, 40)
    assert (sequence.feed.origin, sequence.cached) == (40, 41)
    assert read(sequence, 19) == [*range(40, 59)]


@pytest.mark.parametrize("done", [9, 5])
def test_what_travels_again_is_not_read_again(done: int) -> None:
    sequence = make_sequence()
    extend(sequence, 0, 10, 0)
    read(sequence, done)
    extend(sequence, 0, 12, 0)
    assert sequence.feed.origin == 0
    assert read(sequence, 11 - done) == [*range(done, 11)]


def test_states_of_the_end_alone_do_not_make_a_gap_where_all_is_read() -> None:
    """A resend may bring fewer positions than before: more than the head lacks is not needed."""
    sequence = make_sequence()
    extend(sequence, 0, 20, 0)
    read(sequence, 19)
    extend(sequence, 0, 22, 15)
    assert (sequence.feed.origin, sequence.cached) == (0, 20)
    assert read(sequence, 2) == [19, 20]


def test_other_tokens_are_read_with_their_own_states() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 10, 0)
    read(sequence, 9)
    sequence.extend(6, [90, 91, 92], 4, features=rows(105, 108))
    assert sequence.cached == 6
    assert sequence.feed.of(5, 3)[:, 0].tolist() == [105, 106, 107]


@given(st.data())
def test_whatever_jobs_say_the_head_finds_what_it_is_to_read(data: st.DataObject) -> None:
    """Prefixes that shrink, differ, or bring any number of states, read in any steps."""
    sequence = make_sequence()
    for _ in range(data.draw(st.integers(1, 6))):
        base = data.draw(st.integers(0, len(sequence.tokens)))
        tokens = data.draw(st.lists(st.integers(0, 1), min_size=not base, max_size=6))
        length = base + len(tokens)
        count = data.draw(st.integers(0, length - 1))
        sequence.extend(base, tokens, 3, features=rows(length - 1 - count, length - 1))
        feed = sequence.feed
        assert feed.origin < sequence.cached <= length
        assert feed.first + len(feed.rows) == length - 1
        assert (sequence.depth == 3) is (len(feed.rows) > 0)
        assert feed.origin <= min(sequence.cached - 1, length - 2) or sequence.idle
        for _ in range(data.draw(st.integers(0, 4))):
            start = min(sequence.cached - 1, length - 2)
            if not sequence.idle:
                read = feed.of(start, 2)[:, 0].tolist()
                assert read == [*range(start, min(start + 2, length - 1))]
                sequence.cached = start + len(read) + 1
                feed.forget(sequence.cached - 1)


def test_a_text_that_starts_anew() -> None:
    sequence = make_sequence()
    extend(sequence, 0, 30, 10)
    read(sequence, 19)
    sequence.extend(0, [70, 71, 72], 4, features=rows(0, 2))
    assert (sequence.feed.origin, sequence.cached) == (0, 1)
    assert read(sequence, 2) == [0, 1]

"""A sequence's proposals under a grammar."""

from __future__ import annotations

import pytest

from services.target.guess import NOTHING, Guess, Source
from services.target.sequence import MOST_FORCED, Sequence
from starsd.protocol.grammar import GrammarKind
from tests.unit.grammar.support import begin
from tests.unit.target.recording import make_sequence

REGEX = GrammarKind.REGEX


def bound(regex: str, max_tokens: int = 50) -> Sequence:
    sequence = make_sequence(max_tokens=max_tokens)
    sequence.grammar = begin(REGEX, regex)
    return sequence


def test_what_is_forced_is_proposed_where_it_is_long_enough() -> None:
    sequence = bound("abc(d|e)")
    sequence.jump(4)
    assert not sequence.proposal
    sequence.jump(3)
    assert sequence.proposal == Guess([*b"abc"], source=Source.GRAMMAR)


def test_no_more_than_a_cheap_row_holds_or_the_answer_has_room_for() -> None:
    sequence = bound("a{40}")
    sequence.jump()
    assert len(sequence.proposal) == MOST_FORCED
    short = bound("a{40}", max_tokens=3)
    short.jump()
    assert len(short.proposal) == 2


def test_the_longer_of_what_is_left_and_what_is_forced() -> None:
    for proposed, kept in [(b"abxx", b"abc"), (b"abcd", b"abcd"), (b"x", b"abc"), (b"", b"abc")]:
        sequence = bound("abc(d|e)")
        sequence.proposal = Guess([*proposed])
        sequence.obey(jump=True)
        assert sequence.proposal.tokens == [*kept]


def test_without_drafting_proposals_are_cut_and_none_are_made() -> None:
    sequence = bound("abc(d|e)")
    sequence.proposal = Guess([*b"abx"])
    sequence.obey(jump=False)
    assert sequence.proposal == Guess([*b"ab"])


def test_a_tree_is_cut_path_by_path() -> None:
    sequence = bound("a(b|c)d")
    sequence.proposal = Guess([*b"axbcd"], [-1, -1, 0, 0, 3])
    sequence.obey(jump=True)
    assert sequence.proposal == Guess([*b"abcd"], [-1, 0, 0, 2])


def test_a_sequence_without_a_grammar_obeys_none() -> None:
    sequence = make_sequence()
    sequence.proposal = proposal = Guess([1, 2, 3])
    sequence.obey(jump=True)
    assert sequence.proposal is proposal
    assert sequence.allowed is None
    sequence.proposal = NOTHING
    sequence.jump()
    assert not sequence.proposal


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_grammar_follows_what_is_accepted(count: int) -> None:
    sequence = bound("abc(d|e)")
    assert sequence.grammar is not None
    sequence.accept([*b"abc"][:count], Guess([*b"abc"][: count - 1]))
    expected = [[ord("b")], [ord("c")], [ord("d"), ord("e")]][count - 1]
    assert sequence.grammar.mask([]).nonzero()[0].tolist() == expected

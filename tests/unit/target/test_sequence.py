from __future__ import annotations

from services.target.guess import NOTHING, Guess, Source
from services.target.sequence import ROUNDS_REMEMBERED, Rounds, SentRound
from starsd.protocol.frames import FinishReason, Origin
from tests.unit.target.recording import make_sequence


def test_plain_token_has_plain_origin() -> None:
    emission = make_sequence().accept([7], Guess([]))
    assert emission[:3] == ([7], [Origin.PLAIN], None)


def test_origins_of_a_partly_accepted_proposal() -> None:
    sequence = make_sequence()
    emission = sequence.accept([5, 6, 7], Guess([5, 6, 8, 9]))
    assert emission.origins == [Origin.ACCEPTED, Origin.ACCEPTED, Origin.RECOVERED]
    assert (sequence.proposed, sequence.accepted, sequence.rounds) == (4, 2, 1)
    assert sequence.tokens == [1, 2, 3, 4, 5, 6, 7]
    assert sequence.decoding


def test_bonus_token_follows_a_wholly_accepted_proposal() -> None:
    emission = make_sequence().accept([5, 6, 7], Guess([5, 6]))
    assert emission.origins == [Origin.ACCEPTED, Origin.ACCEPTED, Origin.BONUS]


TREE = Guess([5, 9, 6, 8], [-1, -1, 0, 0])


def test_a_leafs_sample_is_the_bonus_token() -> None:
    sequence = make_sequence()
    emission = sequence.accept([5, 8, 7], TREE)
    assert emission.origins == [Origin.ACCEPTED, Origin.ACCEPTED, Origin.BONUS]
    assert (sequence.proposed, sequence.accepted, sequence.rounds) == (4, 2, 1)
    assert make_sequence().accept([9, 7], TREE).origins == [Origin.ACCEPTED, Origin.BONUS]


def test_what_no_child_said_is_recovered() -> None:
    assert make_sequence().accept([5, 7], TREE).origins == [Origin.ACCEPTED, Origin.RECOVERED]
    assert make_sequence().accept([7], TREE).origins == [Origin.RECOVERED]


def test_the_text_repeats_itself_within_its_room() -> None:
    sequence = make_sequence(prompt=[1, 2, 3, 4, 5, 1, 2, 3], max_tokens=3)
    sequence.repeat(8)
    assert sequence.proposal == Guess([4, 5], source=Source.NGRAM)
    sequence.accept([4, 5, 7], sequence.proposal)
    assert (sequence.accepted, sequence.repeated) == (2, 2)
    assert sequence.stats.repeated == 2


def test_a_hubs_tokens_are_not_its_own() -> None:
    sequence = make_sequence(prompt=[1, 2, 3, 4, 5, 1, 2, 3])
    sequence.repeat(8)
    sequence.accept([4, 5, 7], Guess([4, 5]))
    assert (sequence.accepted, sequence.repeated) == (2, 0)


def test_a_wrong_repetition_asks_for_a_longer_match() -> None:
    sequence = make_sequence(prompt=[1, 2, 3, 4, 5, 1, 2])
    sequence.repeat(8)
    assert sequence.proposal.tokens == [3, 4]
    sequence.accept([7], sequence.proposal)
    sequence.proposal = NOTHING
    sequence.accept([1, 2], NOTHING)
    sequence.repeat(8)
    assert not sequence.proposal


def test_nothing_after_end_of_sequence() -> None:
    sequence = make_sequence()
    emission = sequence.accept([5, 99, 6, 7], Guess([5, 99, 6]))
    assert emission[:3] == ([5, 99], [Origin.ACCEPTED, Origin.ACCEPTED], FinishReason.STOP)
    assert sequence.accepted == 2


def test_end_of_sequence_wins_over_length_at_the_same_token() -> None:
    emission = make_sequence(max_tokens=2).accept([5, 99, 6], Guess([5, 99]))
    assert emission.reason is FinishReason.STOP


def test_cut_at_max_tokens() -> None:
    sequence = make_sequence(max_tokens=2)
    emission = sequence.accept([5, 6, 7], Guess([5, 6]))
    assert emission[:3] == ([5, 6], [Origin.ACCEPTED, Origin.ACCEPTED], FinishReason.LENGTH)


def test_rounds_remember_a_bounded_number() -> None:
    rounds = Rounds()
    for rounds.round in range(20):
        rounds.record(SentRound(rounds.round, 4, 0.0))
    assert list(rounds.sent) == list(range(20 - ROUNDS_REMEMBERED, 20))


def test_detaching_starts_a_new_epoch_with_nothing_outstanding() -> None:
    rounds = Rounds(hub="h", have=9, round=3)
    rounds.record(SentRound(9, 4, 0.0))
    rounds.detach(5.0, "hub_gone")
    assert (rounds.epoch, rounds.round, rounds.have, rounds.hub) == (1, 0, 0, None)
    assert not rounds.outstanding
    assert not rounds.sent
    assert rounds.miss == "hub_gone"


def test_repetition_goes_no_deeper_than_the_client_allows() -> None:
    for depth, tokens in ((None, [3, 4]), (1, [3]), (0, [])):
        sequence = make_sequence(prompt=[1, 2, 3, 4, 5, 1, 2])
        sequence.draft_depth = depth
        sequence.repeat(8)
        assert sequence.proposal.tokens == tokens

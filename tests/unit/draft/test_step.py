"""The hub, message by message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs

from services.draft.sessions import SESSION_IDLE_S
from starsd.bus.interface import BadJob
from starsd.errors import EngineError
from starsd.process.channel import FrameDecoder, encode_frame
from starsd.protocol.frames import Drain, Snapshot
from starsd.protocol.messages import Have, Proposal, Refused, Status, Welcome
from starsd.protocol.pods import Needs
from starsd.protocol.tokens import EMPTY_DIGEST, prefix_digest, unpack_tokens
from tests.unit.draft.recording import VOCAB, Desktop, make_close, make_hello, make_job


@pytest.fixture
def desk() -> Iterator[Desktop]:
    desktop = Desktop()
    desktop.send(make_hello())
    desktop.run()
    yield desktop
    desktop.close()


@pytest.fixture
def make_desk() -> Iterator[Any]:
    made: list[Desktop] = []

    def make(**settings: Any) -> Desktop:
        desktop = Desktop(**settings)
        desktop.send(make_hello())
        desktop.run()
        made.append(desktop)
        return desktop

    yield make
    for desktop in made:
        desktop.close()


# -- greeting ------------------------------------------------------------------------------------


def test_hello_is_welcomed_with_limits(desk: Desktop) -> None:
    desk.send(make_hello("other:b"))
    (answer,) = desk.run()
    assert isinstance(answer, Welcome)
    assert (answer.session, answer.hub, answer.limits.max_depth) == ("other:b", "hub", 8)


def test_other_tokenizer_is_refused_with_the_reason(desk: Desktop) -> None:
    desk.send(make_hello("other:b", tokenizer="strange"))
    (answer,) = desk.run()
    assert isinstance(answer, Refused)
    assert "strange" in answer.reason
    assert "tok" in answer.reason


def test_sessions_are_bounded(make_desk: Any) -> None:
    desk = make_desk(max_sessions=1)
    desk.ask(make_job([1, 2]))
    desk.send(make_hello("second:b"))
    (answer,) = desk.run()
    assert isinstance(answer, Refused)
    desk.ask(make_close())
    desk.send(make_hello("second:b"))
    (answer,) = desk.run()
    assert isinstance(answer, Welcome)


# -- jobs ----------------------------------------------------------------------------------------


def test_drafts_the_depth_asked_for(desk: Desktop) -> None:
    (reply,) = desk.ask(make_job([10, 11, 12], depth=3))
    assert reply.status is Status.OK
    assert unpack_tokens(reply.tokens) == [3, 4, 5]
    assert reply.have == Have(3, prefix_digest([10, 11, 12]))
    assert desk.bus.acknowledged[-1] == "2-0"


def test_depth_is_capped_by_setting_and_by_room(make_desk: Any) -> None:
    desk = make_desk(max_depth=2)
    (reply,) = desk.ask(make_job([1], depth=8))
    assert len(unpack_tokens(reply.tokens)) == 2
    (reply,) = desk.ask(make_job([1] * 63, seq="long", depth=8))
    assert len(unpack_tokens(reply.tokens)) == 1


def test_trees_take_no_more_nodes_than_asked_nor_than_there_is_room_for(make_desk: Any) -> None:
    desk = make_desk(max_depth=3)
    drafts = []
    for job in (
        make_job([1], depth=4, max_nodes=15),
        make_job([1] * 60, round=1, depth=4, max_nodes=15),
        make_job([1], round=2, depth=4, max_nodes=4),
    ):
        desk.send(job)
        desk.hub._admit()
        ((_, one),) = desk.hub._sessions.sequences()
        drafts.append((one.draft.depth, one.draft.max_nodes))
    assert drafts == [(3, 15), (3, 4), (3, 3)]


@pytest.mark.parametrize(
    ("prices", "told"), [({}, ([], 0.0)), ({"prices": [0, 250], "rate": 50}, ([0.0, 0.25], 0.2))]
)
def test_a_job_tells_what_a_token_must_be_worth(
    desk: Desktop, prices: dict[str, Any], told: tuple[list[float], float]
) -> None:
    desk.hub._desk._pace.answered(0.0, service_s=0.01, steps=5, expected=1.0)
    desk.ask(make_job([1], **prices))
    ((_, one),) = desk.hub._sessions.sequences()
    assert one.draft.prices == told[0]
    assert one.draft.worth == pytest.approx(told[1])


def test_a_tree_is_sent_with_its_parents_and_a_chain_without(desk: Desktop) -> None:
    for number, parents in enumerate([[-1, -1, 0], []]):
        desk.send(make_job([1], round=number, depth=2, max_nodes=3))
        desk.hub._admit()
        ((_, one),) = desk.hub._sessions.sequences()
        one.draft.drafted, one.draft.parents = [5, 6, 7], parents
        desk.hub._reply([one])
        reply = desk.bus.replies[-1][1]
        assert isinstance(reply, Proposal)
        assert (unpack_tokens(reply.tokens), reply.parents) == ([5, 6, 7], parents or None)


@pytest.mark.parametrize(("run_ahead", "steps"), [("off", 5), ("auto", 3)])
def test_prefix_job_is_answered_at_once_and_computed_later(
    make_desk: Any, run_ahead: str, steps: int
) -> None:
    """Its end is left to run-ahead, if there is one."""
    desk = make_desk(run_ahead=run_ahead)
    desk.send(make_job([1] * 20, depth=0))
    desk.hub.step()
    assert len(desk.bus.replies) == 1
    desk.run()
    assert len(desk.drafter.batches) == steps


def test_next_round_keeps_what_agrees(desk: Desktop) -> None:
    desk.ask(make_job([1, 2, 3], depth=4))
    desk.drafter.batches.clear()
    (reply,) = desk.ask(make_job([3, 4, 77], [1, 2, 3], round=1, depth=2))
    assert unpack_tokens(reply.tokens) == [6, 7]
    assert len(desk.drafter.batches) == 2


def test_unknown_session_must_greet(desk: Desktop) -> None:
    (reply,) = desk.ask(make_job([1], session="stranger:b", reply_key="out:stranger:b"))
    assert reply.status is Status.NEED_HELLO
    assert desk.bus.acknowledged[-1] == "2-0"


def test_unknown_sequence_with_a_base_needs_its_prefix(desk: Desktop) -> None:
    (reply,) = desk.ask(make_job([3], [1, 2]))
    assert reply.status is Status.NEED_PREFIX
    assert reply.have == Have(0, EMPTY_DIGEST)


def test_wrong_digest_is_told_what_is_held(desk: Desktop) -> None:
    desk.ask(make_job([1, 2, 3]))
    (reply,) = desk.ask(make_job([4], [1, 9, 3], round=1))
    assert reply.status is Status.NEED_PREFIX
    assert reply.have == Have(3, prefix_digest([1, 2, 3]))
    (reply,) = desk.ask(make_job([4], [1, 2, 3], round=1, attempt=1))
    assert reply.status is Status.OK


def test_base_beyond_what_is_held_needs_prefix(desk: Desktop) -> None:
    desk.ask(make_job([1, 2, 3]))
    (reply,) = desk.ask(make_job([5], [1, 2, 3, 4], round=1))
    assert reply.status is Status.NEED_PREFIX


def test_expired_job_keeps_its_prefix_and_drafts_nothing(desk: Desktop) -> None:
    (reply,) = desk.ask(make_job([1, 2, 3]), age_s=5.0)
    assert reply.status is Status.EXPIRED
    assert reply.tokens == b""
    assert reply.have.length == 3
    (reply,) = desk.ask(make_job([4], [1, 2, 3], round=1))
    assert reply.status is Status.OK


@pytest.mark.parametrize(
    "job",
    [make_job([VOCAB]), msgspec.structs.replace(make_job([1]), tokens=b"12345"), make_job([])],
    ids=["vocabulary", "no u32", "empty"],
)
def test_job_out_of_contract_is_bad(desk: Desktop, job: Any) -> None:
    (reply,) = desk.ask(job)
    assert reply.status is Status.BAD
    assert desk.bus.acknowledged[-1] == "2-0"


def test_prefix_longer_than_a_slot_is_refused(desk: Desktop) -> None:
    (reply,) = desk.ask(make_job([1] * 65))
    assert reply.status is Status.REFUSED
    assert reply.max_depth == 0
    assert reply.retry_after_ms > 0


# -- idempotence ---------------------------------------------------------------------------------


def test_g7_duplicate_of_a_finished_round_gets_the_same_reply(desk: Desktop) -> None:
    job = make_job([1, 2, 3])
    (first,) = desk.ask(job)
    computed = len(desk.drafter.batches)
    (second,) = desk.ask(job)
    assert second == first
    assert len(desk.drafter.batches) == computed


def test_duplicate_of_a_round_in_progress_is_acknowledged_only(desk: Desktop) -> None:
    job = make_job([1, 2, 3])
    desk.send(job)
    desk.hub.step()
    (reply,) = desk.ask(job)
    assert reply.status is Status.OK
    assert desk.bus.acknowledged == ["1-0", "3-0", "2-0"]


def test_older_round_is_acknowledged_without_reply(desk: Desktop) -> None:
    desk.ask(make_job([1, 2], round=5))
    assert desk.ask(make_job([1], round=4)) == []
    assert desk.bus.acknowledged[-1] == "3-0"


def test_newer_round_supersedes_one_in_progress(desk: Desktop) -> None:
    desk.send(make_job([1, 2, 3]))
    desk.hub.step()
    (reply,) = desk.ask(make_job([9], [1, 2, 3], round=1, depth=2))
    assert reply.round == 1
    assert sorted(desk.bus.acknowledged) == ["1-0", "2-0", "3-0"]


def test_newer_epoch_starts_over(desk: Desktop) -> None:
    desk.ask(make_job([1, 2, 3], round=7))
    (reply,) = desk.ask(make_job([1, 2, 3, 4], epoch=1, round=0))
    assert (reply.status, reply.epoch) == (Status.OK, 1)


# -- batching and slots --------------------------------------------------------------------------


def test_all_waiting_jobs_share_each_step(desk: Desktop) -> None:
    desk.ask(make_job([1], seq="a", depth=3), make_job([1], seq="b", depth=3))
    assert desk.drafter.batches == [[0, 1], [0, 1], [0, 1]]


def test_newcomer_joins_at_the_next_token(desk: Desktop) -> None:
    desk.send(make_job([1], seq="a", depth=4))
    desk.hub.step()
    desk.ask(make_job([1], seq="b", depth=2))
    assert [sorted(batch) for batch in desk.drafter.batches] == [[0], [0, 1], [0, 1], [0]]


def test_tokens_go_before_prefixes_and_the_longest_unserved_first(desk: Desktop) -> None:
    desk.send(make_job([1] * 30, seq="long", depth=0))
    desk.hub.step()
    desk.send(make_job([1], seq="short", depth=1))
    desk.hub.step()
    assert desk.drafter.batches[-1] == [1, 0]


def test_no_room_is_refused_and_first_jobs_are_left_to_others(desk: Desktop) -> None:
    desk.ask(make_job([1], seq="a"), make_job([1], seq="b"))
    (reply,) = desk.ask(make_job([1], seq="c"))
    assert (reply.status, reply.retry_after_ms) == (Status.REFUSED, 200)
    assert desk.bus.wanted_first[-1] == 0


def test_idle_sequence_makes_room_after_a_while(desk: Desktop) -> None:
    desk.ask(make_job([1], seq="a"), make_job([1], seq="b"))
    desk.clock.now = 2.5
    desk.ask(make_job([2], [1], seq="b", round=1))
    (reply,) = desk.ask(make_job([1], seq="c"))
    assert reply.status is Status.OK
    (reply,) = desk.ask(make_job([2], [1], seq="a", round=1))
    assert reply.status is Status.NEED_PREFIX


def test_sequence_being_served_is_never_evicted(make_desk: Any) -> None:
    desk = make_desk(slots=1, evict_idle_s=0.0)
    desk.send(make_job([1], seq="a", depth=4))
    desk.hub.step()
    desk.clock.now = 10.0
    replies = desk.ask(make_job([1], seq="b"))
    assert [(reply.seq, reply.status) for reply in replies] == [
        ("b", Status.REFUSED),
        ("a", Status.OK),
    ]


def test_close_frees_the_slot(desk: Desktop) -> None:
    desk.ask(make_job([1], seq="a"), make_job([1], seq="b"), make_close(seq="a"))
    (reply,) = desk.ask(make_job([1], seq="c"))
    assert reply.status is Status.OK


def test_closing_a_session_frees_all_of_it(desk: Desktop) -> None:
    desk.ask(make_job([1], seq="a"), make_job([1], seq="b"), make_close(seq=None))
    (reply,) = desk.ask(make_job([1], seq="c"))
    assert reply.status is Status.NEED_HELLO
    assert desk.bus.wanted_first[-1] == 2


def test_session_whose_reply_stream_is_gone_is_forgotten(desk: Desktop) -> None:
    desk.bus.gone = ["out:t:b"]
    desk.ask(make_job([1]))
    (reply,) = desk.ask(make_job([2], [1], round=1))
    assert reply.status is Status.NEED_HELLO


def test_jobs_of_a_session_whose_reply_stream_is_gone_are_acknowledged(desk: Desktop) -> None:
    """Else they would be delivered again until they are too old."""
    (entry,) = desk.send(make_job([1], depth=4))
    desk.hub.step()
    desk.bus.gone = ["out:t:b"]
    desk.hub.step()
    assert entry in desk.bus.acknowledged
    steps = len(desk.drafter.batches)
    assert desk.run() == []
    assert len(desk.drafter.batches) == steps


def test_a_flood_of_bad_entries_is_counted_and_told_once(desk: Desktop) -> None:
    desk.bus.arriving += [BadJob("garbage")] * 50
    with capture_logs() as lines:
        desk.run()
    assert b"starsd:hub_entries_bad_total 50.0" in desk.hub._stats.exposition()
    assert [line["event"] for line in lines] == ["bad entry"]


def test_session_unused_for_long_is_forgotten(desk: Desktop) -> None:
    desk.ask(make_job([1]), make_close())
    desk.clock.now = SESSION_IDLE_S - 1
    desk.hub.forget_idle()
    (reply,) = desk.ask(make_job([1], round=1))
    assert reply.status is Status.OK
    desk.ask(make_close())
    desk.clock.now = 2 * SESSION_IDLE_S
    desk.hub.forget_idle()
    (reply,) = desk.ask(make_job([1], round=2))
    assert reply.status is Status.NEED_HELLO


def test_e19_proposals_stay_inside_the_targets_vocabulary(desk: Desktop) -> None:
    desk.send(make_hello("small:b", vocab=10))
    desk.ask(make_job([1], session="small:b", reply_key="out:small:b"))
    (_, sequence), *_ = desk.hub._sessions.sequences()
    assert sequence.draft.vocab_limit == 10


def test_bad_entries_are_counted_and_skipped(desk: Desktop) -> None:
    desk.bus.arriving.append(BadJob("garbage"))
    (reply,) = desk.ask(make_job([1]))
    assert reply.status is Status.OK


def test_failing_drafter_refuses_its_batch_and_the_hub_goes_on(
    desk: Desktop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(sequences: object) -> None:
        raise EngineError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(desk.drafter, "step", fail)
        replies = desk.ask(make_job([1], seq="a"), make_job([1], seq="b"))
    assert [reply.status for reply in replies] == [Status.REFUSED, Status.REFUSED]
    replies = desk.ask(make_job([1], seq="a", epoch=1), make_job([1], seq="b", epoch=1))
    assert [reply.status for reply in replies] == [Status.OK, Status.OK]


# -- draining ------------------------------------------------------------------------------------


def test_a_draining_hub_takes_no_first_jobs_and_serves_what_it_has(desk: Desktop) -> None:
    desk.ask(make_job([1], seq="a"))
    desk.front.sendall(encode_frame(Drain()))
    desk.hub._obey()
    (reply,) = desk.ask(make_job([2], [1], seq="a", round=1))
    assert reply.status is Status.OK
    assert desk.bus.wanted_first[-1] == 0


def test_the_front_is_told_how_long_ago_there_was_a_job(desk: Desktop) -> None:
    seen: list[Snapshot] = []
    decoder: FrameDecoder[Snapshot] = FrameDecoder(Snapshot)
    for now in (10.0, 12.5):
        desk.clock.now = now
        if now == 10.0:
            desk.ask(make_job([1]))
        desk.hub.report()
        seen += decoder.feed(desk.front.recv(1 << 20))
    assert [one.quiet_s for one in seen] == [0.0, 2.5]


# -- states of the target ------------------------------------------------------------------------

WIDTH = 4


@pytest.fixture
def head_desk(make_desk: Any) -> Any:
    """A hub whose drafter reads two layers of two numbers."""
    return make_desk(needs=Needs(hidden_size=2, layers=(1, 3), revision="r"))


def states(count: int, number: int = 0x3F80) -> bytes:
    return np.full((count, WIDTH), number, np.uint16).tobytes()


def test_a_job_brings_states_for_its_positions(head_desk: Desktop) -> None:
    (reply,) = head_desk.ask(make_job([1, 2, 3], features=states(2)))
    assert (reply.status, len(unpack_tokens(reply.tokens))) == (Status.OK, 4)
    (_, sequence), *_ = head_desk.hub._sessions.sequences()
    assert sequence.draft.feed.rows.shape == (2, WIDTH)


def test_without_states_there_is_nothing_to_draft_from(head_desk: Desktop) -> None:
    (reply,) = head_desk.ask(make_job([1, 2, 3]))
    assert (reply.status, reply.tokens) == (Status.OK, b"")
    assert reply.have.length == 3


@pytest.mark.parametrize(
    "features",
    [states(2)[:-1], states(1) + b"\0\0", states(3), states(2, 0x7F80), states(2, 0xFFC0)],
    ids=["half a number", "half a row", "more than positions", "infinite", "no number"],
)
def test_malformed_states_are_bad_and_change_nothing(head_desk: Desktop, features: bytes) -> None:
    head_desk.ask(make_job([7, 8], seq="other", features=states(1)))
    (reply,) = head_desk.ask(make_job([1, 2, 3], features=features))
    assert (reply.status, reply.have.length) == (Status.BAD, 0)
    (reply,) = head_desk.ask(make_job([9], [7, 8], seq="other", round=1, features=states(1)))
    assert (reply.status, len(unpack_tokens(reply.tokens))) == (Status.OK, 4)
    (reply,) = head_desk.ask(make_job([1, 2, 3], round=1, features=states(2)))
    assert (reply.status, reply.have.length) == (Status.OK, 3)


def test_a_language_model_reads_no_states(desk: Desktop) -> None:
    (reply,) = desk.ask(make_job([1, 2, 3], features=b"whatever"))
    assert (reply.status, len(unpack_tokens(reply.tokens))) == (Status.OK, 4)


def test_a_target_of_other_weights_is_refused(make_desk: Any) -> None:
    desk = make_desk(needs=Needs(hidden_size=2, layers=(1,), revision="other"))
    desk.send(make_hello("t:c"))
    (answer,) = desk.run()
    assert isinstance(answer, Refused)
    assert answer.reason.startswith("revision: hub drafts for other")

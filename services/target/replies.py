"""Judging a hub's reply to one sequence. Whatever is out of place is nothing but uncounted help:
a reply can only ever become ``sequence.proposal``, which verification checks token by token."""

from __future__ import annotations

from dataclasses import replace

from services.target.guess import Guess, Source
from services.target.sequence import SentRound, Sequence
from starsd.errors import ProtocolError
from starsd.protocol.messages import Foresight, Proposal, Status
from starsd.protocol.tokens import prefix_digest, unpack_tokens


def belongs(told: Proposal | Foresight, sequence: Sequence) -> bool:
    """Whether it is about a job this sequence remembers sending, from the hub it is with."""
    star = sequence.star
    return told.epoch == star.epoch and told.round in star.sent and star.hub in (None, told.hub)


def learn(proposal: Proposal, sequence: Sequence) -> None:
    """Believe what the hub holds only as far as its digest proves it."""
    star, have = sequence.star, proposal.have
    prefix = sequence.tokens[: have.length]
    proved = len(prefix) == have.length and have.digest == prefix_digest(prefix)
    length = have.length if proved else 0
    # Replies may overtake each other: an ok one never takes back what another proved.
    star.have = max(star.have, length) if proposal.status is Status.OK else length
    star.max_depth = proposal.max_depth


def settle(proposal: Proposal, sequence: Sequence, miss: str) -> None:
    """The round is over, if it is still the current one."""
    if proposal.round == sequence.star.round:
        sequence.star.settle(miss)


def take(proposal: Proposal, sequence: Sequence, vocab_size: int) -> Guess | None:
    """Use what is proposed beyond the tokens emitted since the job left (the reply may be late).

    Returns all that is proposed, or None if the tokens break the contract of the job.
    """
    sent = sequence.star.sent[proposal.round]
    drafted = _checked(proposal, sent, vocab_size)
    if drafted is None:
        settle(proposal, sequence, "bad")
        return None
    settle(proposal, sequence, "" if drafted else "empty" if sent.depth else "prefix")
    usable = drafted.after(sequence.tokens[sent.length :]).within(sequence.room - 1)
    if len(usable) > len(sequence.proposal) and sequence.proposal.source is Source.HUB:
        sequence.proposal = usable
    return drafted


def _checked(proposal: Proposal, sent: SentRound, vocab_size: int) -> Guess | None:
    """What is proposed, or None: not ids of ours, no tree of distinct siblings, larger or deeper
    than was asked, or a tree that was not asked for."""
    try:
        tokens = unpack_tokens(proposal.tokens)
    except ProtocolError:
        return None
    parents, most = proposal.parents, max(sent.depth, sent.nodes)
    if len(tokens) > most or any(token >= vocab_size for token in tokens):
        return None
    drafted = Guess(tokens) if parents is None else Guess.tree(tokens, parents)
    if drafted is None or len(drafted.levels) > sent.depth:
        return None
    if drafted.parents is not None and not sent.nodes:
        return None
    return replace(drafted, asked=sent.depth, allowed=sent.nodes)

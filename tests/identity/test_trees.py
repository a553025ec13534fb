"""Trees of proposals: the text is plain decoding's, more of it is accepted, and defects show."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import structs

from services.target import verifying
from starsd.engine.interface import Logits, Row, Runner
from starsd.protocol.messages import Proposal
from starsd.protocol.sampling import Penalties
from starsd.protocol.tokens import pack_tokens, unpack_tokens
from starsd.sampling.verification import verify
from starsd.settings.target import TargetSettings
from tests.identity.scripted_star import (
    PATIENT,
    draft_runner,
    make_requests,
    plain_tokens,
    target_runner,
    tokens,
)
from tests.identity.support import make_requests as tiny_requests
from tests.identity.test_adversaries import TwistedBus, change, twisted
from tests.identity.test_matrix import STAR, outcomes, plain
from tests.ministar import Answer, MiniStar
from tests.scripted import POSITION_BYTES, HashModel
from tests.tiny import LAYERS_DRAFT, NOISY_DRAFT

TREES = {"trees": "on"}
Parents = list[int]


def grove(**changes: Any) -> MiniStar:
    """Two patient targets that take trees of a drifting draft."""
    given: dict[str, Any] = {"target": PATIENT, "draft": TREES, **changes}
    return MiniStar([target_runner() for _ in range(2)], draft_runner(), **given)


def per_round(answers: list[Answer]) -> float:
    return sum(one.stats.accepted for one in answers) / sum(one.stats.rounds for one in answers)


@pytest.mark.parametrize("draft", [LAYERS_DRAFT, NOISY_DRAFT])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_star_of_trees_is_plain_decoding_and_accepts_more(
    targets: list[Runner], drafts: dict[str, Runner], temperature: float, draft: str
) -> None:
    """Eight at once on two targets."""
    requests = tiny_requests(8, temperature)
    with MiniStar(targets, drafts[draft], target=STAR) as star:
        chains = star.run(requests)
    with MiniStar(targets, drafts[draft], target=STAR, draft=TREES) as star:
        trees = star.run(requests)
    assert outcomes(trees) == plain(targets[0], requests)
    assert per_round(trees) > 1.2 * per_round(chains)


@pytest.mark.parametrize(
    "sampling",
    [
        {"top_k": 5, "min_p": 0.02},
        {"top_p": 0.7},
        {"penalties": Penalties(0.5, 0.5, 1.2), "bias": {5: 2.0}},
    ],
    ids=["top_k", "top_p", "penalties"],
)
def test_filters_and_penalties_act_along_the_path(
    targets: list[Runner], drafts: dict[str, Runner], sampling: dict[str, Any]
) -> None:
    requests = tiny_requests(8, 0.9, **sampling)
    with MiniStar(targets, drafts[NOISY_DRAFT], target=STAR, draft=TREES) as star:
        answers = star.run(requests)
    assert outcomes(answers) == plain(targets[0], requests)
    assert per_round(answers) > 1.0


def test_logprobs_are_those_along_the_path() -> None:
    requests = [structs.replace(one, logprobs=3) for one in make_requests(8)]
    with MiniStar([target_runner()], target={"drafting": False}) as star:
        alone = star.run(requests)
    with grove() as star:
        answers = star.run(requests)
    assert per_round(answers) > 1.0
    assert [one.logprobs for one in answers] == [one.logprobs for one in alone]
    assert all(len(one.logprobs) == len(one.tokens) for one in answers)


def test_nodes_and_depths_are_counted() -> None:
    """A proposal reaches a depth once, with as many tokens as it has there."""
    with grove() as star:
        star.run(make_requests(8))
        reaching = [counted(star, "drafts_reaching", position=at) for at in "01"]
        nodes = [counted(star, "draft_tokens", position=at) for at in "01"]
        rounds = counted(star, "drafts")
    assert rounds == reaching[0] >= reaching[1]
    assert all(many > 2 * once for many, once in zip(nodes, reaching, strict=True))


def counted(star: MiniStar, name: str, **labels: str) -> float:
    return sum(pod.metric(f"starsd:spec_decode_num_{name}_total", **labels) for pod in star.pods)


def malformed(star: MiniStar) -> float:
    return sum(pod.metric("starsd:hub_replies_total", status="malformed") for pod in star.pods)


@pytest.mark.parametrize("nodes", [0, 4, 5, 9])
def test_no_proposal_is_larger_than_was_asked(nodes: int) -> None:
    """Up to the depth of 4 chains are asked for."""
    requests = make_requests(4)
    with grove(target={**PATIENT, "draft_depth": 4, "draft_nodes": nodes}) as star:
        rows = watch(star)
        answers = star.run(requests)
    assert tokens(answers) == plain_tokens(requests)
    assert max(row.want - 1 for row in rows) == max(nodes, 4)
    assert any(row.parents is not None for row in rows) == (nodes > 4)


def watch(star: MiniStar) -> list[Row]:
    """Rows of all forwards of the targets from now on."""
    seen: list[Row] = []
    for pod in star.pods:

        def forward(rows: Sequence[Row], runner: Any = pod.runner._runner) -> Any:
            seen.extend(rows)
            return runner.forward(rows)

        pod.runner.forward = forward  # type: ignore[method-assign]
    return seen


# -- hostile hubs --------------------------------------------------------------------------------


def shaped(parents: Callable[[int], Parents]) -> Callable[[TwistedBus, Proposal], list[Any]]:
    """The drafted tokens, as another tree."""

    def twist(bus: TwistedBus, proposal: Proposal) -> list[Any]:
        return change(proposal, parents=parents(len(proposal.tokens) // 4))

    return twist


def any_tokens(bus: TwistedBus, proposal: Proposal) -> list[Any]:
    """A lawful tree of 15 nodes that has little to do with the text."""
    choose, nodes = random.Random(proposal.round), set[tuple[int, int]]()
    drafted = unpack_tokens(proposal.tokens)
    depths = {-1: 0}
    made: list[tuple[int, int]] = []
    while len(made) < 15:
        parent = choose.choice([node for node, depth in depths.items() if depth < 4])
        pair = (parent, choose.choice([*drafted, *range(200, 210)]))
        if pair not in nodes:
            nodes.add(pair)
            depths[len(made)] = depths[parent] + 1
            made.append(pair)
    return change(
        proposal,
        tokens=pack_tokens([token for _, token in made]),
        parents=[parent for parent, _ in made],
    )


def many(bus: TwistedBus, proposal: Proposal) -> list[Any]:
    return change(proposal, tokens=pack_tokens(list(range(16))), parents=[-1] * 16)


def deep(bus: TwistedBus, proposal: Proposal) -> list[Any]:
    return change(proposal, tokens=pack_tokens(list(range(6))), parents=[-1, -1, 1, 2, 3, 4])


def twins(bus: TwistedBus, proposal: Proposal) -> list[Any]:
    token = unpack_tokens(proposal.tokens)[0]
    return change(proposal, tokens=pack_tokens([token] * 3), parents=[-1, -1, 0])


BROKEN: dict[str, Any] = {
    "cycle": shaped(lambda n: [*range(1, n), 0]),
    "own parent": shaped(lambda n: list(range(n))),
    "parent after child": shaped(lambda n: [1, *([-1] * (n - 1))]),
    "below the root": shaped(lambda n: [-2] * n),
    "out of range": shaped(lambda n: [2**40] * n),
    "too few": shaped(lambda n: [-1] * (n - 1)),
    "too many": shaped(lambda n: [-1] * (n + 1)),
    "sixteen": many,
    "deep": deep,
    "twins": twins,
}


@pytest.mark.parametrize("name", [*BROKEN])
def test_a_broken_tree_is_malformed_and_changes_nothing(name: str) -> None:
    requests = make_requests()
    with grove(bus_type=twisted(BROKEN[name])) as star:
        answers = star.run(requests)
        leaked = [pod.loop.open_requests for pod in star.pods]
        wrong = malformed(star)
    assert tokens(answers) == plain_tokens(requests)
    assert wrong > 10
    assert leaked == [0, 0]


def test_a_tree_that_nobody_asked_for_is_malformed() -> None:
    requests = make_requests()
    bus = twisted(shaped(lambda n: [-1] * n))
    with grove(target={**PATIENT, "draft_nodes": 0}, bus_type=bus) as star:
        answers = star.run(requests)
        wrong = malformed(star)
    assert tokens(answers) == plain_tokens(requests)
    assert wrong > 10


def test_a_lawful_tree_of_anything_changes_no_text() -> None:
    requests = make_requests()
    with grove(bus_type=twisted(any_tokens)) as star:
        answers = star.run(requests)
    assert tokens(answers) == plain_tokens(requests)
    assert sum(one.stats.accepted for one in answers) > 10


# -- little room ---------------------------------------------------------------------------------


@pytest.mark.parametrize("step_tokens", [16, 17, 23])
def test_the_tokens_of_a_step_cut_trees(step_tokens: int) -> None:
    requests = make_requests(8)
    with grove(target={**PATIENT, "step_tokens": step_tokens}) as star:
        answers = star.run(requests)
    assert tokens(answers) == plain_tokens(requests)
    assert per_round(answers) > 0.3


def test_memory_cuts_trees() -> None:
    requests = make_requests(6, max_tokens=90)
    settings = TargetSettings(max_sequences=8, max_length=256, kv_memory=7 * 64 * POSITION_BYTES)
    runner = HashModel(settings).runner()
    with MiniStar([runner], draft_runner(), target=PATIENT, draft=TREES) as star:
        answers = star.run(requests)
        preemptions = star.pods[0].metric("starsd:preemptions_total")
    assert tokens(answers) == plain_tokens(requests)
    assert preemptions > 0
    assert per_round(answers) > 0.5


def test_the_end_of_the_context_cuts_trees() -> None:
    """A row of all nodes would not fit the slot."""
    requests = make_requests(4, max_tokens=200)
    longest = max(len(request.prompt) for request in requests) + 20
    settings = TargetSettings(max_sequences=8, max_length=longest)
    runner = HashModel(settings).runner()
    with MiniStar([runner], draft_runner(), target=PATIENT, draft=TREES) as star:
        rows = watch(star)
        answers = star.run(requests)
    for request, answer, text in zip(requests, answers, plain_tokens(requests), strict=True):
        count = longest - len(request.prompt)
        assert (answer.error, answer.tokens) == (None, text[:count])
    assert any(row.start + len(row.tokens) == longest for row in rows if row.parents)


# -- mutants -------------------------------------------------------------------------------------


def test_a_sibling_that_is_not_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def accepting_a_sibling(
        logits: Logits, proposal: Sequence[int], *rest: Any, parents: Any, **more: Any
    ) -> list[int]:
        sampled = verify(logits, proposal, *rest, parents=parents, **more)
        top = [proposal[node] for node, parent in enumerate(parents or ()) if parent < 0]
        return [top[-1], *sampled[1:]] if sampled[0] in top else sampled

    requests = make_requests()
    expected = plain_tokens(requests)
    monkeypatch.setattr(verifying, "verify", accepting_a_sibling)
    with grove() as star:
        assert [answer.tokens for answer in star.run(requests)] != expected


def test_compaction_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = make_requests()
    expected = plain_tokens(requests)
    with grove() as star:
        for pod in star.pods:
            monkeypatch.setattr(pod.runner, "compact", lambda slot, start, path: None)
        assert [answer.tokens for answer in star.run(requests)] != expected


def test_compaction_skipped_in_a_real_cache(
    targets: list[Runner], drafts: dict[str, Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = tiny_requests(8, 0.8)
    expected = plain(targets[0], requests)
    with MiniStar(targets, drafts[NOISY_DRAFT], target=STAR, draft=TREES) as star:
        for pod in star.pods:
            monkeypatch.setattr(pod.runner, "compact", lambda slot, start, path: None)
        assert [(one.tokens, one.reason) for one in star.run(requests)] != expected

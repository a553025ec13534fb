from __future__ import annotations

import pytest

from starsd.bench.draft.costs import Costs
from starsd.bench.draft.replay import Round
from starsd.bench.draft.result import Hit, drafted, expected, hits, places, told
from tests.unit.bench_draft.support import texts_of

COSTS = Costs(10.0, {"chain": 1.1, "tree": 1.2}, {("d", "chain"): 0.1, ("d", "tree"): 0.2})
CHAINS = [
    Round([1, 2, 3], None, [0, 1], tokens=3, steps=3, looping=False),
    Round([1, 2], None, [], tokens=1, steps=2, looping=False),
    Round([1, 2, 3], None, [0, 1, 2], tokens=4, steps=3, looping=True),
    Round([], None, [], tokens=1, steps=0, looping=False),
]
TREE = Round([7, 8, 9, 5], [-1, -1, 0, 1], [1, 3], tokens=3, steps=2, looping=False)


def test_acceptance_is_of_all_rounds_and_sums_to_what_is_accepted() -> None:
    found = drafted("d", 0.7, {"chain": CHAINS}, COSTS, 4)
    assert found.acceptance == [0.5, 0.5, 0.25, 0.0]
    assert 1 + sum(found.acceptance) == found.chain.tokens == 2.25
    assert found.acceptance_without_loops == pytest.approx([1 / 3, 1 / 3, 0, 0])
    assert (found.draft, found.temperature, found.tree, found.hits) == ("d", 0.7, None, [])


def test_rounds_and_the_speed_they_promise() -> None:
    chain = drafted("d", 0, {"chain": CHAINS}, COSTS, 4).chain
    assert (chain.rounds, chain.proposed, chain.steps, chain.nodes) == (4, 0.75, 2, 2)
    assert chain.step_cost == 0.1
    assert chain.speed == pytest.approx(2.25 / (0.75 * 1.1 + 0.25 + 2 * 0.1))
    assert chain.tokens_without_loops == pytest.approx(5 / 3)
    sound = 5 / 3 / (2 / 3 * 1.1 + 1 / 3 + 5 / 3 * 0.1)
    assert chain.speed_without_loops == pytest.approx(sound)


def test_nothing_is_left_where_all_loops() -> None:
    found = drafted("d", 0, {"chain": CHAINS[2:3]}, COSTS, 2)
    assert found.acceptance_without_loops == []
    assert (found.chain.tokens_without_loops, found.chain.speed_without_loops) == (None, None)


def test_ngrams_cost_no_steps() -> None:
    found = drafted("ngram", 0, {"chain": [CHAINS[3]]}, COSTS, 2)
    assert (found.chain.step_cost, found.chain.speed) == (None, 1.0)
    assert expected([CHAINS[3], TREE], 1.2, None) == pytest.approx(2 / 1.1)


def test_trees_by_depth_and_rank() -> None:
    found = drafted("d", 0, {"chain": CHAINS, "tree": [TREE, TREE]}, COSTS, 4)
    assert found.tree is not None
    assert (found.tree.tokens, found.tree.step_cost) == (3, 0.2)
    assert found.hits == [
        Hit(1, 1, proposed=2, reached=2, hits=0),
        Hit(1, 2, proposed=2, reached=2, hits=2),
        Hit(2, 1, proposed=4, reached=2, hits=2),
    ]
    assert [hit.rate for hit in found.hits] == [0, 1, 1]


def test_a_chain_where_trees_may_be_is_all_of_rank_one() -> None:
    assert [(hit.depth, hit.rank, hit.hits) for hit in hits(CHAINS[:1])] == [
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 0),
    ]
    assert hits([CHAINS[3]]) == []


def test_places_of_nodes() -> None:
    assert places([-1, 0, -1, 0, 2, 3]) == [(1, 1), (2, 1), (1, 2), (2, 2), (2, 1), (3, 1)]


def test_what_the_target_told() -> None:
    found = told(1.0, texts_of(), COSTS)
    assert (found.answers, found.tokens, found.looping) == (3, 90, 0)
    assert (found.plain_ms, found.verify) == (10.0, {"chain": 1.1, "tree": 1.2})

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from starsd.drafters.tree import Tree
from starsd.sampling.verification import ROOT

SHARES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=4).map(
    lambda xs: sorted((x / max(1.0, sum(xs)) for x in xs), reverse=True)
)


def grow(tree: Tree, levels: Iterator[list[float]]) -> None:
    """The frontier's nodes take their shares in turn; tokens are 0, 1, 2... among siblings."""
    shares = [next(levels, [0.5]) for _ in tree.frontier]
    tree.grow([(range(len(own)), own) for own in shares])


def grown(max_nodes: int, max_depth: int, width: int, levels: list[list[float]]) -> Tree:
    tree, shares = Tree(max_nodes, max_depth, 0.0, width), iter(levels)
    while tree.frontier:
        grow(tree, shares)
    return tree


def test_a_tree_of_one_candidate_each_is_a_chain() -> None:
    tree = grown(15, 4, 3, [[0.9], [0.8], [0.7], [0.6]])
    assert tree.best().tokens == [0, 0, 0, 0]
    assert tree.best().parents == [-1, 0, 1, 2]


def test_the_likeliest_are_expanded_first_whatever_their_depth() -> None:
    tree = Tree(max_nodes=15, max_depth=3, worth=0.0, width=1)
    assert tree.frontier == [ROOT]
    tree.grow([([10, 11, 12], [0.5, 0.15, 0.1])])
    assert tree.frontier == [0]
    tree.grow([([20, 21], [0.4, 0.1])])  # .2 and .05
    assert tree.frontier == [3]
    assert tree.path(3) == (10, 20)
    tree.grow([([], [])])
    assert tree.frontier == [1]


def test_a_frontier_is_no_wider_than_asked() -> None:
    tree = Tree(max_nodes=15, max_depth=3, worth=0.0, width=2)
    tree.grow([([10, 11, 12], [0.3, 0.5, 0.1])])
    assert tree.frontier == [1, 0]


def test_a_branch_holds_what_leads_to_the_frontier_before_it() -> None:
    tree = Tree(max_nodes=15, max_depth=3, worth=0.0, width=2)
    assert tree.branch() == ([], [], [])
    tree.grow([([10, 11], [0.4, 0.6])])
    assert tree.branch() == ([1, 0], [11, 10], [-1, -1])
    tree.grow([([20, 21], [0.7, 0.1]), ([30], [0.9])])
    branch = tree.branch()
    assert branch.nodes == [0, 1, 2, 4]
    assert branch.tokens == [10, 11, 20, 30]
    assert branch.parents == [-1, -1, 1, 0]


def test_what_could_not_be_sent_is_not_expanded() -> None:
    tree = Tree(max_nodes=2, max_depth=3, worth=0.0, width=1)
    tree.grow([([10, 11, 12], [0.5, 0.3, 0.1])])
    assert tree.frontier == [0]
    tree.grow([([20, 21], [0.9, 0.1])])  # .45: above 11, which cannot gain any more
    assert tree.best().tokens == [10, 20]
    tree.grow([([30], [0.8])])
    assert tree.frontier == []
    assert tree.best().tokens == [10, 20]


def test_what_is_not_worth_a_step_is_not_expanded_but_sent() -> None:
    tree = Tree(max_nodes=15, max_depth=3, worth=0.3, width=9)
    tree.grow([([10, 11], [0.5, 0.2])])
    assert tree.frontier == [0]
    tree.grow([([20], [0.5])])
    assert tree.frontier == []
    assert tree.best().tokens == [10, 20, 11]


def test_what_is_less_likely_than_asked_for_is_not_sent() -> None:
    tree = Tree(max_nodes=15, max_depth=3, worth=0.0, width=9, prices=[0.2])
    tree.grow([([10, 11, 12], [0.5, 0.2, 0.19])])
    assert tree.frontier == [0, 1]
    tree.grow([([20, 21], [0.5, 0.1]), ([30], [0.9])])
    assert tree.frontier == [2]
    tree.grow([([40], [0.7])])
    assert tree.frontier == []
    assert tree.best().tokens == [10, 20, 11]


def test_each_node_more_has_a_price_of_its_own() -> None:
    tree = Tree(max_nodes=15, max_depth=2, worth=0.0, width=9, prices=[0.0, 0.0, 0.3, 0.4])
    tree.grow([([10, 11, 12, 13], [0.4, 0.3, 0.2, 0.1])])
    assert tree.best().tokens == [10, 11]
    tree.grow([([20], [0.9]), ([30, 31], [0.9, 0.1])])  # .36, and .27: less than the fourth costs
    assert tree.best().tokens == [10, 20, 11]


def test_a_tree_of_nothing_likely_is_empty() -> None:
    tree = Tree(max_nodes=15, max_depth=3, worth=0.0, width=9, prices=[0.6])
    tree.grow([([10, 11], [0.5, 0.2])])
    assert (tree.frontier, tree.best().tokens) == ([], [])


def test_nothing_is_drafted_to_depth_0() -> None:
    assert Tree(max_nodes=15, max_depth=0, worth=0.0, width=3).frontier == []


@given(st.integers(1, 15), st.integers(1, 5), st.integers(1, 4), st.lists(SHARES, max_size=30))
def test_every_beginning_of_the_best_is_a_tree_within_its_limits(
    max_nodes: int, max_depth: int, width: int, levels: list[list[float]]
) -> None:
    tree = grown(max_nodes, max_depth, width, levels)
    nodes, tokens, parents = tree.best()
    assert len(nodes) == len(tokens) == len(parents) <= max_nodes
    assert all(parent < place for place, parent in enumerate(parents))
    assert len(set(zip(parents, tokens, strict=True))) == len(tokens)
    assert all(len(tree.path(node)) <= max_depth for node in nodes)


@given(st.integers(1, 15), st.integers(1, 4), st.lists(SHARES, max_size=30))
def test_a_frontier_fits_a_row_of_the_nodes_that_may_be_sent(
    max_nodes: int, width: int, levels: list[list[float]]
) -> None:
    tree, shares = Tree(max_nodes, 4, 0.0, width), iter(levels)
    while frontier := tree.frontier:
        branch = tree.branch()
        assert len(branch.nodes) <= max_nodes
        if frontier != [ROOT]:
            assert branch.nodes[-len(frontier) :] == frontier
        assert all(parent < place for place, parent in enumerate(branch.parents))
        grow(tree, shares)

"""Which prefixes are kept, found and given up."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from services.target import prefixes
from services.target.prefixes import BLOCK, Prefix, Prefixes, chained, closest
from starsd.engine.kv_budget import blocks_of


@dataclass
class Line:
    tokens: list[int]
    salt: str = ""


def numbers(count: int, step: int = 7) -> list[int]:
    return [step * index % 256 for index in range(count)]


def kept(*lines: Line) -> Prefixes:
    found = Prefixes()
    for slot, line in enumerate(lines):
        found.add(Prefix.of(line, slot, len(line.tokens)))
    return found


def found(prefixes: Prefixes, line: Line) -> tuple[int | None, int]:
    prefix, length = prefixes.find(line)
    return (None if prefix is None else prefix.slot), length


def test_the_longest_common_beginning_is_found_to_the_token() -> None:
    text = numbers(100)
    held = kept(Line(text[:50]), Line([*text[:70], 1, 2, 3]), Line([*text[:68], *[5] * 40]))
    assert found(held, Line(text)) == (1, 70)
    assert found(held, Line([*text[:40], *[9] * 40])) == (0, 40)
    assert found(held, Line([*text[:68], 5, 5, 5])) == (2, 70)


def test_the_last_token_is_always_computed() -> None:
    assert found(kept(Line(numbers(50))), Line(numbers(50))) == (0, 49)
    assert found(kept(Line(numbers(50))), Line(numbers(20))) == (0, 19)


def test_less_than_a_block_is_not_found() -> None:
    held = kept(Line(numbers(50)))
    assert found(held, Line([*numbers(BLOCK - 1), *[9] * 30])) == (None, 0)
    assert found(held, Line(numbers(BLOCK))) == (None, 0)
    assert found(held, Line([*numbers(BLOCK), *[9] * 30])) == (0, BLOCK)


def test_tenants_do_not_share() -> None:
    held = kept(Line(numbers(50), "one"))
    for salt, slot in (("one", 0), ("two", None), ("", None)):
        assert found(held, Line(numbers(60), salt))[0] == slot


def test_equal_hashes_of_different_tokens_or_tenants_are_no_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefixes, "hash", lambda _: 1, raising=False)
    held = kept(Line([*numbers(20), *[5] * 40], "one"))
    assert found(held, Line(numbers(60), "one")) == (0, 20)
    assert found(held, Line(numbers(60), "two")) == (None, 0)
    assert found(held, Line([9] * 60, "one")) == (None, 0)


def test_a_hash_is_of_all_before_it() -> None:
    first, second = (list(chained([start, *numbers(63)], "")) for start in (1, 2))
    assert not set(first) & set(second)
    assert len(first) == 64 // BLOCK


def test_the_oldest_is_the_one_not_used_for_longest() -> None:
    held = kept(*(Line([index, *numbers(40)]) for index in range(3)))
    order = []
    prefix, _ = held.find(Line([0, *numbers(40)]))
    assert prefix
    held.touch(prefix)
    while oldest := held.oldest:
        order.append(oldest.slot)
        held.cut(oldest, 0)
    assert order == [1, 2, 0]
    assert held.blocks == 0
    assert not held._by_hash


def test_a_cut_prefix_is_found_as_far_as_it_goes() -> None:
    held = kept(Line(numbers(200)), Line([*numbers(100), *[5] * 60]))
    first, second = list(held._kept.values())
    assert held.blocks == 4 + 3
    held.cut(first, 64)
    assert held.blocks == 1 + 3
    assert found(held, Line(numbers(200))) == (1, 100)
    held.cut(second, 0)
    assert found(held, Line(numbers(200))) == (0, 64)


def test_covered_is_who_says_nothing_more() -> None:
    text = numbers(100)
    lines = Line(text[:50]), Line([*text[:50], *[5] * 40]), Line(text[:50], "other"), Line(text)
    held = kept(*lines)
    assert [p.slot for p in held.covered(Prefix.of(Line(text), 9, 100))] == [0, 3]
    assert held.covered(Prefix.of(Line(text), 9, 30)) == []


def test_closest_is_of_the_same_tenant() -> None:
    lines = [Line(numbers(30), "one"), Line(numbers(20), "two")]
    assert closest(Line(numbers(50), "two"), lines) == (lines[1], 20)
    assert closest(Line(numbers(50)), lines) == (None, 0)


def test_counts_hold_over_many_changes() -> None:
    choose = random.Random(1)
    held, free = Prefixes(), set(range(8))
    for _ in range(2000):
        if free and choose.random() < 0.5:
            tokens = [*numbers(choose.randrange(BLOCK, 150)), *[choose.randrange(3)] * 20]
            slot = free.pop()
            held.add(Prefix.of(Line(tokens, choose.choice("ab")), slot, len(tokens)))
        elif held._kept:
            prefix = choose.choice(list(held._kept.values()))
            held.cut(prefix, choose.choice([0, len(prefix.tokens) // 64 * 64]))
            if prefix.slot not in held._kept:
                free.add(prefix.slot)
        assert held.blocks == sum(blocks_of(len(one.tokens)) for one in held._kept.values())
        keys = {key for one in held._kept.values() for key in one.chain}
        assert keys == held._by_hash.keys()
        for one in held._kept.values():
            assert one.chain == list(chained(one.tokens, one.salt))

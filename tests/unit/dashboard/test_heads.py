"""Noticing that blocks are gone, on chains written out by hand."""

from __future__ import annotations

from assay.dashboard.heads import KEPT, Heads

Chain = dict[int, str]


def look(heads: Heads, chain: Chain) -> int:
    top = max(chain)
    return heads.look(top, chain[top], chain.get)


def test_a_chain_that_grows_loses_nothing() -> None:
    heads = Heads()
    chain: Chain = {}
    for n in range(KEPT + 20):
        chain[n] = f"a{n}"
        assert look(heads, chain) == 0
        assert look(heads, chain) == 0


def test_replaced_blocks_are_counted_once() -> None:
    heads = Heads()
    chain = {n: f"a{n}" for n in range(6)}
    for top in range(6):
        look(heads, {n: chain[n] for n in range(top + 1)})
    fork = {n: f"a{n}" if n <= 2 else f"b{n}" for n in range(9)}
    assert look(heads, fork) == 3
    assert look(heads, fork) == 0
    assert look(heads, fork | {9: "b9"}) == 0


def test_a_shorter_chain_and_another_last_block_are_noticed() -> None:
    heads = Heads()
    for top in (3, 4, 5):
        look(heads, {n: f"a{n}" for n in range(top + 1)})
    assert look(heads, {n: f"a{n}" for n in range(5)}) == 1
    assert look(heads, {**{n: f"a{n}" for n in range(4)}, 4: "b4"}) == 1


def test_blocks_nobody_looked_at_count_with_the_last_that_is_still_there() -> None:
    heads = Heads()
    for top in (10, 20):
        look(heads, {n: f"a{n}" for n in range(top + 1)})
    assert look(heads, {n: f"a{n}" if n < 15 else f"b{n}" for n in range(25)}) == 10


def test_a_whole_other_chain_is_all_gone() -> None:
    heads = Heads()
    for top in (5, 6):
        look(heads, {n: f"a{n}" for n in range(top + 1)})
    assert look(heads, {n: f"b{n}" for n in range(8)}) == 2

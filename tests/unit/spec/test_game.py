"""How far a move opens a tree, and what a leaf may hold. Whole games: tests/unit/dispute and tests/twin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.protocol import trees
from assay.protocol.game import MOVE_LEVELS, leaf_bytes, opened_levels
from spec.game import NodeFacts, is_canonical
from tests.unit.protocol.test_game_state import GAME

F32 = NodeFacts(4, 4, True, False)


@pytest.mark.parametrize("level", range(40))
def test_a_tree_is_opened_in_as_few_moves_as_may_be(level: int) -> None:
    left, moves = level, 0
    while left:
        down = opened_levels(left)
        assert 1 <= down <= MOVE_LEVELS
        left, moves = left - down, moves + 1
    assert moves == -(-level // MOVE_LEVELS) and opened_levels(0) == 0


def test_all_leaves_but_the_last_are_full() -> None:
    game = replace(GAME, size=2 * trees.LEAF_BYTES + 12)
    assert [leaf_bytes(replace(game, index=i)) for i in range(3)] == [trees.LEAF_BYTES, trees.LEAF_BYTES, 12]


def test_what_a_tensor_may_hold() -> None:
    assert [is_canonical(bits, F32) for bits in (0x7F800000, 0x7FC00000, 0x7F800001)] == [True, True, False]
    boolean, integer = NodeFacts(1, 1, False, True), NodeFacts(4, 4, False, False)
    assert [is_canonical(bits, boolean) for bits in (0, 1, 2)] == [True, True, False]
    assert is_canonical(0xFFFFFFFF, integer)

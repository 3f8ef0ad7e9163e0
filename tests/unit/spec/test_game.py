"""The game move by move: whose turn, in time, how far. Whole games: tests/unit/dispute and tests/twin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from assay.protocol import trees
from assay.protocol.dispute import (
    Pick,
    PickStep,
    Prove,
    ProveChildren,
    RevealLeaf,
    RevealSteps,
    RevealTrace,
    Timeout,
)
from assay.protocol.game import (
    MOVE_LEVELS,
    Arithmetic,
    IllegalMove,
    NodeFacts,
    is_canonical,
    leaf_bytes,
    opened_levels,
)
from assay.protocol.game_state import Game, GamePhase, Opening
from assay.protocol.types import ZERO_DIGEST, Address, Seconds
from spec.game import Verdict, digest_of, input_game, play
from tests.unit.protocol.test_game_state import GAME

F32 = NodeFacts(4, 4, True, False)
ROOTS = tuple(bytes([i]) * 32 for i in (1, 2, 3))
NOW = Seconds(50)


def right(game: Game, node: bytes, element: int, openings: Sequence[Opening]) -> int:
    """An arbiter that finds 7 everywhere."""
    return 7


ARITHMETIC = Arithmetic(lambda node: F32, right)


def refused(game: Game, move: object, by: Address, now: Seconds = NOW) -> str:
    with pytest.raises(IllegalMove) as caught:
        play(game, move, by, now, ARITHMETIC)  # type: ignore[arg-type]
    return caught.value.error


def after(game: Game, move: object) -> Game:
    found = play(game, move, game.mover, NOW, ARITHMETIC)  # type: ignore[arg-type]
    assert isinstance(found, Game)
    return found


def test_a_move_is_made_by_the_mover_in_its_phase_and_time() -> None:
    move = RevealSteps(ROOTS)
    assert refused(GAME, move, GAME.challenger) == "NotYourMove"
    assert refused(GAME, PickStep(ROOTS, 0), GAME.challenger) == "WrongPhase"
    assert refused(GAME, move, GAME.defender, Seconds(101)) == "DeadlinePassed"
    assert refused(GAME, RevealSteps(ROOTS[:2]), GAME.defender) == "WrongCount"
    assert after(GAME, move).deadline == NOW + GAME.move_time


@pytest.mark.parametrize("phase", GamePhase)
def test_whoever_lets_its_time_pass_loses(phase: GamePhase) -> None:
    game = replace(GAME, phase=phase)
    assert refused(game, Timeout(), account_of_nobody(), Seconds(100)) == "DeadlineNotPassed"
    verdict = play(game, Timeout(), account_of_nobody(), Seconds(101), ARITHMETIC)
    assert verdict == Verdict(game.mover == game.defender, "timeout")


def account_of_nobody() -> Address:
    return Address("0x" + "9" * 40)


@pytest.mark.parametrize("j", range(4))
def test_a_picked_step_lies_between_its_two_roots(j: int) -> None:
    game = replace(after(GAME, RevealSteps(ROOTS)), key=b"k" * 32)
    picked = after(game, PickStep(ROOTS, j))
    ends = [GAME.in_root, *ROOTS, GAME.out_root]
    assert (picked.in_root, picked.out_root, picked.step, picked.steps) == (ends[j], ends[j + 1], 3 + j, 1)
    assert picked.key == (b"k" * 32 if j == 3 else ZERO_DIGEST), "only the last step is keyed"
    assert refused(game, PickStep(ROOTS[::-1], j), game.challenger) == "WrongChildren"
    assert refused(game, PickStep(ROOTS, 4), game.challenger) == "IndexOutOfRange"


@pytest.mark.parametrize("level", range(40))
def test_a_tree_is_opened_in_as_few_moves_as_may_be(level: int) -> None:
    left, moves = level, 0
    while left:
        down = opened_levels(left)
        assert 1 <= down <= MOVE_LEVELS
        left, moves = left - down, moves + 1
    assert moves == -(-level // MOVE_LEVELS) and opened_levels(0) == 0


def traced() -> tuple[Game, tuple[bytes, ...]]:
    """A game whose trace of 5 nodes (of 8 places) has just been opened."""
    tree = trees.build([trees.leaf(bytes([i])) for i in range(5)])
    start = replace(GAME, phase=GamePhase.TRACE, steps=1, program=replace(GAME.program, nodes=5))
    children = tuple(tree.descendants(tree.depth, 0, 3))
    return after(start, RevealTrace(tree.root, children)), children


def test_true_padding_convicts_nobody_and_planted_padding_at_once() -> None:
    game, children = traced()
    assert refused(game, Pick(children, 6, b"", ()), game.challenger) == "NoDifference"
    planted = (*children[:6], b"p" * 32, children[7])
    lying = replace(game, digest=trees.root(planted), revealed=digest_of(planted))
    assert play(lying, Pick(planted, 6, b"", ()), game.challenger, NOW, ARITHMETIC) == Verdict(
        True, "padding"
    )


def test_children_that_do_not_fold_lose_and_others_convict_nobody() -> None:
    game, children = traced()
    assert refused(game, ProveChildren(children), game.challenger) == "NoDifference"
    torn = (b"x" * 32, *children[1:])
    lying = replace(game, revealed=digest_of(torn))
    assert play(lying, ProveChildren(torn), game.challenger, NOW, ARITHMETIC) == Verdict(True, "children")


def revealed(value: int) -> tuple[Game, bytes]:
    """A game in which the defender has shown the one leaf of a node of one f32, which has these bits."""
    data = value.to_bytes(4, "little")
    game = replace(
        GAME, phase=GamePhase.REVEAL_LEAF, size=4, digest=trees.leaf(data), node_hash=digest_of([b"n"])
    )
    assert refused(game, RevealLeaf(data + b"\0"), game.defender) == "WrongCount"
    assert refused(game, RevealLeaf(b"\1" * 4), game.defender) == "BadProof"
    return after(game, RevealLeaf(data)), data


@pytest.mark.parametrize(("bits", "reason"), [(8, "arithmetic"), (0x7FC00001, "leaf"), (0xFFC00000, "leaf")])
def test_a_wrong_or_malformed_element_convicts(bits: int, reason: str) -> None:
    game, data = revealed(bits)
    assert play(game, Prove(data, b"n", 0, ()), game.challenger, NOW, ARITHMETIC) == Verdict(True, reason)


def test_a_right_element_convicts_nobody() -> None:
    game, data = revealed(7)
    assert refused(game, Prove(data, b"n", 0, ()), game.challenger) == "NoDifference"
    assert refused(game, Prove(data, b"n", 1, ()), game.challenger) == "IndexOutOfRange"
    assert refused(game, Prove(data, b"m", 0, ()), game.challenger) == "BadProof"


def test_all_leaves_but_the_last_are_full() -> None:
    game = replace(GAME, size=2 * trees.LEAF_BYTES + 12)
    assert [leaf_bytes(replace(game, index=i)) for i in range(3)] == [trees.LEAF_BYTES, trees.LEAF_BYTES, 12]


def test_what_a_tensor_may_hold() -> None:
    assert [is_canonical(bits, F32) for bits in (0x7F800000, 0x7FC00000, 0x7F800001)] == [True, True, False]
    boolean, integer = NodeFacts(1, 1, False, True), NodeFacts(4, 4, False, False)
    assert [is_canonical(bits, boolean) for bits in (0, 1, 2)] == [True, True, False]
    assert is_canonical(0xFFFFFFFF, integer)


def test_a_game_about_an_input_opens_the_states_tree() -> None:
    game = input_game(GAME, b"i" * 32)
    assert (game.phase, game.digest, game.leaves, game.steps) == (GamePhase.SPLIT_OUTPUT, b"i" * 32, 2, 0)

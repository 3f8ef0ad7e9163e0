"""Whole games between honest and dishonest players before the Court's pure twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from assay.dispute.disputant import Disputant, IncompleteHistory, WrongReplay, disputed_path
from assay.dispute.evidence import output_proof
from assay.dispute.player import overdue
from assay.dispute.replay import Replay
from assay.node.findings import slots_shown
from assay.program.build import ProgramBuilder
from assay.program.fault import Fault, NodeFault, StateFault
from assay.program.isa import DType, Op
from assay.protocol import trees
from assay.protocol.dispute import (
    OpenOutput,
    Pick,
    PickStep,
    ProveChildren,
    ProveOutput,
    RevealTrace,
    Split,
    Timeout,
)
from assay.protocol.game import opened_levels
from assay.protocol.game_state import Game, GameView, Opened
from assay.protocol.types import ClaimId
from spec.game import IllegalMove, input_game
from tests.fakes.arena import CHALLENGER, DEFENDER, FIRST_STEP, SEED, SHARD, apply, open_game, referee
from tests.fakes.clock import counted
from tests.fakes.games import fresh
from tests.fakes.programs import training_sample

SAMPLE = training_sample()
KEY = b"k" * 32


def replay(fault: Fault | None = None) -> Replay:
    return Replay(SAMPLE.program, SAMPLE.state, SAMPLE.dataset, SEED, SHARD, FIRST_STEP, fault=fault)


def dispute(defender: Replay, challenger: Replay, steps: int) -> GameView:
    game = open_game(defender, steps, challenger.root(0), defender.root(steps))
    return referee(game, defender, challenger)


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("node", range(len(SAMPLE.program.nodes)))
def test_one_ulp_in_any_node_is_convicted_by_arithmetic(node: int, steps: int) -> None:
    """Attack 5: one element of one node is off by one ulp, all else follows from it."""
    at = FIRST_STEP + steps // 2
    cheat = replay(NodeFault(at, node, SAMPLE.program.nodes[node].elements // 2))
    honest = replay()
    view = dispute(cheat, honest, steps)
    if steps > 1 and all(cheat.root(i) == honest.root(i) for i in range(steps + 1)):
        assert not view.challenger_won, "the fault was rounded away: nothing false was claimed"
        return
    assert (view.challenger_won, view.reason) == (True, "arithmetic")
    assert (view.game.node, view.game.step) == (node, at)


@pytest.mark.parametrize("slot", range(SAMPLE.program.slots))
@pytest.mark.parametrize("steps", [1, 3])
def test_state_that_is_not_the_traces_is_convicted_by_output(slot: int, steps: int) -> None:
    """Attack 6: the trace is honest, the claimed state is not."""
    cheat = replay(StateFault(FIRST_STEP, slot, 0))
    view = dispute(cheat, replay(), steps)
    assert (view.challenger_won, view.reason) == (True, "output")


@pytest.mark.parametrize("node", range(len(SAMPLE.program.nodes)))
def test_wrong_keyed_trace_of_a_vote_is_convicted(node: int) -> None:
    """Attack 9: a verifier's keyed trace is not that of the step."""
    liar, honest = replay(NodeFault(FIRST_STEP + 1, node, 0)), replay()
    game = open_game(liar, 2, honest.root(0), liar.trace(1, KEY).root, KEY)
    view = referee(game, liar, honest)
    assert (view.challenger_won, view.reason) == (True, "arithmetic")


def test_invented_trace_root_loses_by_the_clock() -> None:
    honest = replay()
    game = open_game(honest, 1, honest.root(0), b"\x77" * 32, KEY)
    view = referee(game, honest, honest)
    assert view.challenger_won
    assert view.reason == "timeout after WrongChildren"


@pytest.mark.parametrize("fault", [NodeFault(FIRST_STEP, 6, 0), StateFault(FIRST_STEP, 0, 3), None])
@pytest.mark.parametrize("key", [b"", KEY])
def test_honest_defender_beats_any_challenger(fault: Fault | None, key: bytes) -> None:
    """Attacks 14 and 18: a challenger that is wrong, or that agrees throughout."""
    honest = replay()
    for steps in (1, 3):
        claimed = honest.trace(steps - 1, key).root if key else honest.root(steps)
        game = open_game(honest, steps, honest.root(0), claimed, key or bytes(32))
        view = referee(game, honest, replay(fault))
        assert not view.challenger_won
        assert view.reason.startswith("timeout")


def test_padding_that_is_not_padding_loses() -> None:
    honest = replay()
    game = open_game(honest, 1, honest.root(0), b"\x01" * 32)
    tree = honest.trace(0).tree
    count = len(SAMPLE.program.nodes)
    forged = trees.build([*tree.levels[0], *[b"\x09" * 32] * ((1 << tree.depth) - count)])
    assert forged.depth == tree.depth and count < 1 << tree.depth
    view = fresh(1, game)
    challenger = Disputant(CHALLENGER, lambda _: honest)
    reveal = RevealTrace(forged.root, tuple(forged.descendants(forged.depth, 0, opened_levels(forged.depth))))
    view = apply(view, reveal, DEFENDER)
    while not view.decided:
        if view.game.mover == DEFENDER:
            at = forged.descendants(
                view.game.level, view.game.index >> view.game.level, opened_levels(view.game.level)
            )
            view = apply(view, Split(tuple(at)), DEFENDER)
        else:
            move = challenger.move(view)
            assert move is not None
            view = apply(view, move, CHALLENGER)
    assert (view.challenger_won, view.reason) == (True, "padding")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_attack_11_what_is_opened_falsely_is_convicted_by_it(at: int) -> None:
    """The `at`-th thing that the defender opens does not fold to the digest in dispute."""
    right, cheat = (replay(), replay(NodeFault(FIRST_STEP, 6, 0))) if at == 0 else (many_slots(300),) * 2
    game = open_game(cheat, 1, right.root(0), cheat.root(1))
    if at:
        cheat = many_slots(300, 7.5)
        game = input_game(game, cheat.root(0))
    view = fresh(1, game)
    sides = {
        DEFENDER: Disputant(DEFENDER, lambda _: cheat),
        CHALLENGER: Disputant(CHALLENGER, lambda _: right),
    }
    seen = 1 if at else 0
    while view.game.mover != CHALLENGER or seen <= at:
        move = sides[view.game.mover].move(view)
        assert move is not None
        if isinstance(move, RevealTrace | Split):
            if seen == at:
                move = replace(move, children=(b"\x09" * 32, *move.children[1:]))
            seen += 1
        view = apply(view, move, view.game.mover)
    assert trees.root(view.digests) != view.game.digest, "the fault was planted"
    denial = sides[CHALLENGER].move(view)
    assert denial == ProveChildren(view.digests)
    with pytest.raises(IllegalMove, match="WrongChildren"):
        apply(view, ProveChildren(view.digests[1:]), CHALLENGER)
    with pytest.raises(IllegalMove, match="NotYourMove"):
        apply(view, denial, DEFENDER)
    view = apply(view, denial, CHALLENGER)
    assert (view.challenger_won, view.reason) == (True, "children")


def test_what_is_opened_truly_cannot_be_denied() -> None:
    honest = replay()
    game = open_game(honest, 1, honest.root(0), b"\x01" * 32)
    view = fresh(1, game)
    with pytest.raises(IllegalMove, match="WrongPhase"):
        apply(view, ProveChildren(()), CHALLENGER)
    move = Disputant(DEFENDER, lambda _: honest).move(view)
    assert move is not None
    view = apply(view, move, DEFENDER)
    with pytest.raises(IllegalMove, match="NoDifference"):
        apply(view, ProveChildren(view.digests), CHALLENGER)


def test_players_move_only_in_their_turn_and_before_the_end() -> None:
    honest = replay()
    game = open_game(honest, 2, honest.root(0), b"\x01" * 32)
    view = fresh(1, game)
    assert Disputant(CHALLENGER, lambda _: honest).move(view) is None
    move = Disputant(DEFENDER, lambda _: honest).move(view)
    assert move is not None
    view = apply(view, move, DEFENDER)
    assert Disputant(DEFENDER, lambda _: honest).move(view) is None
    assert Disputant(CHALLENGER, lambda _: honest).move(view) == PickStep(view.digests, 1)
    assert Disputant(CHALLENGER, lambda _: honest).move(replace(view, decided=True)) is None


def test_challenger_who_finds_the_trace_right_opens_the_output() -> None:
    cheat, honest = replay(StateFault(FIRST_STEP, 1, 0)), replay()
    game = open_game(cheat, 1, honest.root(0), cheat.root(1))
    view = fresh(1, game)
    reveal = Disputant(DEFENDER, lambda _: cheat).move(view)
    assert reveal is not None
    view = apply(view, reveal, DEFENDER)
    assert Disputant(CHALLENGER, lambda _: honest).move(view) == OpenOutput()


def test_replay_of_another_run_makes_no_move() -> None:
    honest = replay()
    view = fresh(1, open_game(honest, 1, b"\x05" * 32, b"\x06" * 32))
    later = replace(view, game=replace(view.game, in_root=honest.root(0), step=FIRST_STEP - 1))
    for wrong in (view, later):
        with pytest.raises(WrongReplay):
            Disputant(DEFENDER, lambda _: honest).move(wrong)


def many_slots(count: int, last: float = 0.0) -> Replay:
    """Scalars that keep their values; the last but one has this one."""
    b = ProgramBuilder()
    slots = [b.state(DType.F32, ()) for _ in range(count)]
    program = b.finish(slots, 1)
    state = [torch.tensor(float(i)) for i in range(count)]
    state[-2] = torch.tensor(last)
    return Replay(program, state, SAMPLE.dataset, SEED, SHARD, FIRST_STEP)


@pytest.mark.parametrize("count", [5, 16, 17, 300])
def test_a_hidden_input_state_is_opened_down_to_the_slot_that_is_wrong(count: int) -> None:
    """Attack 35: the claimant alone knows its input state; what it has to open proves one slot of it."""
    right, cheat = many_slots(count), many_slots(count, 7.5)
    game = input_game(open_game(right, 1, bytes(32), bytes(32)), cheat.root(0))
    view = fresh(1, game)
    players = {
        DEFENDER: Disputant(DEFENDER, lambda _: cheat),
        CHALLENGER: Disputant(CHALLENGER, lambda _: right),
    }
    while not slots_shown(view.game):
        move = players[view.game.mover].move(view)
        assert move is not None
        view = apply(view, move, view.game.mover)
    assert players[CHALLENGER].move(view) is None, "the rest is not the court's business"
    slot, known = count - 2, right.state_tree(0)
    leaf = view.digests[slot - view.game.index]
    assert leaf == cheat.state_tree(0).digest(0, slot) != known.digest(0, slot)
    proof = disputed_path(cheat.root(0), slot, known, view.opened)
    assert trees.verify(cheat.root(0), count, slot, leaf, proof)
    assert view.moves <= 2 * max(1, -(-trees.depth(count) // 6)) - 1


def test_a_challenger_that_accepts_the_input_state_has_no_move() -> None:
    right = many_slots(20)
    game = input_game(open_game(right, 1, bytes(32), bytes(32)), right.root(0))
    view = referee(game, right, right)
    assert (view.challenger_won, view.reason, view.moves) == (False, "timeout", 1)


def test_an_input_tree_with_something_beyond_its_slots_loses() -> None:
    right = many_slots(5)
    forged = trees.build([*right.state_tree(0).levels[0], b"\x09" * 32])
    game = input_game(open_game(right, 1, bytes(32), bytes(32)), forged.root)
    view = fresh(1, game)
    view = apply(view, Split(tuple(forged.descendants(3, 0, 3))), DEFENDER)
    move = Disputant(CHALLENGER, lambda _: right).move(view)
    assert isinstance(move, Pick) and move.child == 5
    view = apply(view, move, CHALLENGER)
    assert (view.challenger_won, view.reason) == (True, "padding")


def test_no_trace_is_proven_against_an_input_state() -> None:
    right, cheat = many_slots(5), many_slots(5, 7.5)
    game = input_game(open_game(right, 1, bytes(32), bytes(32)), cheat.root(0))
    view = fresh(1, game)
    view = apply(view, Split(tuple(cheat.state_tree(0).descendants(3, 0, 3))), DEFENDER)
    proof = tuple(cheat.state_tree(0).proof(3))
    forged = ProveOutput(3, 3, output_proof(right.program, 3), view.digests[3], proof, bytes(32), ())
    with pytest.raises(IllegalMove, match="WrongPhase"):
        apply(view, forged, CHALLENGER)


def test_overdue_is_after_the_deadline_only() -> None:
    honest = replay()
    view = fresh(1, open_game(honest, 1, b"", b""))
    assert overdue(view, counted(60)) is None
    assert overdue(view, counted(61)) == Timeout()
    assert overdue(replace(view, decided=True), counted(61)) is None


def test_proof_into_a_disputed_tree_uses_what_was_opened() -> None:
    known = trees.build([bytes([i]) * 32 for i in range(100)])
    disputed = trees.build([*known.levels[0][:73], b"\xaa" * 32, *[b"\xbb" * 32] * 26])
    top = Opened(disputed.root, tuple(disputed.descendants(7, 0, 4)))
    block = Opened(disputed.digest(3, 9), tuple(disputed.descendants(3, 9, 3)))
    for leaf in (0, 17, 72):
        path = disputed_path(disputed.root, leaf, known, (top, block))
        assert trees.verify(disputed.root, 100, leaf, known.digest(0, leaf), path)
    with pytest.raises(IncompleteHistory):
        disputed_path(disputed.root, 72, known, (top,))


def test_sample_covers_what_the_games_are_about() -> None:
    ops = {node.op for node in SAMPLE.program.nodes}
    assert ops >= {Op.STATE, Op.DATA, Op.CONST, Op.PRODUCT, Op.STRIDED, Op.SUM, Op.IADD}
    assert max(node.leaves for node in SAMPLE.program.nodes) > 1


def test_a_game_is_played_from_one_replay_and_another_game_from_its_own() -> None:
    cheat, honest = replay(StateFault(FIRST_STEP + 1, 0, 0)), replay()
    asked: list[tuple[str, ClaimId]] = []

    def giving(name: str, which: Replay) -> Callable[[Game], Replay]:
        def give(game: Game) -> Replay:
            asked.append((name, game.claim_id))
            return which

        return give

    sides = {
        DEFENDER: Disputant(DEFENDER, giving("defender", cheat)),
        CHALLENGER: Disputant(CHALLENGER, giving("challenger", honest)),
    }
    first = open_game(cheat, 3, honest.root(0), cheat.root(3))
    other = replace(first, claim_id=ClaimId(b"\x31" * 32))
    for number, game in enumerate((first, other), 1):
        view = fresh(number, game)
        while not view.decided:
            move = sides[view.game.mover].move(view)
            assert move is not None
            view = apply(view, move, view.game.mover)
        assert view.challenger_won and view.moves >= 6
    claims = (first.claim_id, other.claim_id)
    assert asked == [(name, claim) for claim in claims for name in ("defender", "challenger")]


def test_a_replay_that_does_not_fit_is_not_kept() -> None:
    given = [many_slots(5), replay()]
    honest = replay()
    view = fresh(1, open_game(honest, 2, honest.root(0), b"\x01" * 32))
    defender = Disputant(DEFENDER, lambda _: given.pop(0))
    with pytest.raises(WrongReplay):
        defender.move(view)
    assert defender.move(view) is not None and not given

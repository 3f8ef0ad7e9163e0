"""A referee: plays the Court's pure twin between two disputants, move by move."""

from __future__ import annotations

from dataclasses import replace

from assay.dispute.disputant import Disputant
from assay.dispute.replay import Replay
from assay.protocol.dispute import Move
from assay.protocol.game_state import Game, GamePhase, GameView
from assay.protocol.types import ZERO_DIGEST, Address, ClaimId, ProgramRef, Seconds
from spec.evidence import ARITHMETIC
from spec.game import IllegalMove, Verdict, play
from tests.fakes.games import decided, fresh, moved

CHALLENGER, DEFENDER = Address("0x" + "c" * 40), Address("0x" + "d" * 40)
SEED = bytes(range(32))
SHARD = 3
FIRST_STEP = 7


def open_game(replay: Replay, steps: int, in_root: bytes, out_root: bytes, key: bytes = ZERO_DIGEST) -> Game:
    """A game about the first `steps` steps of a replay."""
    program, dataset = replay.program, replay.dataset
    assert dataset is not None
    return Game(
        claim_id=ClaimId(b"\x11" * 32),
        challenger=CHALLENGER,
        defender=DEFENDER,
        program=ProgramRef(program.root, len(program.nodes), program.slots, program.params),
        dataset_root=dataset.tree.root,
        seed=SEED,
        records=len(dataset),
        record_size=dataset.record_size,
        shard=SHARD,
        key=key,
        step=replay.first_step,
        steps=steps,
        in_root=in_root,
        out_root=out_root,
        trace_root=ZERO_DIGEST,
        phase=GamePhase.STEPS if steps > 1 else GamePhase.TRACE,
        digest=ZERO_DIGEST,
        level=0,
        index=0,
        leaves=len(program.nodes),
        revealed=ZERO_DIGEST,
        node=0,
        size=0,
        node_hash=ZERO_DIGEST,
        move_time=Seconds(60),
        deadline=Seconds(60),
    )


def apply(view: GameView, move: Move, by: Address) -> GameView:
    """The view after a move, as the event log would tell it. Raises IllegalMove."""
    after = play(view.game, move, by, Seconds(0), Seconds(0), ARITHMETIC)
    if isinstance(after, Verdict):
        return decided(view, after.challenger_won, after.reason)
    return moved(view, move, after)


def referee(game: Game, defender: Replay, challenger: Replay) -> GameView:
    """Plays a game to its end; a player without a legal move loses by the clock."""
    view = fresh(1, game)
    players = {
        DEFENDER: Disputant(DEFENDER, lambda _: defender),
        CHALLENGER: Disputant(CHALLENGER, lambda _: challenger),
    }
    while not view.decided:
        mover = view.game.mover
        move = players[mover].move(view)
        if move is None:
            return replace(view, decided=True, challenger_won=mover == DEFENDER, reason="timeout")
        try:
            view = apply(view, move, mover)
        except IllegalMove as error:
            return replace(
                view, decided=True, challenger_won=mover == DEFENDER, reason=f"timeout after {error.error}"
            )
    return view

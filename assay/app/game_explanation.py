"""Explains a dispute game in plain English: the parties, their difference, whose move it is, what each can
lose.

Contract: pure, from the chain's data; every sentence follows from docs/protocol.md, sections 5 and 6. It does
not say who is right, which only a replay can tell (`assay whistle scan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from assay.app.game_text import WHAT_IS_ASKED, side_to_move
from assay.app.invocation import App
from assay.app.outlook import who_of
from assay.app.times import show_moment, show_span
from assay.node.idle_reasons import place_of
from assay.program.isa import Node
from assay.protocol.game_state import INPUT_SEGMENT, Game, GamePhase, GameView, moot, returns_bond
from assay.protocol.params import GRACE_MOVES
from assay.protocol.trees import LEAF_BYTES
from assay.protocol.types import ZERO_DIGEST, Address, ClaimView, Terms
from assay.protocol.words import show_amount

ENDS = {
    "timeout": "{loser} let its time to move run out",
    "children": "what the defender opened does not belong under what it had committed to",
    "output": "the claimed state holds another tensor than the step's own trace gives for it",
    "padding": "the defender had put something where its trace can have nothing",
    "leaf": "the revealed bytes are none that a tensor may hold (a second NaN, or a bool of neither 0 nor 1)",
    "arithmetic": "the contract computed the disputed element itself, and got other bits",
}
"""Description of why a game ended, by the Court's reason."""
WHY_NOW = {
    GamePhase.STEPS: "so that the challenger can say at which step they part",
    GamePhase.PICK_STEP: "up to that step they agree; only it stays in dispute",
    GamePhase.TRACE: "the outputs of all operations of the step, as one hash, bind it to what it claims",
    GamePhase.PICK_NODE: "they continue with that half, until one operation is left",
    GamePhase.SPLIT_NODE: "so that the challenger can point further down",
    GamePhase.PICK_LEAF: "until one piece of the operation's output is left",
    GamePhase.SPLIT_LEAF: "so that the challenger can point further down",
    GamePhase.REVEAL_LEAF: "those bytes are what the contract compares with its own result",
    GamePhase.PROVE: "the contract recomputes it from inputs that are proven, and that decides the game",
    GamePhase.PICK_OUTPUT: "until one tensor of that state is left",
    GamePhase.SPLIT_OUTPUT: "so that the challenger can see what the state holds",
}
"""Purpose of the next move, by phase."""


@dataclass(frozen=True)
class Explained:
    """Explanation of a game, one sentence per question."""

    claim: str
    dispute: str
    narrowed: str
    next: str
    clock: str
    stakes: str

    def labelled(self) -> list[tuple[str, str]]:
        """Labelled non-empty sentences."""
        said = (
            ("claim", self.claim),
            ("dispute", self.dispute),
            ("narrowed down", self.narrowed),
            ("next", self.next),
            ("clock", self.clock),
            ("at stake", self.stakes),
        )
        return [(label, text) for label, text in said if text]


def explain(
    view: GameView, claim: ClaimView, terms: Terms, now: int, names: Mapping[Address, str], node: Node | None
) -> Explained:
    """Explains a game at chain time `now`.

    `names`: of accounts known to this machine, by address; `node`: the disputed operation, if reached and
    available.
    """
    game = view.game
    who = who_of(names)
    challenger, defender = who(game.challenger), who(game.defender)
    over = view.decided
    return Explained(
        claim=_claim(game, claim, defender),
        dispute=_dispute(game, challenger, defender),
        narrowed=_narrowed(game, node),
        next=_ended(view, challenger, defender) if over else _next(view, challenger, defender),
        clock="" if over else _clock(view, now, challenger, defender),
        stakes=_stakes(view, claim, terms, challenger, defender),
    )


def names_of(app: App) -> dict[Address, str]:
    """Names of the accounts in the keystore, by address."""
    from assay.chain.eth.keystore import Keystore

    return {Address(stored.address): stored.name for stored in Keystore(app.settings.keystore).list()}


def _claim(game: Game, claim: ClaimView, defender: str) -> str:
    body = claim.claim
    place, job = place_of(claim), body.job_id.hex()[:16]
    if game.ballot:
        return f"{defender}, drawn as a verifier, has vouched for a segment of {place} of job {job}"
    if game.segment == INPUT_SEGMENT:
        return f"{defender} says that {place} of job {job} starts from state {body.input_root.hex()[:16]}"
    first, last = game.step, game.step + game.steps - 1
    where = f"segment {game.segment} of {place} of job {job}"
    if game.steps == 1:  # it was more, or is all there is of the segment
        return f"{defender} says of {where} that it was computed as the job's program says"
    return f"{defender} says that {where}, steps {first} to {last}, ends in state {game.out_root.hex()[:16]}"


def _dispute(game: Game, challenger: str, defender: str) -> str:
    if game.ballot:
        return f"{challenger} says that {defender} has committed to another trace than a replay gives"
    if game.segment == INPUT_SEGMENT:
        return f"{challenger} says that it must start from another state, and wants that one opened"
    return f"{challenger} has replayed it and says that it ends in another state"


def _narrowed(game: Game, node: Node | None) -> str:
    if game.phase in (GamePhase.PICK_OUTPUT, GamePhase.SPLIT_OUTPUT):
        what = "input state" if not game.steps else f"state after step {game.step}"
        return f"to the {what}, of which {_part(game, 'tensor')} in dispute"
    if game.steps > 1:
        return f"both accept the state before step {game.step}; they differ somewhere in {game.steps} steps"
    step = f"to step {game.step}, before which both accept state {game.in_root.hex()[:16]}"
    if game.phase == GamePhase.TRACE:
        return step
    if game.node_hash == ZERO_DIGEST:
        return f"{step}; {_part(game, 'operation')} in dispute, of its {game.program.nodes}"
    kind = f" ({node.op.word} of shape {list(node.shape)})" if node is not None else ""
    operation = f"{step}; there to operation {game.node}{kind}, whose inputs both accept"
    if game.phase in (GamePhase.REVEAL_LEAF, GamePhase.PROVE):
        start = game.index * LEAF_BYTES
        end = min(start + LEAF_BYTES, game.size)
        elements = ""
        if node is not None:
            size = node.dtype.size
            elements = f", elements {start // size} to {end // size - 1}"
        return f"{operation}; there to bytes {start} to {end - 1} of its output{elements}"
    return f"{operation}; of its output's {game.leaves} pieces {_part(game, 'piece')} in dispute"


def _part(game: Game, what: str) -> str:
    """Leaves of the tree still in dispute, as the subject of a sentence."""
    last = min(game.index + (1 << game.level), game.leaves) - 1
    return f"{what} {game.index} is" if last <= game.index else f"{what}s {game.index} to {last} are"


def _next(view: GameView, challenger: str, defender: str) -> str:
    side = side_to_move(view)
    who = challenger if side == "challenger" else defender
    phase = view.game.phase
    return (
        f"{who}, the {side}, has to {WHAT_IS_ASKED[phase]}: {WHY_NOW[phase]}. Move {view.moves + 1} of"
        f" at most {GRACE_MOVES}"
    )


def _clock(view: GameView, now: int, challenger: str, defender: str) -> str:
    side = side_to_move(view)
    mover, other = (challenger, defender) if side == "challenger" else (defender, challenger)
    when, each = show_moment(view.game.deadline, now), show_span(view.game.move_time)
    if now > view.game.deadline:
        return f"{mover}'s has run out at {when}: anyone may end the game now, and {other} wins it"
    return f"{mover}'s runs out at {when}; then {other} wins. Each move has {each}; the other's clock stands"


def _ended(view: GameView, challenger: str, defender: str) -> str:
    winner, loser = (challenger, defender) if view.challenger_won else (defender, challenger)
    why = ENDS.get(view.reason, view.reason).format(loser=loser)
    return f"nothing: {winner} has won after {view.moves} moves, since {why}"


def _stakes(view: GameView, claim: ClaimView, terms: Terms, challenger: str, defender: str) -> str:
    """What the loser loses, and to whom."""
    if not view.decided and moot(claim, view.game):
        back = f"{challenger} has its bond back however this ends"
        return f"nothing any more: what it is about has fallen, and {back}"
    bond, solver, verifier = terms.challenge_bond, terms.solver_stake, terms.verifier_stake
    lost = f"{challenger} loses its bond of {show_amount(bond)}, half to {defender}, half burnt"
    if not view.decided and returns_bond(claim, view.game):
        lost = f"{challenger} has its bond back, as a rewind has overtaken what the input comes from"
    if view.game.ballot:
        won = f"{defender} loses its stake of {show_amount(verifier)}, half to {challenger}, half burnt"
    else:
        won = (
            f"the claim falls and {defender} loses {show_amount(solver)}; half is burnt, the rest pays for"
            f" work that this makes worthless, for the votes on the claim that stand, and then {challenger},"
            " who has its bond back"
        )
    if view.decided:
        return won if view.challenger_won else lost
    return f"if {challenger} wins, {won}; if {defender} wins, {lost}"

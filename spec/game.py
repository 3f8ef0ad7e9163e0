"""The dispute game as a pure state machine: the Court's rules (docs/protocol.md, section 6).

Contract: ``play(game, move, by, now, counted, arithmetic)`` gives the next game or the verdict, and raises
``IllegalMove`` where the Court reverts, with the Court's error name. It accepts and refuses exactly what the
Court does. What programs compute is an argument (`arithmetic`), so that this module needs none.

Source: ``contracts/src/dispute/Court.sol``; ``tests/twin`` holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.protocol import trees
from assay.protocol.dispute import (
    Move,
    OpenOutput,
    Pick,
    PickStep,
    Prove,
    ProveChildren,
    ProveOutput,
    RevealLeaf,
    RevealSteps,
    RevealTrace,
    Split,
    Timeout,
)
from assay.protocol.game import leaf_bytes, opened_levels
from assay.protocol.game_state import Game, GamePhase, Opening
from assay.protocol.types import ZERO_DIGEST, Address, Seconds
from spec.refusal import Refused


class IllegalMove(Refused):
    """The Court would revert; `error` is its custom error."""


@dataclass(frozen=True)
class NodeFacts:
    """What a node's encoding says about its output."""

    bytes: int
    element_bytes: int
    is_f32: bool
    is_bool: bool


Element = Callable[[Game, bytes, int, Sequence[Opening]], int]
"""The arbiter: bits of an element of the node's output from verified openings. Raises IllegalMove for
unsound openings."""
Facts = Callable[[bytes], NodeFacts]
"""Decodes a node. Raises IllegalMove(MalformedNode)."""


@dataclass(frozen=True)
class Arithmetic:
    """What the game must know about programs, given by ``spec.evidence`` (or by a test)."""

    facts: Facts
    element: Element


@dataclass(frozen=True)
class Verdict:
    """How a game ended. `reason`: timeout, children, output, padding, leaf or arithmetic."""

    challenger_won: bool
    reason: str


def digest_of(digests: Sequence[bytes]) -> bytes:
    """Stand-in for the Court's Keccak hash of revealed digests; it is only compared, so any hash works."""
    return trees.leaf(b"".join(digests))


def _require(holds: bool, error: str, why: str = "") -> None:
    if not holds:
        raise IllegalMove(error, why)


def is_canonical(bits: int, facts: NodeFacts) -> bool:
    """True if a tensor may hold these bits: a bool is 0 or 1, and the only NaN is 0x7fc00000."""
    if facts.is_bool:
        return bits <= 1
    return not facts.is_f32 or (bits & 0x7FFFFFFF) <= 0x7F800000 or bits == 0x7FC00000


def _next(game: Game, now: Seconds, **changes: Any) -> Game:
    return replace(game, deadline=Seconds(now + game.move_time), **changes)


def _reveal_steps(game: Game, move: RevealSteps, now: Seconds) -> Game:
    _require(len(move.roots) == game.steps - 1, "WrongCount")
    return _next(game, now, phase=GamePhase.PICK_STEP, revealed=digest_of(move.roots))


def _pick_step(game: Game, move: PickStep, now: Seconds) -> Game:
    _require(digest_of(move.roots) == game.revealed, "WrongChildren")
    _require(move.j < game.steps, "IndexOutOfRange")
    last = move.j == game.steps - 1
    return _next(
        game,
        now,
        phase=GamePhase.TRACE,
        in_root=game.in_root if move.j == 0 else move.roots[move.j - 1],
        out_root=game.out_root if last else move.roots[move.j],
        key=game.key if last else ZERO_DIGEST,
        step=game.step + move.j,
        steps=1,
        revealed=ZERO_DIGEST,
    )


def _opened(game: Game, children: Sequence[bytes]) -> bytes:
    """What the game keeps of opened children. The challenger checks that they fold (`ProveChildren`)."""
    _require(len(children) == 1 << opened_levels(game.level), "WrongCount")
    return digest_of(children)


def _reveal_trace(game: Game, move: RevealTrace, now: Seconds) -> Game:
    if game.key != ZERO_DIGEST:
        _require(move.trace_root == game.out_root, "WrongChildren")
    nodes = game.program.nodes
    opened = replace(
        game,
        trace_root=move.trace_root,
        digest=move.trace_root,
        level=trees.depth(nodes),
        index=0,
        leaves=nodes,
    )
    return _next(opened, now, phase=GamePhase.PICK_NODE, revealed=_opened(opened, move.children))


_AFTER_SPLIT = {
    GamePhase.SPLIT_NODE: GamePhase.PICK_NODE,
    GamePhase.SPLIT_LEAF: GamePhase.PICK_LEAF,
    GamePhase.SPLIT_OUTPUT: GamePhase.PICK_OUTPUT,
}
_AFTER_PICK = {after: before for before, after in _AFTER_SPLIT.items()}


def _split(game: Game, move: Split, now: Seconds) -> Game:
    return _next(game, now, phase=_AFTER_SPLIT[game.phase], revealed=_opened(game, move.children))


def _prove_children(game: Game, move: ProveChildren) -> Verdict:
    _require(digest_of(move.children) == game.revealed, "WrongChildren")
    _require(trees.root(move.children) != game.digest, "NoDifference")
    return Verdict(True, "children")


def _pick(game: Game, move: Pick, now: Seconds, arithmetic: Arithmetic) -> Game | Verdict:
    down = opened_levels(game.level)
    _require(move.child < 1 << down, "IndexOutOfRange")
    shape = len(move.children) == 1 << down
    _require(shape and trees.root(move.children) == game.digest, "WrongChildren")
    level = game.level - down
    index = game.index + (move.child << level)
    digest = move.children[move.child]
    if index >= game.leaves:
        _require(digest != trees.ZEROS[level], "NoDifference")
        return Verdict(True, "padding")
    below = replace(game, digest=digest, level=level, index=index, revealed=ZERO_DIGEST)
    if level == 0 and game.phase == GamePhase.PICK_NODE:
        return _enter_node(below, move, now, arithmetic)
    _require(not move.node and not move.node_proof, "WrongCount", "no node is picked here")
    if level:
        return _next(below, now, phase=_AFTER_PICK[game.phase])
    _require(game.phase == GamePhase.PICK_LEAF, "WrongPhase", "a slot's digest is not opened further")
    return _next(below, now, phase=GamePhase.REVEAL_LEAF)


def _enter_node(game: Game, move: Pick, now: Seconds, arithmetic: Arithmetic) -> Game:
    """Enters a trace leaf: from now on the game is about the node's output tensor."""
    program = game.program
    leaves = 1 + program.nodes + program.slots
    node_leaf = trees.leaf(move.node)
    _require(trees.verify(program.root, leaves, 1 + game.index, node_leaf, move.node_proof), "BadProof")
    size = arithmetic.facts(move.node).bytes
    count = -(-size // trees.LEAF_BYTES)
    level = trees.depth(count)
    phase = GamePhase.SPLIT_LEAF if level else GamePhase.REVEAL_LEAF
    return _next(
        game,
        now,
        node=game.index,
        node_hash=digest_of([move.node]),
        size=size,
        level=level,
        index=0,
        leaves=count,
        phase=phase,
    )


def _open_state(game: Game) -> Game:
    """Enters the state: from now on the defender opens the tree of `out_root`."""
    slots = game.program.slots
    return replace(
        game,
        phase=GamePhase.SPLIT_OUTPUT,
        digest=game.out_root,
        level=trees.depth(slots),
        index=0,
        leaves=slots,
        revealed=ZERO_DIGEST,
    )


def input_game(game: Game, input_root: bytes) -> Game:
    """Initial state of a game in which a claimant opens its input root."""
    return _open_state(replace(game, steps=0, out_root=input_root))


def _open_output(game: Game, now: Seconds) -> Game:
    _require(game.key == ZERO_DIGEST, "WrongPhase", "a keyed trace has no output state")
    return _next(_open_state(game), now)


def _prove_output(game: Game, move: ProveOutput) -> Verdict:
    _require(game.key == ZERO_DIGEST, "WrongPhase", "a keyed trace has no output state")
    _require(game.steps > 0, "WrongPhase", "an input state has no trace yet")
    _require(move.state_leaf != move.trace_leaf, "NoDifference")
    program = game.program
    _require(move.slot < program.slots, "IndexOutOfRange")
    leaves = 1 + program.nodes + program.slots
    ref_leaf = trees.leaf(move.ref.to_bytes(4, "big"))
    at = 1 + program.nodes + move.slot
    _require(trees.verify(program.root, leaves, at, ref_leaf, move.ref_proof), "BadProof")
    _require(
        trees.verify(game.out_root, program.slots, move.slot, move.state_leaf, move.state_proof), "BadProof"
    )
    _require(
        trees.verify(game.trace_root, program.nodes, move.ref, move.trace_leaf, move.trace_proof), "BadProof"
    )
    return Verdict(True, "output")


def _reveal_leaf(game: Game, move: RevealLeaf, now: Seconds) -> Game:
    _require(len(move.data) == leaf_bytes(game), "WrongCount")
    digest = trees.leaf(move.data) if game.key == ZERO_DIGEST else trees.keyed_leaf(game.key, move.data)
    _require(digest == game.digest, "BadProof")
    return _next(game, now, phase=GamePhase.PROVE, revealed=digest_of([move.data]))


def _prove(game: Game, move: Prove, arithmetic: Arithmetic) -> Verdict:
    _require(digest_of([move.node]) == game.node_hash, "BadProof")
    facts = arithmetic.facts(move.node)
    at = move.element * facts.element_bytes - game.index * trees.LEAF_BYTES
    _require(0 <= at <= leaf_bytes(game) - facts.element_bytes, "IndexOutOfRange")
    _require(digest_of([move.data]) == game.revealed, "BadProof")
    bits = int.from_bytes(move.data[at : at + facts.element_bytes], "little")
    if not is_canonical(bits, facts):
        return Verdict(True, "leaf")
    _require(arithmetic.element(game, move.node, move.element, move.openings) != bits, "NoDifference")
    return Verdict(True, "arithmetic")


_PHASES: dict[type, tuple[GamePhase, ...]] = {
    RevealSteps: (GamePhase.STEPS,),
    PickStep: (GamePhase.PICK_STEP,),
    RevealTrace: (GamePhase.TRACE,),
    Split: tuple(_AFTER_SPLIT),
    Pick: tuple(_AFTER_PICK),
    ProveChildren: tuple(_AFTER_PICK),
    OpenOutput: (GamePhase.PICK_NODE,),
    ProveOutput: (GamePhase.PICK_NODE, GamePhase.PICK_OUTPUT),
    RevealLeaf: (GamePhase.REVEAL_LEAF,),
    Prove: (GamePhase.PROVE,),
}
"""Phases in which each move is legal."""


def play(
    game: Game, move: Move, by: Address, now: Seconds, counted: Seconds, arithmetic: Arithmetic
) -> Game | Verdict:
    """Applies one move by account `by` at chain time `now` (seconds); deadlines before `counted` have passed.

    Raises IllegalMove where the Court reverts.
    """
    if isinstance(move, Timeout):
        _require(counted > game.deadline, "DeadlineNotPassed")
        return Verdict(not game.phase.challengers, "timeout")
    _require(game.phase in _PHASES[type(move)], "WrongPhase", game.phase.name)
    _require(by == game.mover, "NotYourMove")
    _require(counted <= game.deadline, "DeadlinePassed")
    match move:
        case RevealSteps():
            return _reveal_steps(game, move, now)
        case PickStep():
            return _pick_step(game, move, now)
        case RevealTrace():
            return _reveal_trace(game, move, now)
        case Split():
            return _split(game, move, now)
        case Pick():
            return _pick(game, move, now, arithmetic)
        case ProveChildren():
            return _prove_children(game, move)
        case OpenOutput():
            return _open_output(game, now)
        case ProveOutput():
            return _prove_output(game, move)
        case RevealLeaf():
            return _reveal_leaf(game, move, now)
        case Prove():
            return _prove(game, move, arithmetic)

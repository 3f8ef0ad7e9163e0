"""The honest player of a dispute, on either side (docs/protocol.md, section 6).

Contract: `move` is a function of the game's public history and of a replay of the disputed steps. It gives
the move that wins, or None when it is not this player's turn or there is nothing sound to say. A defender
whose claim is what its replay computes never loses; a challenger whose replay differs from the claim never
loses. Not guaranteed: anything in time; clocks are the caller's. A cheat is the same player with a faulty
replay (``program.fault``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.dispute.evidence import node_proof, openings, output_proof
from assay.dispute.replay import Replay
from assay.dispute.trace import StepTrace
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
)
from assay.protocol.errors import Retry, Stop
from assay.protocol.game import opened_levels
from assay.protocol.game_state import Game, GamePhase, GameView, Opened
from assay.protocol.types import ZERO_DIGEST, Address


class IncompleteHistory(Retry):
    """The view lacks an opened tree node that a proof needs: read the game's events again."""

    code = "incomplete-history"


class WrongReplay(Stop):
    """The replay does not pass through the state that both players accept."""

    code = "wrong-replay"


def disputed_path(root: bytes, leaf: int, known: trees.Tree, opened: Sequence[Opened]) -> tuple[bytes, ...]:
    """Siblings of `leaf` up to `root`, in a tree that is only partly `known`.

    Where it differs from the known tree, its digests come from opened nodes. Raises IncompleteHistory.
    """
    children_of = {o.digest: o.children for o in opened}
    current, level = root, known.depth
    siblings: list[bytes] = []
    while level and known.digest(level, leaf >> level) != current:
        down = opened_levels(level)
        children = children_of.get(current, ())
        if len(children) != 1 << down:
            raise IncompleteHistory(f"tree node {current.hex()} at level {level} was not seen opened")
        place = leaf >> (level - down) & ((1 << down) - 1)
        siblings = trees.build(children).proof(place) + siblings
        current, level = children[place], level - down
    return tuple([known.digest(at, (leaf >> at) ^ 1) for at in range(level)] + siblings)


def _first_difference(own: Sequence[bytes], given: Sequence[bytes]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(own, given, strict=True)) if a != b), None)


class Disputant:
    """Plays for account `me` in any game; `replay_for(game)` returns a replay of the disputed steps.

    The last game's replay and trace are cached: a move about 124 million parameters would otherwise take as
    long as the step.
    """

    def __init__(self, me: Address, replay_for: Callable[[Game], Replay]) -> None:
        self._me = me
        self._replay_for = replay_for
        self._kept: tuple[object, Replay] | None = None

    def _replay(self, view: GameView) -> Replay:
        game = view.game
        about = view.game_id, game.claim_id, game.defender, game.segment, game.steps == 0
        if self._kept is None or self._kept[0] != about:
            self._kept = None  # not two of them at once
            self._kept = about, self._replay_for(game)
        return self._kept[1]

    def move(self, view: GameView) -> Move | None:
        """The next move, or None. Raises WrongReplay, IncompleteHistory, and errors of replaying."""
        if view.decided or view.game.mover != self._me:
            return None
        try:
            side = _Side(view, self._replay(view))
        except WrongReplay:
            self._kept = None
            raise
        return side.point() if view.game.phase.challengers else side.reveal()


class _Side:
    """State for one move of one game, on either side."""

    def __init__(self, view: GameView, replay: Replay) -> None:
        self._view, self._game, self._replay = view, view.game, replay
        self._at = view.game.step - replay.first_step
        agreed = view.game.steps == 0 or (self._at >= 0 and replay.root(self._at) == view.game.in_root)
        if not agreed:
            raise WrongReplay(
                f"the replay from step {replay.first_step} does not reach the state that game {view.game_id}"
                f" starts from at step {view.game.step}; a move based on it could lose the game, so none was"
                " made",
                hint="replay from the state that the game's inRoot names",
            )

    def _trace(self) -> StepTrace:
        key = b"" if self._game.key == ZERO_DIGEST else self._game.key
        return self._replay.trace(self._at, key)

    def _tree(self) -> trees.Tree:
        """This side's version of the tree being opened."""
        phase = self._game.phase
        if phase in (GamePhase.TRACE, GamePhase.PICK_NODE, GamePhase.SPLIT_NODE):
            return self._trace().tree
        if phase in (GamePhase.PICK_OUTPUT, GamePhase.SPLIT_OUTPUT):
            return self._replay.state_tree(self._at + self._game.steps)  # 0 steps: the input state itself
        return self._trace().tensor_tree(self._game.node)

    def _children(self) -> list[bytes]:
        game = self._game
        down = opened_levels(game.level)
        return self._tree().descendants(game.level, game.index >> game.level, down)

    # Defender

    def reveal(self) -> Move | None:
        game = self._game
        if game.phase == GamePhase.STEPS:
            return RevealSteps(tuple(self._replay.root(self._at + i) for i in range(1, game.steps)))
        tree = self._tree()
        if game.phase == GamePhase.TRACE:
            down = opened_levels(tree.depth)
            return RevealTrace(tree.root, tuple(tree.descendants(tree.depth, 0, down)))
        if tree.digest(game.level, game.index >> game.level) != game.digest:
            return None
        if game.phase == GamePhase.REVEAL_LEAF:
            return RevealLeaf(self._leaf())
        return Split(tuple(self._children()))

    def _leaf(self) -> bytes:
        start = self._game.index * trees.LEAF_BYTES
        return bytes(self._trace().output(self._game.node)[start : start + trees.LEAF_BYTES])

    # Challenger

    def point(self) -> Move | None:
        phase = self._game.phase
        if phase == GamePhase.PICK_STEP:
            return self._pick_step()
        if phase == GamePhase.PROVE:
            return self._prove()
        if trees.root(self._view.digests) != self._game.digest:
            return ProveChildren(self._view.digests)
        child = _first_difference(self._children(), self._view.digests)
        if child is None:
            return self._agrees()
        level = self._game.level - opened_levels(self._game.level)
        leaf = self._game.index + child
        if level == 0 and phase == GamePhase.PICK_OUTPUT and leaf < self._game.program.slots:
            # A slot of an input state is not the court's business: it is bound to its source (rule 4.4).
            return self._prove_output(leaf) if self._game.steps else None
        if level == 0 and phase == GamePhase.PICK_NODE and leaf < self._game.program.nodes:
            program = self._replay.program
            encoded, proof = program.nodes[leaf].encode(), node_proof(program, leaf)
            return Pick(self._view.digests, child, encoded, proof)
        return Pick(self._view.digests, child, b"", ())

    def _pick_step(self) -> Move | None:
        game, given = self._game, self._view.digests
        own = [self._replay.root(self._at + i) for i in range(1, game.steps)]
        j = _first_difference(own, given)
        if j is not None:
            return PickStep(given, j)
        last = self._at + game.steps - 1
        agreed = (
            self._replay.root(last + 1)
            if game.key == ZERO_DIGEST
            else self._replay.trace(last, game.key).root
        )
        return None if agreed == game.out_root else PickStep(given, game.steps - 1)

    def _agrees(self) -> Move | None:
        """Handles opened digests that all agree: then the trace is right, and only the claimed output can be
        wrong."""
        game = self._game
        at_top = game.phase == GamePhase.PICK_NODE and game.digest == game.trace_root
        if not at_top or game.key != ZERO_DIGEST or self._replay.root(self._at + 1) == game.out_root:
            return None
        return OpenOutput()

    def _prove_output(self, slot: int) -> ProveOutput:
        program, game, opened = self._replay.program, self._game, self._view.opened
        ref, trace = program.outputs[slot], self._trace()
        children = trees.build(self._view.digests)
        return ProveOutput(
            slot=slot,
            ref=ref,
            ref_proof=output_proof(program, slot),
            state_leaf=children.levels[0][slot - game.index],
            state_proof=disputed_path(game.out_root, slot, self._tree(), opened),
            trace_leaf=trace.tree.digest(0, ref),
            trace_proof=disputed_path(game.trace_root, ref, trace.tree, opened),
        )

    def _prove(self) -> Move | None:
        game, data = self._game, self._view.leaf_data
        node = self._replay.program.nodes[game.node]
        own, size = self._leaf(), node.dtype.size
        wrong = next((i for i in range(0, len(data), size) if data[i : i + size] != own[i : i + size]), None)
        if wrong is None:
            return None
        element = (game.index * trees.LEAF_BYTES + wrong) // size
        trace = self._trace()

        def path(ref: int) -> tuple[bytes, ...]:
            return disputed_path(game.trace_root, ref, trace.tree, self._view.opened)

        return Prove(data, node.encode(), element, openings(trace, game.node, element, path))

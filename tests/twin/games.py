"""Moves of a game between players who know only what the scene remembers, and are often wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from assay.dispute.evidence import node_proof, output_proof
from assay.program.isa import Op, Program
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
from assay.protocol.game_state import Game, GamePhase, Opening
from assay.protocol.types import ZERO_DIGEST, Address, Seconds
from tests.twin.scene import PROGRAMS, Scene

Doing = tuple[Move, Address]


def game_moves(scene: Scene, game_id: int, game: Game, rng: random.Random, now: Seconds) -> list[Doing]:
    """Moves that somebody could try now."""
    program = _program(game)
    by_phase: dict[GamePhase, Callable[[], Sequence[Move]]] = {
        GamePhase.STEPS: lambda: [RevealSteps(tuple(scene.state(program) for _ in range(game.steps - 1)))],
        GamePhase.PICK_STEP: lambda: [PickStep(scene.steps[game_id], rng.randrange(game.steps + 1))],
        GamePhase.TRACE: lambda: [_trace(scene, game, program, rng)],
        GamePhase.PICK_NODE: lambda: _pick_node(scene, game, program, rng),
        GamePhase.SPLIT_OUTPUT: lambda: _split_output(scene, game, rng),
        GamePhase.PICK_OUTPUT: lambda: _pick_output(scene, game, program, rng),
        GamePhase.REVEAL_LEAF: lambda: [RevealLeaf(_leaf(scene, game))],
        GamePhase.PROVE: lambda: _prove(scene, game, program, rng),
    }
    moves: list[Move] = list(by_phase[game.phase]()) if game.phase in by_phase else []
    doings = [(move, game.mover) for move in moves]
    if now >= game.deadline:
        doings.append((Timeout(), rng.choice([game.challenger, game.defender])))
    return doings


def _program(game: Game) -> Program:
    return PROGRAMS[game.program.root]


def _padded(digests: tuple[bytes, ...]) -> tuple[bytes, ...]:
    return (*digests, *[ZERO_DIGEST] * ((1 << trees.depth(len(digests))) - len(digests)))


def _trace(scene: Scene, game: Game, program: Program, rng: random.Random) -> RevealTrace:
    known = scene.traces.get(game.out_root) if game.key != ZERO_DIGEST else None
    trace = known or scene.trace(program)
    children = _padded(tuple(trace.tree.levels[0]))
    if game.key == ZERO_DIGEST and len(children) > len(program.nodes) and rng.random() < 0.2:
        children = (*children[:-1], rng.randbytes(32))  # something where there should be padding
    root = trees.root(children)
    scene.traces[root] = trace
    return RevealTrace(root, _falsely(children, rng))


def _falsely(children: tuple[bytes, ...], rng: random.Random) -> tuple[bytes, ...]:
    """The children, or now and then others than fold to what is opened."""
    return children if rng.random() < 0.9 else (rng.randbytes(32), *children[1:])


def _pick_node(scene: Scene, game: Game, program: Program, rng: random.Random) -> list[Move]:
    children = scene.children[game.trace_root]
    child = rng.randrange(len(children))
    node: bytes = b""
    proof: tuple[bytes, ...] = ()
    if child < len(program.nodes):
        node, proof = program.nodes[child].encode(), node_proof(program, child)
        if rng.random() < 0.1:
            proof = proof[1:]
    moves: list[Move] = [Pick(children, child, node, proof)] * 3
    # A defender may have revealed roots of nothing at all; then nobody can open that state.
    if game.key == ZERO_DIGEST and game.out_root in scene.states:
        moves += [_prove_output(scene, game, program, rng)]
    return [*moves, OpenOutput(), ProveChildren(children)]


def _split_output(scene: Scene, game: Game, rng: random.Random) -> list[Move]:
    if game.out_root not in scene.states:
        return []
    return [Split(_falsely(_padded(_state_leaves(scene, game)), rng))]


def _state_leaves(scene: Scene, game: Game) -> tuple[bytes, ...]:
    return tuple(scene.state_tree(game.out_root).levels[0])


def _pick_output(scene: Scene, game: Game, program: Program, rng: random.Random) -> list[Move]:
    children = scene.children[game.out_root]
    pick = Pick(children, rng.randrange(len(children)), b"", ())
    if game.steps:
        return [_prove_output(scene, game, program, rng), pick, ProveChildren(children)]
    slot, none = rng.randrange(program.slots), ()
    leaf, way = children[slot], output_proof(program, slot)
    return [
        pick,
        ProveChildren(children),
        ProveOutput(slot, program.outputs[slot], way, leaf, none, ZERO_DIGEST, none),
    ]


def _prove_output(scene: Scene, game: Game, program: Program, rng: random.Random) -> ProveOutput:
    slot = rng.randrange(program.slots)
    ref = program.outputs[slot]
    state = scene.state_tree(game.out_root)
    trace = trees.build(scene.children[game.trace_root])
    stand_in = (slot, tuple(state.proof(slot))) if rng.random() < 0.9 else (slot, ())
    return ProveOutput(
        slot=slot,
        ref=ref,
        ref_proof=output_proof(program, slot),
        state_leaf=state.levels[0][slot],
        state_proof=stand_in[1],
        trace_leaf=trace.levels[0][ref],
        trace_proof=tuple(trace.proof(ref)),
    )


def _leaf(scene: Scene, game: Game) -> bytes:
    """Bytes of the disputed node's output; every tensor here has one leaf."""
    return scene.traces[game.trace_root].outputs[game.node]


def _prove(scene: Scene, game: Game, program: Program, rng: random.Random) -> list[Move]:
    node = program.nodes[game.node]
    trace, element = scene.traces[game.trace_root], rng.randrange(node.elements)
    tree = trees.build(scene.children[game.trace_root])
    if node.op is Op.STATE:
        slots = scene.states.get(game.in_root)
        if slots is None:
            return []
        way = tuple(scene.state_tree(game.in_root).proof(game.node))
        openings = [Opening(0, 0, slots[game.node], (), way)]
    else:
        refs = [source.ref for source in node.inputs]
        ways = [tuple(tree.proof(ref)) for ref in refs]
        for i in range(1, len(refs)):
            ways[i] = trees.siblings_below_join(refs[i - 1], refs[i], ways[i])
        openings = [Opening(i, 0, trace.outputs[ref], (), ways[i]) for i, ref in enumerate(refs)]
    if rng.random() < 0.1:
        openings = openings[1:]
    return [Prove(_leaf(scene, game), node.encode(), element, tuple(openings))]

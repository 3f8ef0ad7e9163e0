"""Objects of a twin run: two tiny programs, states and traces with known preimages, terms.

Contract: every root that a run puts on chain is kept with its preimage, so that proofs can be made. States
and traces are random bytes, hence almost always wrong: games about them can end in every way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assay.dispute.evidence import node_proof, output_proof
from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Input, Program
from assay.protocol import trees
from assay.protocol.demands import Chunk, VoteProof
from assay.protocol.loops import own_link, parted, round_shape
from assay.protocol.params import STAKE_PER_FEES, least_stake, most_voting, most_wasted
from assay.protocol.types import (
    NO_SLOT,
    Address,
    Claim,
    Conditions,
    JobId,
    Kind,
    Link,
    Loop,
    Origin,
    ProgramRef,
    Seconds,
    Terms,
    Wei,
)
from tests.fakes.classes import class_id
from tests.fakes.shapes import one_loop_each
from tests.fakes.terms import kept_to, some_terms
from tests.twin.deployed import BOUNDS


def inner_program() -> Program:
    """Three slots, one of them a parameter."""
    b = ProgramBuilder()
    p, m, n = b.state(DType.F32, (4,)), b.state(DType.F32, (4,)), b.state(DType.I32, ())
    return b.finish([b.add(p, m), b.mul(m, b.const(0.5, DType.F32)), b.iadd(n, b.const(1, DType.I32))], 1)


def outer_program(shards: int) -> Program:
    """The first shard's parameters become the model; everything else passes through."""
    b = ProgramBuilder()
    slots: list[Input] = [b.state(DType.F32, (4,)) for _ in range(2 + shards)]
    return b.finish([slots[2], *slots[1:]], 1)


def present_program(shards: int) -> Program:
    """The same, with a slot for each shard that says whether it is there."""
    b = ProgramBuilder()
    slots: list[Input] = [b.state(DType.F32, (4,)) for _ in range(2 + shards)]
    slots += [b.state(DType.BOOL, ()) for _ in range(shards)]
    return b.finish([slots[2], *slots[1:]], 1)


INNER = inner_program()
OUTERS = {shards: outer_program(shards) for shards in (1, 2)}
LINKED = {shards: present_program(shards) for shards in (1, 2)}
PROGRAMS = {program.root: program for program in (INNER, *OUTERS.values(), *LINKED.values())}


def program_of(terms: Terms, kind: Kind) -> Program:
    """The program of all loops of a kind of claim."""
    return PROGRAMS[terms.loops_of(kind)[0].root]


def some_links(rng: random.Random, shards: int, slices: int) -> tuple[list[Link], list[Link]]:
    """Links of tasks and of outer claims between slots of one shape, of every kind there is."""
    otherwise, shift, lag = rng.choice([NO_SLOT, 0, 1]), rng.choice([0, 1]), rng.choice([1, 2])
    tasks = [
        rng.choice(
            [
                Link(Origin.OUT, Kind.OUTER, lag, 1, 1, rng.choice([0, 1]), shift, NO_SLOT),
                Link(Origin.OUT, Kind.OUTER, lag, 1, 1, 0, 0, NO_SLOT, 1, 2, 1),
            ]
        ),
        Link(Origin.OUT, Kind.TASK, rng.choice([1, 2]), 1, 1, 1, shift, otherwise),
        replace(own_link(1), origin=rng.choice([Origin.OWN, Origin.GENESIS])),
    ]
    parts = parted(slices, 1) if rng.random() < 0.5 else {}
    first = 0 if parts else rng.choice([0, 1])
    outers = [
        own_link(1),
        rng.choice(
            [
                replace(own_link(1), origin=rng.choice([Origin.OWN, Origin.GENESIS])),
                Link(Origin.OUT, Kind.OUTER, lag, 1, 1, 1, shift, NO_SLOT),
            ]
        ),
        Link(Origin.OUT, Kind.TASK, rng.choice([0, 0, 1]), 1, shards, first, shift, otherwise, **parts),
        Link(Origin.PRESENT, Kind.TASK, rng.choice([0, 0, 1]), 1, shards, 0, shift, 0),
    ]
    return tasks, outers


def some_loops(rng: random.Random, shards: int, samples: int, slices: int) -> dict[str, Any]:
    """Terms of a round of several loops, with links of every kind."""
    steps, slow = rng.choice([1, 2]), rng.choice([1, 1, 2])
    whole = steps * slow
    tasks = [Loop(INNER.root, len(INNER.nodes), 2 * whole, whole, 1, 1, slow) for _ in range(samples)]
    outer = LINKED[shards]
    outers = [Loop(outer.root, len(outer.nodes), 1, 1, 0) for _ in range(rng.choice([1, 2]))]
    return round_shape(tasks, outers, some_links(rng, shards, slices), slices, slices)


PAIR = Conditions(
    verifiers=2,
    samples=1,
    seed_delay=1,
    vote_time=Seconds(30),
    challenge_window=Seconds(120),
    move_time=Seconds(60),
    verifier_stake=Wei(203),
    miss_penalty=Wei(31),
    challenge_bond=Wei(57),
    verifier_fee=Wei(0),
    solver_stake=Wei(406),
    nodes=64,
    segments=4,
    segment_steps=4,
    data_bytes=40,
    state_bytes=100,
    step_bytes=100,
    step_operations=100,
)
"""Two verifiers with one sample each."""
LONE = replace(
    PAIR,
    verifiers=1,
    samples=2,
    seed_delay=2,
    challenge_window=Seconds(25),
    move_time=Seconds(15),
    verifier_stake=Wei(505),
    solver_stake=Wei(505),
    miss_penalty=Wei(252),
    challenge_bond=Wei(505),
)
"""One verifier with two samples; another window, other amounts."""
CLASSES = [PAIR, PAIR, LONE]


def reference(program: Program) -> ProgramRef:
    """A program's reference in the terms."""
    return ProgramRef(program.root, len(program.nodes), program.slots, program.params)


@dataclass(frozen=True)
class Trace:
    """The claimed outputs of every node of a step, under a key or not."""

    key: bytes
    outputs: tuple[bytes, ...]
    tree: trees.Tree


@dataclass
class Scene:
    """Roots and what is below them."""

    rng: random.Random
    states: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    geneses: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    """Roots of all slices' first states, by the root over them."""
    traces: dict[bytes, Trace] = field(default_factory=dict)
    segments: dict[bytes, trees.Tree] = field(default_factory=dict)
    samples: dict[bytes, trees.Tree] = field(default_factory=dict)
    steps: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Roots that a game's defender revealed."""
    children: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    """Children that a defender opened, by digest."""

    def noise(self, size: int) -> bytes:
        """Random bytes that are canonical for every dtype of the programs here."""
        if size < 4:  # of bools
            return bytes(self.rng.randrange(2) for _ in range(size))
        return b"".join(self.rng.randbytes(3) + bytes([self.rng.randrange(0x7F)]) for _ in range(size // 4))

    def state(self, program: Program, like: dict[int, bytes] | None = None) -> bytes:
        """The root of a new state; the slots in `like` hold the given bytes."""
        given = like or {}
        slots = tuple(given.get(i) or self.noise(node.bytes) for i, node in enumerate(program.state))
        root = trees.root([trees.tensor_root(slot) for slot in slots])
        self.states[root] = slots
        return root

    def state_tree(self, root: bytes) -> trees.Tree:
        """Tree over a state's tensor roots."""
        return trees.build([trees.tensor_root(slot) for slot in self.states[root]])

    def outer_genesis(self, program: Program, slices: int) -> bytes:
        """The root over the slices' first states."""
        roots = tuple(self.state(program) for _ in range(slices))
        self.geneses[trees.root(roots)] = roots
        return trees.root(roots)

    def genesis(self, terms: Terms, kind: Kind, unit: int) -> tuple[bytes, list[bytes]]:
        """The root of the first state of a shard or a slice, and the way from there to the terms' root."""
        root = terms.genesis_of(kind)
        if kind == Kind.TASK:
            return root, []
        roots = self.geneses[root]
        return roots[unit], trees.build(roots).proof(unit)

    def trace(self, program: Program, key: bytes = b"", state: bytes | None = None) -> Trace:
        """A new trace of random outputs; if it is given, the state of that root comes out."""
        outputs = [self.noise(node.bytes) for node in program.nodes]
        for ref, slot in zip(program.outputs, self.states[state] if state else (), strict=False):
            outputs[ref] = slot
        tree = trees.build([trees.tensor_root(output, key) for output in outputs])
        self.traces[tree.root] = trace = Trace(key, tuple(outputs), tree)
        return trace

    def segment_tree(self, program: Program, segments: int, first: bytes, last: bytes) -> trees.Tree:
        """A claim's segments tree between two states."""
        roots = [first, *(self.state(program) for _ in range(segments - 1)), last]
        tree = trees.build(roots)
        self.segments[tree.root] = tree
        return tree

    def terms(self, client: Address, nonce: int) -> Terms:
        """Small terms of odd amounts."""
        rng = self.rng
        shards, rounds = rng.choice([1, 2, 2]), rng.choice([1, 2, 3])
        slices = rng.choice([1, 1, 2])
        conditions = rng.choice(CLASSES)
        segment_steps = rng.choice([1, 2, 4] if conditions.samples == 1 else [1, 2])
        floor, least_shards = rng.choice([0, 7, 333]), rng.choice([1, shards])
        whole = least_shards == shards
        inner = replace(reference(INNER), params=slices)
        shape = one_loop_each(
            inner, reference(OUTERS[shards]), shards, 4, segment_steps, conditions.samples, slices
        )
        if rng.random() < 0.5:
            shape = some_loops(rng, shards, conditions.samples, slices)
        outer = PROGRAMS[shape["outer_loops"][0].root]
        terms = some_terms(
            shape | kept_to(conditions),
            client=client,
            dataset_root=rng.randbytes(32),
            genesis_root=self.state(INNER),
            outer_genesis_root=self.outer_genesis(outer, slices),
            manifest=rng.randbytes(32),
            seed=rng.randbytes(32),
            class_id=class_id(conditions),
            records=5,
            shards=shards,
            min_shards=least_shards,
            rounds=rounds,
            max_unsettled=rng.choice([1, 2]),
            task_time=Seconds(rng.choice([40, 400])),
            straggler_time=Seconds(rng.choice([30, 300])),
            outer_time=Seconds(rng.choice([10, 60])),
            price_period=Seconds(rng.choice([1, 50])),
            nonce=nonce,
            state_bytes=rng.choice([0, 100]),
            price_floor=Wei(floor),
            price_cap=Wei(floor + rng.choice([0, 101, 301])),
            verifier_fee=Wei(rng.choice([0, 13])),
            outer_fee=Wei(rng.choice([0, 29])),
            solver_stake=Wei(rng.choice([0, 301, 1_001])),
        )
        fees = STAKE_PER_FEES * terms.verifiers * terms.verifier_fee
        least = max(least_stake(most_wasted(terms)), fees, conditions.solver_stake)  # often as little as that
        late = terms.straggler_time if whole else max(terms.straggler_time, most_voting(terms, BOUNDS))
        return replace(terms, solver_stake=Wei(max(least, terms.solver_stake)), straggler_time=late)

    def claim(
        self, job_id: JobId, terms: Terms, kind: Kind, round_: int, shard: int, input_root: bytes
    ) -> Claim:
        """A claim with a new output state; the contract fills in the rest."""
        program = program_of(terms, kind)
        segments = terms.segments_of(kind)
        output_root = self.state(program)
        tree = self.segment_tree(program, segments, input_root, output_root)
        return Claim(
            job_id=job_id,
            kind=kind,
            round=round_,
            shard=shard,
            attempt=0,
            claimant=terms.client,
            input_root=input_root,
            output_root=output_root,
            segments_root=tree.root,
            manifest=self.rng.randbytes(32),
            price=Wei(0),
            committed_at=Seconds(0),
            rewinds=0,
        )

    def sampled(self, program: Program, key: bytes, samples: int) -> tuple[bytes, ...]:
        """Leaves of a verifier's tree over one keyed trace for each sample."""
        return self.attested([self.trace(program, key) for _ in range(samples)])

    def attested(self, traces: Sequence[Trace]) -> tuple[bytes, ...]:
        """Leaves of a verifier's tree over these traces."""
        tree = trees.build([trace.tree.root for trace in traces])
        self.samples[tree.root] = tree
        return tuple(tree.levels[0])

    def against(
        self, claim: Claim, segment: int, traces_root: bytes, sample: int, slot: int
    ) -> tuple[Chunk, VoteProof]:
        """The claim's leaf of a slot at the segment's end, and what the vote's trace says of it. Every tensor
        here has one leaf."""
        ends, traces = self.segments[claim.segments_root], self.samples[traces_root]
        root, trace = ends.levels[0][segment + 1], self.traces[traces.levels[0][sample]]
        ref, state = INNER.outputs[slot], self.state_tree(root)
        node, way = INNER.nodes[slot].encode(), node_proof(INNER, slot)
        said = VoteProof(
            state_root=root,
            state_proof=tuple(ends.proof(segment + 1)),
            ref=ref,
            ref_proof=output_proof(INNER, slot),
            trace_root=trace.tree.root,
            trace_proof=tuple(traces.proof(sample)),
            data=trace.outputs[ref],
            leaf_proof=(),
            node_proof=tuple(trace.tree.proof(ref)),
        )
        return Chunk(node, way, self.states[root][slot], (), tuple(state.proof(slot))), said

"""Over random programs: the executor is the scalar model, files are canonical, no lie survives a dispute."""

from __future__ import annotations

import random
from dataclasses import replace
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.dispute.evidence import openings
from assay.dispute.replay import Replay
from assay.program.fault import NodeFault, StateFault
from assay.program.isa import MalformedProgram, decode, encode
from assay.program.state import InvalidState, load_state, state_bytes, state_root
from assay.program.validate import InvalidProgram, validate
from assay.protocol.types import ZERO_DIGEST
from spec.evidence import element_bits
from spec.game import IllegalMove
from tests.fakes.arena import FIRST_STEP, SEED, SHARD, open_game, referee
from tests.fakes.programs import RECORD_SIZE, Sample, random_sample, training_sample

SEEDS = st.integers(0, 2**32 - 1)
GIB = 1 << 30
KEY = b"k" * 32


def replay(sample: Sample, fault: NodeFault | StateFault | None = None) -> Replay:
    return Replay(sample.program, sample.state, sample.dataset, SEED, SHARD, FIRST_STEP, fault=fault)


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=15)
def test_executor_agrees_with_the_scalar_model(seed: int) -> None:
    """Every node of a random program, at a random element, from proven openings alone (attack 44)."""
    sample, rng = random_sample(seed), random.Random(seed)
    validate(sample.program, RECORD_SIZE, max_bytes=GIB, max_operations=GIB)
    run = replay(sample)
    trace = run.trace(0)
    game = open_game(run, 1, run.root(0), run.root(1))
    game = replace(game, trace_root=trace.root)
    for index, node in enumerate(sample.program.nodes):
        element, size = rng.randrange(node.elements), node.dtype.size
        evidence = openings(trace, index, element, trace.tree.proof)
        bits = element_bits(replace(game, node=index), node.encode(), element, evidence)
        out = trace.output(index)[element * size : (element + 1) * size]
        assert bits == int.from_bytes(out, "little"), (index, node.op.name, element)


@given(SEEDS, st.data())
@settings(max_examples=60)
def test_one_flipped_bit_of_a_program_file_is_refused_or_another_program(
    seed: int, data: st.DataObject
) -> None:
    program = random_sample(seed % 8, instructions=10).program
    file = bytearray(encode(program))
    bit = data.draw(st.integers(0, 8 * len(file) - 1))
    file[bit // 8] ^= 1 << (bit % 8)
    try:
        changed = decode(bytes(file))
        validate(changed, RECORD_SIZE, max_bytes=GIB, max_operations=GIB)
    except (MalformedProgram, InvalidProgram):
        return
    assert encode(changed) == bytes(file)
    assert changed.root != program.root


@given(SEEDS, st.data())
@settings(max_examples=60)
def test_one_flipped_bit_of_a_state_file_is_refused_or_another_state(seed: int, data: st.DataObject) -> None:
    sample = random_sample(seed % 8, instructions=5)
    file = bytearray(state_bytes(sample.state))
    bit = data.draw(st.integers(0, 8 * len(file) - 1))
    file[bit // 8] ^= 1 << (bit % 8)
    try:
        changed = load_state(sample.program, BytesIO(file))
    except InvalidState:
        return
    assert state_bytes(changed) == bytes(file)
    assert state_root(changed) != state_root(sample.state)


@given(SEEDS, st.data())
@settings(max_examples=60)
def test_one_flipped_bit_of_an_opening_proves_nothing(seed: int, data: st.DataObject) -> None:
    """Attack 38: bytes that no proof leads from to an agreed root are never believed."""
    sample, rng = TRAINING, random.Random(seed)
    trace = TRAINING_RUN.trace(0)
    game = open_game(TRAINING_RUN, 1, TRAINING_RUN.root(0), TRAINING_RUN.root(1))
    game = replace(game, trace_root=trace.root)
    index = rng.choice(
        [i for i, n in enumerate(sample.program.nodes) if n.inputs or n.op.name in ("STATE", "DATA")]
    )
    node = sample.program.nodes[index]
    element = rng.randrange(node.elements)
    evidence = list(openings(trace, index, element, trace.tree.proof))
    which = rng.randrange(len(evidence))
    one = evidence[which]
    parts = [one.data, *one.siblings, *one.path]
    at = rng.randrange(len(parts))
    bit = data.draw(st.integers(0, 8 * len(parts[at]) - 1))
    parts[at] = bytes(b ^ (1 << bit % 8 if i == bit // 8 else 0) for i, b in enumerate(parts[at]))
    cut = 1 + len(one.siblings)
    evidence[which] = type(one)(one.input, one.first_leaf, parts[0], tuple(parts[1:cut]), tuple(parts[cut:]))
    with pytest.raises(IllegalMove, match="BadProof"):
        element_bits(replace(game, node=index), node.encode(), element, evidence)


TRAINING = training_sample()
TRAINING_RUN = replay(TRAINING)


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=25)
def test_one_ulp_anywhere_is_convicted(seed: int) -> None:
    """Attacks 1, 2, 5, 6, 9, 15: whatever element of whatever node or slot is wrong, one honest challenger
    wins.
    """
    sample, rng = random_sample(seed, instructions=15), random.Random(seed)
    honest = replay(sample)
    steps = rng.choice([1, 2, 4])
    node = rng.randrange(len(sample.program.nodes))
    fault = NodeFault(FIRST_STEP + steps - 1, node, rng.randrange(sample.program.nodes[node].elements))
    liar = replay(sample, fault)
    vote = open_game(liar, steps, honest.root(0), liar.trace(steps - 1, KEY).root, KEY)
    view = referee(vote, liar, honest)
    assert (view.challenger_won, view.reason, view.game.node) == (True, "arithmetic", node)
    slot = rng.randrange(sample.program.slots)
    element = rng.randrange(sample.program.nodes[slot].elements)
    liar = replay(sample, StateFault(FIRST_STEP + rng.randrange(steps), slot, element))
    claim = open_game(liar, steps, honest.root(0), liar.root(steps))
    if any(liar.root(i) != honest.root(i) for i in range(steps + 1)):
        view = referee(claim, liar, honest)
        assert (view.challenger_won, view.reason) == (True, "output")


@pytest.mark.long
@given(SEEDS)
@settings(max_examples=15)
def test_honest_defender_is_never_convicted(seed: int) -> None:
    """Attacks 14, 16, 18: no challenger, wrong or malicious, beats an honest claim or vote."""
    sample, rng = random_sample(seed, instructions=15), random.Random(seed)
    honest = replay(sample)
    node = rng.randrange(len(sample.program.nodes))
    fault = NodeFault(FIRST_STEP, node, rng.randrange(sample.program.nodes[node].elements))
    for challenger in (replay(sample, fault), replay(sample)):
        for key in (b"", KEY):
            claimed = honest.trace(0, key).root if key else honest.root(1)
            game = open_game(honest, 1, honest.root(0), claimed, key or ZERO_DIGEST)
            view = referee(game, honest, challenger)
            assert not view.challenger_won
            assert view.reason in ("timeout", "timeout after NoDifference")

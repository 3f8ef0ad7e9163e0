"""Openings convict exactly what is wrong, and nothing unproven is believed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from assay.dispute.evidence import node_proof, openings, output_proof
from assay.dispute.replay import Replay
from assay.dispute.trace import StepTrace
from assay.program.build import ProgramBuilder
from assay.program.execute import Records
from assay.program.isa import DType, Input, Node, Op
from assay.program.spans import Read
from assay.protocol import trees
from assay.protocol.game_state import Game, Opening
from assay.protocol.types import ZERO_DIGEST, Kind
from spec.evidence import convicts, element_bits, facts
from spec.game import IllegalMove
from tests.fakes.arena import FIRST_STEP, SEED, SHARD, open_game
from tests.fakes.programs import RECORD_SIZE, RECORDS, Sample, random_sample, training_sample


def situation(sample: Sample, key: bytes = b"") -> tuple[StepTrace, Game]:
    """A traced step and a game in which its trace is the accepted one."""
    replay = Replay(sample.program, sample.state, sample.dataset, SEED, SHARD, FIRST_STEP)
    trace = replay.trace(0, key)
    game = open_game(replay, 1, replay.root(0), replay.root(1), key or ZERO_DIGEST)
    return trace, replace(game, trace_root=trace.root)


def opened(trace: StepTrace, node: int, element: int) -> tuple[Opening, ...]:
    return openings(trace, node, element, trace.tree.proof)


def claimed_bits(trace: StepTrace, node: int, element: int) -> int:
    size = trace.program.nodes[node].dtype.size
    return int.from_bytes(trace.output(node)[element * size : (element + 1) * size], "little")


@pytest.mark.long
@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_every_instruction_is_proven_from_its_openings(key: bytes) -> None:
    seen = set()
    for seed in range(6):
        trace, game = situation(random_sample(seed), key)
        for index, node in enumerate(trace.program.nodes):
            seen.add(node.op)
            element = (seed * 7919) % node.elements
            bits = element_bits(
                replace(game, node=index), node.encode(), element, opened(trace, index, element)
            )
            assert bits == claimed_bits(trace, index, element), (seed, index, node.op)
    assert seen >= {Op.SHARD, Op.RECORD, Op.BITS, Op.SCATTER_SUM}
    assert len(seen) >= 35


def test_R9_what_reads_no_record_is_zero_and_opens_nothing() -> None:
    """In an outer claim, in a job without records, and past a record's end."""
    trace, game = situation(training_sample())
    at = index_of(trace, Op.DATA)
    game, encoded = replace(game, node=at), trace.program.nodes[at].encode()
    element = next(i for i in range(trace.program.nodes[at].elements) if claimed_bits(trace, at, i))
    shown = opened(trace, at, element)
    assert len(shown) == 1 and element_bits(game, encoded, element, shown) > 0
    outer = replace(game.accused, kind=Kind.OUTER)
    for changes in ({"accused": outer}, {"records": 0}, {"record_size": 0}):
        without = replace(game, **changes)
        assert element_bits(without, encoded, element, ()) == 0
        with pytest.raises(IllegalMove, match="WrongCount"):
            element_bits(without, encoded, element, shown)
    trace.context = replace(trace.context, dataset=None)
    assert opened(trace, at, element) == ()


def test_a_record_must_be_the_one_that_is_named() -> None:
    b = ProgramBuilder(RECORD_SIZE)
    idx = b.state(DType.I32, (3,))
    wide = b.state(DType.U8, (3, 4))
    program = b.finish([b.iadd(idx, b.shard()), b.record(b.iadd(idx, b.shard()), 4, 2)], 1)
    state = [torch.tensor([-5, 4, 90], dtype=torch.int32), torch.zeros(wide.shape, dtype=torch.uint8)]
    dataset = Records(random.Random(1).randbytes(RECORD_SIZE * RECORDS), RECORD_SIZE)
    trace, game = situation(Sample(program, dataset, state))
    at = index_of(trace, Op.RECORD)
    game, encoded = replace(game, node=at), program.nodes[at].encode()
    for row, named in enumerate((0, min(4 + SHARD, RECORDS - 1), RECORDS - 1)):
        element = 4 * row + 1
        index, record = opened(trace, at, element)
        assert (index.input, record.input, record.first_leaf) == (0, 1, named)
        wanted = dataset.record(named)[3]
        assert element_bits(game, encoded, element, (index, record)) == wanted
        other = (named + 1) % RECORDS
        proof = tuple(dataset.tree.proof(other))
        elsewhere = replace(record, first_leaf=other, data=bytes(dataset.record(other)), siblings=proof)
        for bad, why in (
            ((index, elsewhere), "MissingInput"),
            ((record, index), "IndexOutOfRange"),
            ((record,), "WrongCount"),
            ((replace(index, data=bytes(12)), record), "BadProof"),
            ((index, replace(record, data=bytes(RECORD_SIZE))), "BadProof"),
        ):
            with pytest.raises(IllegalMove, match=why):
                element_bits(game, encoded, element, bad)


def spans(node: Node, element: int, read: Read) -> list[tuple[int, int, int]]:
    return [(span.input, span.first, span.count) for span in node.op.row.spans(node, element, read)]


def test_spans_follow_the_index_of_take_and_pick() -> None:
    table, index = Input(0, 0, (5, 3)), Input(1, 1, (4,))  # type: ignore[arg-type]
    take = Node(Op.TAKE, 0, (4, 3), (table, index))  # type: ignore[arg-type]
    assert spans(take, 7, lambda ordinal, at: {(1, 2): 99}[ordinal, at]) == [(1, 2, 1), (0, 13, 1)]
    pick = Node(Op.PICK, 0, (5,), (table, Input(1, 1, (5,))))  # type: ignore[arg-type]
    assert spans(pick, 2, lambda ordinal, at: -4) == [(1, 2, 1), (0, 6, 1)]


def test_program_proofs_lead_to_the_program_root() -> None:
    program = training_sample().program
    leaves = program.tree.count
    for n, node in enumerate(program.nodes):
        assert trees.verify(program.root, leaves, 1 + n, trees.leaf(node.encode()), node_proof(program, n))
    for slot, ref in enumerate(program.outputs):
        at, leaf = 1 + len(program.nodes) + slot, trees.leaf(ref.to_bytes(4, "big"))
        assert trees.verify(program.root, leaves, at, leaf, output_proof(program, slot))


def index_of(trace: StepTrace, op: Op) -> int:
    return next(i for i, node in enumerate(trace.program.nodes) if node.op is op)


@pytest.mark.parametrize("op", [Op.STATE, Op.DATA, Op.PRODUCT, Op.ADD, Op.STRIDED, Op.SUM])
def test_tampered_openings_are_refused(op: Op) -> None:
    trace, game = situation(training_sample())
    index = index_of(trace, op)
    game = replace(game, node=index)
    node = trace.program.nodes[index]
    sound = opened(trace, index, 3)
    encoded = node.encode()
    for i, one in enumerate(sound):
        flipped = bytes([one.data[0] ^ 1]) + one.data[1:]
        broken = [
            replace(one, data=flipped),
            replace(one, data=one.data[:-1]),
            replace(one, data=one.data + b"\x00"),
            replace(one, data=b""),
            replace(one, siblings=(*one.siblings, ZERO_DIGEST)),
            replace(one, path=(*one.path, ZERO_DIGEST)),
        ]
        for bad in broken:
            with pytest.raises(IllegalMove, match="BadProof"):
                element_bits(game, encoded, 3, (*sound[:i], bad, *sound[i + 1 :]))
        elsewhere = replace(one, first_leaf=one.first_leaf + 1)
        with pytest.raises(IllegalMove, match=r"BadProof|MissingInput"):
            element_bits(game, encoded, 3, (*sound[:i], elsewhere, *sound[i + 1 :]))
    if sound:
        with pytest.raises(IllegalMove, match="MissingInput"):
            element_bits(game, encoded, 3, sound[:-1])


def test_openings_of_another_input_or_element_do_not_serve() -> None:
    trace, game = situation(training_sample())
    index = index_of(trace, Op.PRODUCT)
    game = replace(game, node=index)
    node = trace.program.nodes[index]
    sound = opened(trace, index, 3)
    swapped = tuple(replace(one, input=(one.input + 2) % 4) for one in sound)
    with pytest.raises(IllegalMove, match="BadProof"):
        element_bits(game, node.encode(), 3, swapped)
    with pytest.raises(IllegalMove, match="IndexOutOfRange"):
        element_bits(game, node.encode(), 3, (replace(sound[0], input=4), *sound))
    with pytest.raises(IllegalMove, match="IndexOutOfRange"):
        element_bits(game, node.encode(), node.elements, sound)


def test_node_must_stand_where_the_game_says() -> None:
    trace, game = situation(training_sample())
    for op, places in ((Op.STATE, (1, 5)), (Op.TANH, (0, 2, 3))):
        index = index_of(trace, op)
        encoded, evidence = trace.program.nodes[index].encode(), opened(trace, index, 0)
        for place in places:
            with pytest.raises(IllegalMove, match="MalformedNode"):
                element_bits(replace(game, node=place), encoded, 0, evidence)


def test_node_that_is_no_instruction_is_malformed() -> None:
    _, game = situation(training_sample())
    for encoded in (b"", b"\xff" * 12, Node(Op.SUM, 0, (2,), ()).encode()):  # type: ignore[arg-type]
        with pytest.raises(IllegalMove, match="MalformedNode"):
            element_bits(game, encoded, 0, ())
    with pytest.raises(IllegalMove, match="MalformedNode"):
        facts(b"\x01")


def test_one_bit_convicts_and_the_truth_does_not() -> None:
    trace, game = situation(training_sample())
    index = index_of(trace, Op.TANH)
    node = trace.program.nodes[index]
    element = node.elements - 1
    game = replace(game, node=index, index=node.leaves - 1)
    leaf = bytes(trace.output(index)[game.index * trees.LEAF_BYTES :])
    evidence = opened(trace, index, element)
    assert not convicts(game, leaf, node.encode(), element, evidence)
    wrong = leaf[:-4] + bytes([leaf[-4] ^ 1]) + leaf[-3:]
    assert convicts(game, wrong, node.encode(), element, evidence)
    strange_nan = leaf[:-4] + b"\x01\x00\xc0\x7f"
    assert convicts(game, strange_nan, node.encode(), element, ())
    with pytest.raises(IllegalMove, match="IndexOutOfRange"):
        convicts(game, leaf, node.encode(), 0, evidence)

"""Demands about a state of which some bytes are missing."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from assay.node.availability import leaves_to_demand
from assay.node.states import Gap
from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Program
from assay.protocol.demands import StateLeaf
from assay.protocol.trees import LEAF_BYTES

SHAPES = ((700,), (1,), (3, 512), (5,))
"""Slots of 2,800, 4, 6,144 and 20 bytes: 2, 1, 3 and 1 leaves."""


def program() -> Program:
    b = ProgramBuilder(record_size=1)
    return b.finish([b.state(DType.F32, shape) for shape in SHAPES], params=1)


PROGRAM = program()
SIZE = PROGRAM.state_bytes


PLACES = [
    StateLeaf(slot, byte // LEAF_BYTES)
    for slot, node in enumerate(PROGRAM.state)
    for byte in range(node.bytes)
]


def touched(spans: tuple[range, ...]) -> set[StateLeaf]:
    """Leaves of the missing bytes, one byte at a time."""
    return {PLACES[byte] for span in spans for byte in span}


spans_ = st.tuples(st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda pair: range(pair[0], min(pair[0] + pair[1], SIZE))
)


@given(st.lists(spans_, min_size=1, max_size=4), st.integers(0, 99))
def test_only_what_is_missing_is_named_and_all_of_it_where_it_is_one_leaf(
    found: list[range], seed: int
) -> None:
    spans = tuple(found)
    chosen = leaves_to_demand(PROGRAM, Gap(3, spans), Random(seed))
    assert chosen.end == 3 and set(chosen.places) <= touched(spans)
    assert len(set(chosen.places)) == len(chosen.places)
    assert 1 <= len(chosen.places) <= 4
    if len(touched(spans)) == 1:
        assert set(chosen.places) == touched(spans)


def test_of_a_state_that_is_all_missing_every_leaf_is_named_sometimes() -> None:
    named = [leaves_to_demand(PROGRAM, Gap(0, (range(SIZE),)), Random(seed)).places for seed in range(60)]
    assert {len(places) for places in named} == {4}
    assert {place for places in named for place in places} == touched((range(SIZE),))
    assert len(set(named)) > 50

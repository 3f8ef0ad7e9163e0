"""States have one encoding and the root that rule 1.5 says."""

from __future__ import annotations

from io import BytesIO

import pytest
import torch

from assay.program.build import ProgramBuilder
from assay.program.isa import DType
from assay.program.state import InvalidState, load_state, slot_tree, state_bytes, state_root, state_tree
from assay.protocol import trees
from tests.fakes.programs import random_sample


@pytest.mark.parametrize("seed", range(3))
def test_bytes_round_trip(seed: int) -> None:
    sample = random_sample(seed)
    data = state_bytes(sample.state)
    assert len(data) == sample.program.state_bytes
    again = load_state(sample.program, BytesIO(data))
    assert state_bytes(again) == data
    assert state_root(again) == state_root(sample.state)


def test_root_is_the_tree_over_tensor_roots() -> None:
    state = random_sample(0).state
    roots = [trees.tensor_root(state_bytes([x])) for x in state]
    assert state_tree(state).levels[0] == tuple(roots)
    assert state_root(state) == trees.root(roots)
    assert slot_tree(state, 1).root == roots[1]


def test_every_nan_is_one_state() -> None:
    patterns = torch.tensor([0x7FC00000, 0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
    canonical = torch.tensor([0x7FC00000] * 4, dtype=torch.int32).view(torch.float32)
    assert state_root([patterns]) == state_root([canonical])
    assert state_root([torch.tensor([0.0])]) != state_root([torch.tensor([-0.0])])


def test_foreign_bytes_are_refused() -> None:
    b = ProgramBuilder()
    slots = [b.state(DType.F32, (2,)), b.state(DType.BOOL, (2,))]
    program = b.finish(slots, 1)
    good = bytes(8) + b"\x00\x01"
    assert state_bytes(load_state(program, BytesIO(good))) == good
    for bad in (good[:-1], good + b"\x00", bytes(8) + b"\x00\x02", b"\x01\x00\xc0\x7f" + good[4:], b""):
        with pytest.raises(InvalidState):
            load_state(program, BytesIO(bad))

"""A program in a larger state computes the same bits, and leaves the rest alone."""

from __future__ import annotations

import random

import pytest
import torch

from assay.program.embedded import layout, placed
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType
from assay.program.validate import validate
from tests.fakes.programs import random_sample


@pytest.mark.long
def test_its_slots_are_stepped_and_the_others_are_as_they_were() -> None:
    rng = random.Random(7)
    for seed in range(20):
        sample = random_sample(seed)
        own = layout(sample.program)
        slots = [*own, (DType.I32, (3,)), (DType.BOOL, ())]
        order = rng.sample(range(len(slots)), len(slots))
        mixed, at = [slots[i] for i in order], [order.index(i) for i in range(len(own))]
        program = placed(sample.program, mixed, at, 1)
        validate(program, sample.dataset.record_size, max_bytes=1 << 30, max_operations=1 << 40)
        rest = [torch.tensor([1, 2, 3], dtype=torch.int32), torch.tensor(True)]
        state = [[*sample.state, *rest][i] for i in order]
        context = StepContext(sample.dataset, bytes(32), 1, 5)
        expected = [*Executor(sample.program).step(sample.state, context), *rest]
        found = Executor(program).step(state, context)
        for slot, i in enumerate(order):
            assert found[slot].numpy().tobytes() == expected[i].numpy().tobytes()


def test_a_program_that_has_its_own_slots_alone_is_itself() -> None:
    program = random_sample(3).program
    every = range(program.slots)
    assert placed(program, layout(program), every, program.params).root == program.root


def test_slots_of_another_shape_or_twice_are_refused() -> None:
    program = random_sample(3).program
    with pytest.raises(ValueError, match="not those of the state"):
        placed(program, [*layout(program), (DType.I32, ())], [0] * program.slots, 1)

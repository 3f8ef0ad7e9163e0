"""What crosses between stages in 8 bits: fewer bytes, the same bits for all, errors that are visible."""

from __future__ import annotations

import math

import pytest
import torch

from assay.program.boundary import MOST, with_rounded_boundaries
from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Op, Program
from assay.program.stages import NoCut, boundaries, cut, sources_of
from assay.program.state import state_root
from assay.program.validate import measure, validate
from assay.training import models
from assay.training.optimisers import AdamW
from tests.unit.program.staged import step_in_stages
from tests.unit.training.steps import SEED, built, corpus

CONTEXT = 8
Job = tuple[Program, list[torch.Tensor], StepContext]


@pytest.fixture(scope="module")
def gpt() -> Job:
    config = models.GptConfig(n_layer=4, n_head=2, d_model=64, context=CONTEXT)
    made = built(models.build(config, 1), AdamW(0.01), corpus(CONTEXT), batch=2, accumulate=2)
    return made.inner, list(made.genesis), StepContext(made.records, SEED, 0, 0)


@pytest.mark.parametrize("members", [2, 3])
def test_members_send_fewer_bytes_and_agree_with_one_process(gpt: Job, members: int) -> None:
    program, state, context = gpt
    rounded, _ = with_rounded_boundaries(program, members)
    cost = validate(rounded, program.record_size, max_bytes=1 << 30, max_operations=1 << 40)
    before, plan = cut(program, members), cut(rounded, members)
    assert [stage.slots for stage in plan.stages] == [stage.slots for stage in before.stages]
    sent = [sum(sent for sent, _ in boundaries(each)) for each in (before, plan)]
    assert sent[1] < 0.3 * sent[0] and cost.operations < 1.02 * measure(program).operations
    after = Executor(rounded).step(state, context)
    assert state_root(step_in_stages(plan, state, context)) == state_root(after)
    assert state_root(after) != state_root(Executor(program).step(state, context))
    losses = [float(Executor(each).step(state, context)[-1]) for each in (program, rounded)]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)


def test_places_are_those_of_the_same_nodes(gpt: Job) -> None:
    program, _, _ = gpt
    rounded, places = with_rounded_boundaries(program, 3)
    assert sorted(places) == list(range(len(program.nodes)))
    for old, new in places.items():
        before, after = program.nodes[old], rounded.nodes[new]
        assert (before.op, before.shape) == (after.op, after.shape)


def layers() -> Program:
    """Two layers x·wᵀ of 64 rows: the input is a slot, and so is the output of each."""
    b = ProgramBuilder()
    w = [b.state(DType.F32, (64, 64)) for _ in range(2)]
    x, out = b.state(DType.F32, (64, 64)), b.state(DType.F32, (64, 64))
    middle = b.matmul(x, w[0])
    result = b.matmul(middle, w[1])
    after = [b.add(w[0], middle), b.add(w[1], result), x, result]
    assert out.shape == result.shape
    return b.finish(after, 2)


def middle_of(program: Program, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What crosses between the two layers, before and after it is rounded."""
    rounded, _ = with_rounded_boundaries(program, 2)
    state = [torch.eye(64), torch.eye(64), x, torch.zeros(64, 64)]
    seen: dict[int, torch.Tensor] = {}
    Executor(rounded).step(state, StepContext(None, SEED, 0, 0), observe=seen.__setitem__)
    codes = next(i for i, node in enumerate(rounded.nodes) if node.dtype is DType.U8)
    decoded = [i for i, below in enumerate(sources_of(rounded)) if codes in below and i != codes]
    first = next(i for i, node in enumerate(rounded.nodes) if node.op is Op.PRODUCT)
    last = max(i for i in decoded if rounded.nodes[i].op is Op.MUL)
    return seen[first], seen[last]


def test_a_number_is_rounded_to_the_nearest_multiple_of_its_rows_scale() -> None:
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) * torch.logspace(-6, 6, 64)[:, None]
    x[3] = 0.0
    before, after = middle_of(layers(), x)
    scale = before.abs().amax(1, keepdim=True) / MOST
    assert torch.equal(after[3], torch.zeros(64)) and not torch.equal(before, after)
    assert ((before - after).abs() <= 0.5001 * scale).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_is_not_finite_afterwards(wrong: float) -> None:
    x = torch.ones(64, 64)
    x[5, 7] = wrong
    before, after = middle_of(layers(), x)
    assert not before[5].isfinite().all() and not after[5].isfinite().any()
    assert torch.equal(after[6], before[6])


def test_a_program_without_layers_is_refused() -> None:
    b = ProgramBuilder()
    w = b.state(DType.F32, (64, 64))
    with pytest.raises(NoCut):
        with_rounded_boundaries(b.finish([b.add(w, w)], 1), 2)

"""A program in stages: which member owns what, and that the stages give the whole program's bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Op, Program
from assay.program.stages import NoCut, Plan, boundaries, cut
from assay.program.state import state_root
from assay.program.validate import measure, validate
from assay.training import models
from assay.training.optimisers import AdamW
from tests.fakes.programs import random_sample
from tests.unit.program.staged import step_in_stages
from tests.unit.training.steps import SEED, built, corpus

LIMITS = {"max_bytes": 1 << 30, "max_operations": 1 << 40}
CONTEXT = 16


@pytest.fixture(scope="module")
def gpt() -> tuple[Program, list[torch.Tensor], StepContext]:
    made = built(
        models.build(models.GptConfig(n_layer=4, n_head=2, d_model=32, context=CONTEXT), 1),
        AdamW(0.01),
        corpus(CONTEXT),
    )
    return made.inner, list(made.genesis), StepContext(made.records, SEED, 0, 0)


def _check_ownership(plan: Plan) -> None:
    program = plan.whole
    assert sorted(slot for stage in plan.stages for slot in stage.slots) == list(range(program.slots))
    assert len(plan.owners) == len(program.nodes)
    for member, stage in enumerate(plan.stages):
        assert all(plan.slot_owners[slot] == member for slot in stage.slots)
        assert all(plan.owners[node] == member for node in stage.sent)
        assert all(plan.owners[node] != member for node in stage.received)
        validate(stage.program, program.record_size, **LIMITS)
    received = {node for stage in plan.stages for node in stage.received}
    assert received == {node for stage in plan.stages for node in stage.sent}


@pytest.mark.parametrize("members", [2, 3, 4])
def test_a_gpt_in_stages_gives_the_same_state(
    gpt: tuple[Program, list[torch.Tensor], StepContext], members: int
) -> None:
    program, state, context = gpt
    plan = cut(program, members)
    _check_ownership(plan)
    for step in range(2):
        at = StepContext(context.dataset, context.seed, context.shard, step)
        after = Executor(program).step(state, at)
        assert state_root(step_in_stages(plan, state, at)) == state_root(after)
        state = after


def test_layers_stay_whole_and_loads_are_even(
    gpt: tuple[Program, list[torch.Tensor], StepContext],
) -> None:
    program, _, _ = gpt
    whole = measure(program)
    plan = cut(program, 3)
    moments = (program.slots - 3 - program.params) // program.params
    for stage in plan.stages:
        own = [slot for slot in stage.slots if slot < program.params]
        assert own == list(range(own[0], own[-1] + 1))
        for kind in range(1, moments + 1):  # the optimiser's numbers stay with their parameters
            assert {slot + kind * program.params for slot in own} <= set(stage.slots)
        cost = measure(stage.program)
        assert cost.operations < 0.4 * whole.operations
        assert cost.peak_bytes < 0.5 * whole.peak_bytes


def test_no_member_is_idle_where_layers_do_not_divide_evenly() -> None:
    model = models.build(models.GptConfig(n_layer=9, n_head=2, d_model=32, context=CONTEXT), 1)
    program = built(model, AdamW(0.01), corpus(CONTEXT)).inner
    whole = measure(program).operations
    for members in (6, 8):
        least = min(measure(stage.program).operations for stage in cut(program, members).stages)
        assert members * least > 0.4 * whole


def test_bytes_between_members_are_counted_on_both_sides(
    gpt: tuple[Program, list[torch.Tensor], StepContext],
) -> None:
    sent, received = zip(*boundaries(cut(gpt[0], 4)), strict=True)
    assert sum(sent) == sum(received) > 0


def test_a_tensor_is_not_sent_beside_what_it_is_computed_from() -> None:
    """Of a residual stream and its norm only the stream goes to the next member, and a row's number."""
    b = ProgramBuilder()
    w = [b.state(DType.F32, (64, 64)) for _ in range(2)]
    x = b.matmul(b.convert(b.iota((64, 64), 0), DType.F32), w[0])
    normed = b.div(x, b.reshape(b.amax(b.abs(x)), (64, 1)))
    after = [b.add(w[0], x), b.add(b.add(w[1], b.matmul(normed, w[1])), x)]
    program = b.finish(after, 2)
    plan, state = cut(program, 2), [torch.randn(64, 64) for _ in range(2)]
    sent = [program.nodes[node] for node in plan.stages[0].sent]
    assert [node.op for node in sent if node.bytes > 64 * 4] == [Op.PRODUCT]
    context = StepContext(None, SEED, 0, 0)
    staged = step_in_stages(plan, state, context)
    assert state_root(staged) == state_root(Executor(program).step(state, context))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_any_program_is_refused_or_computed_alike(seed: int) -> None:
    sample = random_sample(seed)
    try:
        plan = cut(sample.program, 2)
    except NoCut:
        return
    _check_ownership(plan)
    context = StepContext(sample.dataset, SEED, 1, 3)
    after = Executor(sample.program).step(sample.state, context)
    assert state_root(step_in_stages(plan, sample.state, context)) == state_root(after)


def test_one_member_is_no_crew(gpt: tuple[Program, list[torch.Tensor], StepContext]) -> None:
    with pytest.raises(NoCut, match="2 to 8"):
        cut(gpt[0], 1)


def test_a_program_of_few_parameters_is_not_cut_small() -> None:
    sample = random_sample(1)
    with pytest.raises(NoCut):
        cut(sample.program, 8)


def test_the_same_program_gives_the_same_plan(gpt: tuple[Program, list[torch.Tensor], StepContext]) -> None:
    assert cut(gpt[0], 3).root == cut(gpt[0], 3).root
    assert cut(gpt[0], 3).root != cut(gpt[0], 2).root

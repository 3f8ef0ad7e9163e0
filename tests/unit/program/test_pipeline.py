"""The order in which members compute: they overlap, they cannot deadlock, and memory stays bounded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.program.execute import Executor, StepContext
from assay.program.isa import Program
from assay.program.pipeline import WIDTHS, Link, reordered, schedule
from assay.program.stages import NoCut, Plan, Stage, cut
from assay.program.state import state_root
from assay.program.validate import measure
from assay.training import models
from assay.training.optimisers import AdamW
from tests.fakes.programs import random_sample
from tests.unit.program.staged import step_in_stages
from tests.unit.training.steps import SEED, built, corpus

CONTEXT, PASSES = 8, 8
Job = tuple[Program, list[torch.Tensor], StepContext]


@pytest.fixture(scope="module")
def gpt() -> Job:
    config = models.GptConfig(n_layer=4, n_head=2, d_model=32, context=CONTEXT)
    made = built(models.build(config, 1), AdamW(0.01), corpus(CONTEXT), batch=2, accumulate=PASSES)
    return made.inner, list(made.genesis), StepContext(made.records, SEED, 0, 0)


def in_program_order(program: Program, members: int) -> Sequence[Stage]:
    """Stages whose members would compute pass by pass, as the program does."""
    with patch("assay.program.stages.pipelined", tuple):
        return cut(program, members).stages


class Running:
    """A member that computes its stage a node at a time, without tensors."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.program = stage, stage.program
        kept = len(stage.slots) + len(stage.received)
        self.sends = dict(zip(self.program.outputs[kept:], stage.sent, strict=True))
        self.at = self.program.slots
        self.arrived: set[int] = set()
        self.taken: set[int] = set()

    @property
    def next_reads(self) -> set[int]:
        """Received nodes that its next node reads."""
        places = {x.ref - len(self.stage.slots) for x in self.program.nodes[self.at].inputs}
        return {self.stage.received[i] for i in places if 0 <= i < len(self.stage.received)}

    @property
    def able(self) -> bool:
        return self.at < len(self.program.nodes) and self.next_reads <= self.arrived


def most_waiting(plan: Plan, seed: int) -> dict[tuple[int, int], int]:
    """Runs a step with members whose speeds change at random. Returns, by sender and reader, the most tensors
    that were sent and not yet read. Fails if every member waits for another."""
    choose, members = random.Random(seed), [Running(stage) for stage in plan.stages]
    most: dict[tuple[int, int], int] = Counter()

    def send(sender: int, place: int) -> None:
        if (node := members[sender].sends.get(place)) is None:
            return
        for reader in plan.readers(sender, node):
            there = members[reader]
            there.arrived.add(node)
            waiting = sum(plan.owners[one] == sender for one in there.arrived - there.taken)
            most[sender, reader] = max(most[sender, reader], waiting)

    for sender, stage in enumerate(plan.stages):
        for slot in range(len(stage.slots)):
            send(sender, slot)
    while able := [i for i, member in enumerate(members) if member.able]:
        chosen = choose.choice(able)
        member = members[chosen]
        for _ in range(choose.choice([1, 1000])):
            if not member.able:
                break
            member.taken |= member.next_reads
            send(chosen, member.at)
            member.at += 1
    assert all(member.at == len(member.program.nodes) for member in members), "each waits for another"
    return most


@pytest.mark.parametrize("members", [2, 3])
def test_passes_overlap_and_give_the_same_state(gpt: Job, members: int) -> None:
    program, state, context = gpt
    plan = cut(program, members)
    staged, whole = step_in_stages(plan, state, context), Executor(program).step(state, context)
    assert state_root(staged) == state_root(whole)
    before, after = schedule(in_program_order(program, members)), schedule(plan.stages)
    ideal = PASSES / (PASSES + members - 1)
    balance = sum(after.busy) / members / max(after.busy)
    assert before.busy == after.busy and before.utilisation < 1.1 / members
    assert after.utilisation > 0.95 * ideal * balance


def test_the_first_member_sends_several_passes_before_it_waits_for_a_gradient(gpt: Job) -> None:
    plan = cut(gpt[0], 3)
    member = Running(plan.stages[0])
    sent = 0
    while not any(len(plan.whole.nodes[node].shape) > 1 for node in member.next_reads):
        sent += member.at in member.sends
        member.at += 1
    assert sent >= 3 * len(member.sends) / PASSES


def test_a_stage_is_in_the_order_of_its_schedule(gpt: Job) -> None:
    plan = cut(gpt[0], 3)
    for stage, order in zip(plan.stages, schedule(plan.stages).orders, strict=True):
        assert order == tuple(range(stage.program.slots, len(stage.program.nodes)))


def test_a_network_costs_time_and_no_operations(gpt: Job) -> None:
    stages = cut(gpt[0], 2).stages
    none, free = schedule(stages), schedule(stages, 0, Link(0, 0))
    assert (none.end, none.busy) == (free.end, free.busy)
    sent = sum(stage.received_bytes for stage in stages[1:])
    slow = schedule(stages, 0, Link(none.end / sent, 0))
    assert slow.busy == none.busy and slow.end > 1.5 * none.end
    far = schedule(stages, 0, Link(0, none.end))
    assert far.orders == none.orders and far.end > 2 * none.end


def test_a_window_saves_memory_and_little_time_is_lost(gpt: Job) -> None:
    plan = cut(gpt[0], 2)
    stages = in_program_order(gpt[0], 2)
    eager = schedule(stages, WIDTHS)
    first = reordered(stages[0], eager.orders[0]).program
    assert measure(plan.stages[0].program).peak_bytes < 0.9 * measure(first).peak_bytes
    assert schedule(plan.stages).end <= 1.02 * eager.end


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_members_of_any_program_and_speed_finish(seed: int) -> None:
    try:
        plan = cut(random_sample(seed).program, 2)
    except NoCut:
        return
    most_waiting(plan, seed)


@pytest.mark.parametrize("seed", range(3))
def test_few_tensors_wait_for_a_slow_member(gpt: Job, seed: int) -> None:
    plan = cut(gpt[0], 3)
    most = most_waiting(plan, seed)
    for sender, reader in [(0, 1), (1, 2)]:
        sent = sum(node in plan.stages[reader].received for node in plan.stages[sender].sent)
        assert most[sender, reader] <= sent * 5 / PASSES

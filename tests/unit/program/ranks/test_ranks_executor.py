"""A step on several ranks has the bits of one alone."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from torch import Tensor

from assay.numerics import FAST
from assay.program.execute import Executor, OutOfMemory, Records, StepContext, read_data
from assay.program.isa import Op, Program
from assay.program.ranks.executor import RankExecutor, RankStep
from assay.program.ranks.group import Group
from assay.program.ranks.rows import Rows, dealt
from assay.program.ranks.split import CannotSplit, split
from assay.program.state import state_root
from assay.training import job, models
from tests.fakes.programs import Sample, random_sample, training_sample
from tests.fakes.ranks import first_of, on_all

SEED = b"ranks".ljust(32, b"\0")
UNEVEN = 5


@cache
def made(name: str) -> tuple[Program, Records, list[Tensor]]:
    if name == "gpt":
        files = job.gpt(
            models.GptConfig(n_layer=1, n_head=2, d_model=32, context=16), batch=UNEVEN, max_bytes=1 << 14
        )
    elif name == "mlp":
        files = job.mlp(models.MlpConfig(hidden=24, layers=2), batch=UNEVEN)
    else:
        files = job.cnn(models.CnnConfig(width=4), batch=UNEVEN)
    return files.inner, files.records, files.genesis


def contexts(records: Records) -> list[StepContext]:
    return [StepContext(records, SEED, 1, step) for step in range(3)]


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("name", ["gpt", "mlp", "cnn"])
def test_training_on_ranks_with_uneven_rows_has_the_bits_of_one(name: str, ranks: int) -> None:
    program, records, state = made(name)
    alone, wanted, found = Executor(program, "cpu", FAST), state, state
    with first_of(ranks) as group:
        together = RankExecutor(program, ranks, lambda: group)
        for context in contexts(records):
            wanted, found = alone.step(wanted, context), together.step(found, context)
            assert state_root(wanted) == state_root(found)
        assert state_root(wanted) != state_root(state)


@pytest.mark.parametrize("name", ["gpt", "mlp", "cnn"])
def test_all_products_of_the_templates_are_dealt_out_and_little_is_gathered(name: str) -> None:
    program = made(name)[0]
    part = split(program, 2, 0)
    assert part.share == 1.0
    gathered = [part.program.nodes[i] for i in part.shared if part.program.nodes[i].op is Op.CONCAT]
    assert sum(node.elements for node in gathered) <= 2 * UNEVEN
    work = [
        sum(n.elements * n.inputs[0].shape[-1] for n in p.nodes if n.op is Op.PRODUCT)
        for p in (program, part.program)
    ]
    assert 0.3 < work[1] / work[0] < 0.5


def sown(sample: Sample, rng: random.Random, ranks: int) -> dict[int, Rows]:
    """Some nodes' outputs dealt out, along any dimension."""
    found = {}
    for index, node in enumerate(sample.program.nodes):
        fit = [d for d, n in enumerate(node.shape) if n >= ranks]
        if fit and not node.op.reads_records and rng.random() < 0.5:
            dim = rng.choice(fit)
            found[index] = dealt(dim, node.shape[dim], ranks)
    return found


def stepped(group: Group, sample: Sample, also: dict[int, Rows], context: StepContext) -> bytes:
    program = sample.program
    step = RankStep(program, split(program, group.size, group.rank, also), group)
    data = [read_data(n, torch.device("cpu"), context) for n in program.nodes if n.op is Op.DATA]
    with torch.inference_mode():
        return state_root(step.run(sample.state, data, context))


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_dealt_out_anywhere_have_the_bits_of_one(seed: int) -> None:
    sample, ranks = random_sample(seed, 60), 2 + seed % 3
    also = sown(sample, random.Random(seed), ranks)
    context = StepContext(sample.dataset, SEED, 5, 3)
    wanted = state_root(Executor(sample.program, "cpu", FAST).step(sample.state, context))
    assert on_all(ranks, lambda g: stepped(g, sample, also, context)) == [wanted] * ranks


def test_a_state_that_another_made_is_told_to_all_ranks() -> None:
    sample = training_sample()
    context = StepContext(sample.dataset, SEED, 0, 0)
    alone = Executor(sample.program, "cpu", FAST)
    with first_of(2) as group:
        together = RankExecutor(sample.program, 2, lambda: group)
        together.step(together.step(sample.state, context), context)
        other = [x * 2 for x in sample.state]
        assert state_root(together.step(other, context)) == state_root(alone.step(other, context))


def test_two_programs_take_turns_on_the_same_ranks() -> None:
    with first_of(2) as group:
        runs = []
        for name in ("gpt", "mlp"):
            program, records, state = made(name)
            runs.append(
                (RankExecutor(program, 2, lambda: group), Executor(program, "cpu", FAST), records, state)
            )
        for step in range(2):
            for together, alone, records, state in runs:
                context = StepContext(records, SEED, 0, step)
                assert state_root(together.step(state, context)) == state_root(alone.step(state, context))


def test_one_wrong_sum_of_another_rank_is_seen_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the comparisons above would see a rank that computes wrongly."""
    sample, planted = training_sample(), []
    context = StepContext(sample.dataset, SEED, 0, 0)
    total = Group.total_of_mine

    def off(group: Group, x: Tensor, sizes: list[int]) -> Tensor:
        if group.rank == 1 and not planted:
            planted.append(x.view(-1)[0].item())
            x.view(-1)[0] += 1 << 20
        return total(group, x, sizes)

    monkeypatch.setattr(Group, "total_of_mine", off)
    with first_of(2) as group:
        found = RankExecutor(sample.program, 2, lambda: group).step(sample.state, context)
    assert planted
    assert state_root(found) != state_root(Executor(sample.program, "cpu", FAST).step(sample.state, context))


def test_a_program_with_fewer_rows_than_ranks_is_refused() -> None:
    with pytest.raises(CannotSplit, match=r"0% of this program's work .* \(its batch has 5 rows\)"):
        RankExecutor(made("mlp")[0], 6, lambda: pytest.fail("no ranks are needed to see that"))


def test_after_an_error_within_a_step_the_group_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = training_sample()
    context = StepContext(sample.dataset, SEED, 0, 0)

    def full(*_: object) -> None:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"), first_of(2) as group:  # the other rank's error
        together = RankExecutor(sample.program, 2, lambda: group)
        state = together.step(sample.state, context)
        monkeypatch.setattr(RankStep, "run", full)
        with pytest.raises(OutOfMemory):
            together.step(state, context)
        assert group.broken

"""A deep program in segments: every node once, equal layers one part, the reference's bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.program.compiled import executor
from assay.program.compiled.executor import CompiledExecutor
from assay.program.compiled.segment_runner import SegmentedForm
from assay.program.compiled.segments import Part, Plan, plan
from assay.program.execute import Executor, StepContext, counter, read_data
from assay.program.isa import Op, Program
from assay.program.state import state_root
from assay.training import datasets, job, models, optimisers
from assay.training.chunked import projected_cross_entropy
from assay.training.outer import DiLoCo
from tests.fakes.programs import random_sample
from tests.unit.training.test_chunked import LongGpt

CPU = torch.device("cpu")
NO_CONTEXT = StepContext(None, b"", 0, 0)
SEED = b"s" * 32


@cache
def deep(layers: int) -> job.JobArtifacts:
    config = models.GptConfig(n_layer=layers, n_head=2, d_model=32, context=16, tied=True, bias=True)
    layout = datasets.TextLayout(config.context)
    data = datasets.Dataset(layout, bytes(i * 7 % 251 for i in range(layout.record_size * 16)), b"")
    model, rule = LongGpt(config, seed=1), optimisers.AdamW()
    return job.build_job(model, projected_in_parts, rule, data, batch=4, shards=1, outer=DiLoCo())


def projected_in_parts(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
    return projected_cross_entropy(outputs, targets, rows=32)


def eagerly(part: Part, inputs: Sequence[Tensor]) -> list[Tensor]:
    return Executor(part).step(list(inputs[:-1]), NO_CONTEXT)


def in_segments(program: Program, cut: Plan, state: Sequence[Tensor], at: StepContext) -> list[Tensor]:
    """A step as the compiled form takes it, its parts run by the reference."""
    form = SegmentedForm(program, cut, [partial(eagerly, part) for part in cut.parts], CPU)
    data = [read_data(node, CPU, at) for node in program.nodes if node.op is Op.DATA]
    shard = [counter(at.shard, CPU)] if any(node.op is Op.SHARD for node in program.nodes) else []
    return form([*state, *data, *shard, counter(at.step, CPU)])


@pytest.mark.long
def test_equal_layers_are_one_part() -> None:
    program = deep(5).inner
    cut = plan(program, whole_nodes=0)
    assert cut is not None and cut.nodes < 0.7 * len(program.nodes)
    assert max(Counter(segment.part for segment in cut.segments).values()) >= 4


@pytest.mark.slow
def test_more_layers_do_not_add_to_what_is_compiled() -> None:
    cuts = [plan(deep(layers).inner, whole_nodes=0) for layers in (5, 9)]
    few, many = (cut.nodes for cut in cuts if cut is not None)
    assert many < 1.05 * few


@pytest.mark.long
def test_a_step_in_segments_has_the_bits_of_the_whole() -> None:
    made = deep(5)
    cut = plan(made.inner, whole_nodes=0)
    assert cut is not None and len(cut.segments) > len(cut.parts)
    at = StepContext(made.records, SEED, 1, 7)
    assert state_root(in_segments(made.inner, cut, made.genesis, at)) == state_root(
        Executor(made.inner).step(made.genesis, at)
    )


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_in_segments_have_the_bits_of_the_whole(seed: int) -> None:
    sample = random_sample(seed)
    cut = plan(sample.program, whole_nodes=0)
    if cut is None:
        assert any(node.op is Op.RECORD for node in sample.program.nodes)
        return
    at = StepContext(sample.dataset, SEED, 1, 7)
    assert state_root(in_segments(sample.program, cut, sample.state, at)) == state_root(
        Executor(sample.program).step(sample.state, at)
    )


def test_every_computed_node_is_given_once_and_nothing_is_read_after_its_end() -> None:
    program = deep(2).inner
    cut = plan(program, whole_nodes=0)
    assert cut is not None
    given = Counter(ref for segment in cut.segments for ref in segment.outputs)
    assert set(given.values()) == {1}
    gone: set[int] = set()
    for segment in cut.segments:
        assert gone.isdisjoint(x.ref for x in segment.inputs)
        gone |= set(segment.dead)


def test_small_programs_and_those_that_read_records_by_number_stay_whole() -> None:
    program = deep(2).inner
    assert plan(program, whole_nodes=len(program.nodes)) is None
    assert plan(program, whole_nodes=len(program.nodes) - 1) is not None


@pytest.mark.slow
def test_compiled_parts_are_stored_loaded_and_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "plan", partial(plan, whole_nodes=0))
    made = deep(3)
    at = StepContext(made.records, SEED, 0, 3)
    wanted = state_root(Executor(made.inner).step(made.genesis, at))
    form = CompiledExecutor(made.inner, cache_dir=tmp_path, self_check=False)
    assert state_root(form.step(made.genesis, at)) == wanted
    libraries = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.so")}
    again = CompiledExecutor.stored(made.inner, "cpu", tmp_path)
    assert again is not None and state_root(again.step(made.genesis, at)) == wanted
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.so")} == libraries != {}
    next(iter(libraries)).write_bytes(b"no library")
    assert CompiledExecutor.stored(made.inner, "cpu", tmp_path) is None

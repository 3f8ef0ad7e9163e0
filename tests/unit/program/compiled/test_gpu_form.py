"""The graph that is compiled for a GPU has the definition's bits: it is run on the processor here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from assay.fitness.digests import stored
from assay.fitness.exercise import CONTEXT, Exercise, all_exercises
from assay.fitness.samples import Sample
from assay.numerics import constants as c
from assay.numerics import contraction, fused
from assay.numerics.encoding import to_bytes
from assay.numerics.hard_products import same
from assay.program.build import ProgramBuilder
from assay.program.compiled.graph import trace
from assay.program.compiled.segment_runner import SegmentedForm
from assay.program.compiled.segments import plan
from assay.program.execute import Executor, StepContext, counter, read_data
from assay.program.isa import DType, Op, Program
from tests.marked import long, only
from tests.unit.program.compiled.test_segments import SEED, deep
from tests.unit.program.test_same_bits import SMALL

CPU = torch.device("cpu")
SAMPLES = {sample.name: sample for sample in stored().samples}


@pytest.fixture
def gpu_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes the form that it has for a GPU."""
    monkeypatch.setattr(fused, "on_processor", lambda x: False)


def operations(graph: GraphModule) -> Counter[str]:
    return Counter(str(node.target) for node in graph.graph.nodes)


def ran(
    graph: GraphModule, program: Program, sample: Sample, state: Sequence[Tensor], step: int
) -> list[Tensor]:
    data = [read_data(n, CPU, sample.context(step)) for n in program.nodes if n.op is Op.DATA]
    with torch.inference_mode():
        made: list[Tensor] = graph(*state, *data, torch.tensor(step, dtype=torch.int32))
    return made


@pytest.mark.parametrize("name", only(["mlp"], SAMPLES))
def test_training_steps(gpu_forms: None, name: str) -> None:
    sample = SAMPLES[name]
    program, state = sample.program, sample.genesis()
    graph = trace(program, CPU)
    products = sum(node.op is Op.PRODUCT for node in program.nodes)
    kinds = operations(graph)
    assert kinds["assay.product_of_parts.default"] == products > 5
    assert not [kind for kind in kinds if "mm" in kind or "windowed" in kind or "quantised_product" in kind]
    for step in range(2):
        wanted = Executor(program).step(state, sample.context(step))
        made = ran(graph, program, sample, state, step)
        assert [to_bytes(x) for x in made] == [to_bytes(x) for x in wanted]
        state = wanted


def called(graph: GraphModule, given: Sequence[Tensor]) -> list[Tensor]:
    """What stands for a compiled form."""
    made: list[Tensor] = graph(*given)
    return made


@pytest.mark.long
def test_a_step_in_segments(gpu_forms: None) -> None:
    """As a deep program is compiled for a GPU: each part has the GPU's graph."""
    made, at = deep(3), StepContext(deep(3).records, SEED, 1, 7)
    cut = plan(made.inner, whole_nodes=0)
    assert cut is not None and len(cut.segments) > len(cut.parts) > 1
    forms = [partial(called, trace(part, CPU)) for part in cut.parts]
    data = [read_data(node, CPU, at) for node in made.inner.nodes if node.op is Op.DATA]
    with torch.inference_mode():
        after = SegmentedForm(made.inner, cut, forms, CPU)([*made.genesis, *data, counter(at.step, CPU)])
    wanted = Executor(made.inner).step(made.genesis, at)
    assert [to_bytes(x) for x in after] == [to_bytes(x) for x in wanted]


@pytest.mark.parametrize(
    "exercise", [*SMALL, *map(long, all_exercises())], ids=lambda exercise: exercise.name
)
def test_every_operation(gpu_forms: None, exercise: Exercise) -> None:
    state = exercise.state(0)
    with torch.inference_mode():
        made = trace(exercise.program, CPU)(*state, torch.tensor(CONTEXT.step, dtype=torch.int32))
    wanted = Executor(exercise.program).step(state, CONTEXT)
    labels = [*(f"given {i}" for i in range(exercise.given)), *exercise.labels]
    pairs = zip(labels, made, wanted, strict=True)
    assert [label for label, a, b in pairs if to_bytes(a) != to_bytes(b)] == []


def product_program(reader: str) -> Program:
    """Of a product of two batches, 5 by 7 each, read by views in different ways."""
    b = ProgramBuilder()
    x, y = b.state(DType.F32, (2, 5, 24)), b.state(DType.F32, (2, 7, 24))
    ex, ey = b.exponent(x), b.exponent(y)
    made = b.product(b.quantise(x, ex), ex, b.quantise(y, ey), ey)
    turned = b.strided(made, (7, 2, 5), 0, (1, 35, 7))
    read = {
        "turned": [b.neg(turned)],
        "heads": [b.neg(b.reshape(turned, (14, 5)))],
        "reshaped": [b.neg(b.strided(b.reshape(made, (10, 7)), (7, 10), 0, (1, 7)))],
        "part": [b.neg(b.strided(made, (2, 7, 2), 7, (35, 1, 7)))],
        "straight": [b.neg(b.strided(made, (5, 2, 7), 0, (7, 35, 1)))],
        "both": [b.neg(turned), b.neg(made)],
        "kept": [b.neg(turned), made],
        "kept in another shape": [b.neg(turned), b.reshape(made, (10, 7))],
        "column": [b.neg(b.strided(made, (2, 1, 7), 0, (35, 7, 1)))],
    }
    for result in read[reader]:
        b.state(result.dtype, result.shape)
    return b.finish([x, y, *read[reader]], params=2)


@pytest.mark.parametrize(
    ("reader", "swapped"),
    [
        ("turned", True),
        ("heads", True),
        ("reshaped", True),
        ("part", True),
        ("straight", False),
        ("both", False),
        ("kept", False),
        ("kept in another shape", False),
        ("column", False),
    ],
)
def test_a_product_that_is_read_by_columns_is_made_so(gpu_forms: None, reader: str, swapped: bool) -> None:
    program = product_program(reader)
    graph = trace(program, CPU)
    (made,) = (node for node in graph.graph.nodes if "product_of_parts" in str(node.target))
    assert list(made.meta["val"].shape) == ([2, 7, 5] if swapped else [2, 5, 7])
    generator = torch.Generator().manual_seed(1)
    state = [torch.randn(node.shape, generator=generator) for node in program.state]
    wanted = Executor(program).step(state, StepContext(None, b"", 0, 0))
    with torch.inference_mode():
        assert [to_bytes(x) for x in graph(*state, torch.tensor(0))] == [to_bytes(x) for x in wanted]


def rows(kind: str, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(40, n, generator=generator)
    if kind == "any bits":
        return (
            torch.randint(-(2**31), 2**31, (40, n), generator=generator).to(torch.int32).view(torch.float32)
        )
    if kind == "not finite":
        for every, value in ((3, "inf"), (4, "-inf"), (5, "nan")):
            x[::every, n // every] = float(value)
    if kind == "ties":
        # Odd multiples of half a unit of the sum, in rows whose largest number is 1.
        unit = 2.0 ** -(c.SUM_BITS - (n - 1).bit_length() - 1)
        x = (torch.randint(-(2**22), 2**22, (40, n), generator=generator) + 0.5) * unit
        x[:, 0] = 1.0
    return {"largest": x.sign() * 3.4028234e38, "alike": torch.full_like(x, -1.9999999)}.get(kind, x)


@pytest.mark.parametrize("n", [1, 2, 3, 64, 1000, 2049, 4096])
@pytest.mark.parametrize("kind", ["normal", "any bits", "not finite", "ties", "largest", "alike"])
def test_sums_in_32_bits(gpu_forms: None, kind: str, n: int) -> None:
    x = rows(kind, n)
    wanted, made = contraction.sum(x), fused.sum(x)
    assert same(wanted, made)
    made.view(torch.int32)[0] ^= 1
    assert same(wanted, made) == bool(wanted[0].isnan()), "one bit must be seen"

"""The graph that is compiled for a GPU has the definition's bits: it is run on the processor here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
from assay.program.compiled.graph import trace
from assay.program.execute import Executor, read_data
from assay.program.isa import Op, Program
from tests.marked import long, only
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

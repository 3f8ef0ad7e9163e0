"""Causal attention is found in a program, also in parts of it, and made with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.numerics import attention_triton
from assay.numerics.encoding import to_bytes
from assay.program.build import ProgramBuilder
from assay.program.compiled import operands
from assay.program.compiled.graph import trace
from assay.program.compiled.segment_runner import SegmentedForm
from assay.program.compiled.segments import plan
from assay.program.compiled.softmaxes import Gradient, gradient_of, scores_of
from assay.program.execute import Executor, StepContext, counter, read_data
from assay.program.isa import DType, Input, Op, Program
from assay.training import datasets, job, models
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW
from assay.training.outer import DiLoCo
from tests.unit.program.compiled.gpu_forms import gpu_forms as gpu_forms
from tests.unit.program.compiled.gpu_forms import product

CPU = torch.device("cpu")
SEED = b"s" * 32
NO_CONTEXT = StepContext(None, SEED, 0, 0)
T = 24
INF, NAN = float("inf"), float("nan")


pytestmark = pytest.mark.usefixtures("gpu_forms")


def below(b: ProgramBuilder, column: tuple[int, ...] = (T,), row: tuple[int, ...] = (T, 1)) -> Input:
    place = b.iota((T,), 0)
    return b.le(*(b.reshape(place, shape) if shape != (T,) else place for shape in (column, row)))


def softmax(b: ProgramBuilder, x: Input, mask: Input, other: float = -INF) -> Input:
    x = b.select(mask, x, b.const(other, DType.F32))
    column = (*x.shape[:-1], 1)
    powers = b.exp(b.sub(x, b.reshape(b.amax(x), column)))
    return b.div(powers, b.reshape(b.sum(powers), column))


def gradient(b: ProgramBuilder, p: Input, g: Input, mask: Input) -> Input:
    weighted = b.mul(g, p)
    total = b.reshape(b.sum(weighted), (*p.shape[:-1], 1))
    return b.select(mask, b.sub(weighted, b.mul(p, total)), b.const(0.0, DType.F32))


def trained(b: ProgramBuilder, x: Input) -> list[Input]:
    """Attention's values, and gradients of values, queries and keys."""
    p = softmax(b, x, below(b))
    other = b.neg(x)
    d_values = product(b, b.transpose(p), b.transpose(other))
    d = gradient(b, p, product(b, other, x), below(b))
    return [product(b, p, other), d_values, product(b, d, other), product(b, b.transpose(d), other)]


def given_gradient(b: ProgramBuilder, x: Input) -> list[Input]:
    """Of a gradient that is no product, so that anything may be above its diagonal."""
    p = softmax(b, x, below(b, (1, T)))
    d = gradient(b, p, b.mul(x, x), below(b))
    return [product(b, *(b.transpose(y) for y in (p, d))), product(b, d, p)]


def one_way(b: ProgramBuilder, x: Input) -> list[Input]:
    """A softmax alone, which others read, and a gradient whose columns no product reads."""
    p = softmax(b, x, below(b))
    d = gradient(b, p, product(b, x, x), below(b))
    return [p, product(b, d, x)]


def unmasked(b: ProgramBuilder, x: Input) -> list[Input]:
    return [softmax(b, x, b.le(x, x))]


def upper(b: ProgramBuilder, x: Input) -> list[Input]:
    return [softmax(b, x, below(b, (T, 1), (T,)))]


def other_fill(b: ProgramBuilder, x: Input) -> list[Input]:
    return [softmax(b, x, below(b), -1e9)]


def other_sum(b: ProgramBuilder, x: Input) -> list[Input]:
    p = softmax(b, x, below(b))
    return [b.div(b.exp(x), b.reshape(b.sum(p), (2, T, 1)))]


Makes = Callable[[ProgramBuilder, Input], list[Input]]
FOUND: list[tuple[Makes, int, int]] = [
    (trained, 1, 1),
    (given_gradient, 1, 1),
    (one_way, 1, 0),
    (unmasked, 0, 0),
    (upper, 0, 0),
    (other_fill, 0, 0),
    (other_sum, 1, 0),
]


def program(makes: Makes) -> Program:
    b = ProgramBuilder()
    x = b.state(DType.F32, (2, T, T))
    made = makes(b, x)
    for one in made:
        b.state(one.dtype, one.shape)
    return b.finish([x, *made], params=1)


def scores(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2, T, T, generator=generator)
    if kind == "any bits":
        return (
            torch.randint(-(2**31), 2**31, x.shape, generator=generator).to(torch.int32).view(torch.float32)
        )
    if kind == "large":
        return x * 2.0**63
    if kind == "hard":
        x[0, 5, 2], x[0, 6, 20], x[0, 9, 9], x[1, 3], x[1, 4, 4:] = NAN, NAN, INF, -INF, -INF
        x[1, 10] *= 50
    return x


def called(graph: Any, target: str) -> int:
    return sum(str(node.target) == f"assay.{target}.default" for node in graph.graph.nodes)


@pytest.mark.parametrize("kind", ["normal", "any bits", "large", "hard"])
@pytest.mark.parametrize(("makes", "softmaxes", "gradients"), FOUND)
def test_attention_in_a_program(makes: Makes, softmaxes: int, gradients: int, kind: str) -> None:
    made = program(makes)
    graph = trace(made, CPU)
    assert (called(graph, "causal_softmax"), called(graph, "causal_softmax_gradient")) == (
        softmaxes,
        gradients,
    )
    state = [scores(kind), *(torch.zeros(n.shape) for n in made.state[1:])]
    wanted = Executor(made).step(state, NO_CONTEXT)
    with torch.inference_mode():
        after = graph(*state, torch.tensor(0))
    assert [to_bytes(x) for x in after] == [to_bytes(x) for x in wanted]


def test_what_is_found() -> None:
    made = program(trained)
    (p,) = (i for i in range(len(made.nodes)) if scores_of(made, i) is not None)
    assert scores_of(made, p) == 0
    (found,) = filter(None, (gradient_of(made, i) for i in range(len(made.nodes))))
    assert found == Gradient(p, found.slope) and made.nodes[found.slope].op is Op.PRODUCT


def test_a_small_one_is_left_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "LEAST_ELEMENTS", 2 * T * T + 1)
    assert not called(trace(program(trained), CPU), "causal_softmax")


@pytest.mark.parametrize("kind", ["normal", "any bits", "large", "hard"])
def test_rows_that_are_not_read_hold_nothing_above_the_diagonal(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What the graph of a whole program says of them is so, and is said of all rows of ordinary numbers."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    real = attention_triton.gradient_definition

    def noted(*given: Tensor) -> list[Tensor]:
        seen.append((given[0], given[1], given[2]))
        return real(*given)

    monkeypatch.setattr(attention_triton, "gradient_definition", noted)
    made = program(trained)
    with torch.inference_mode():
        trace(made, CPU)(scores(kind), *(torch.zeros(n.shape) for n in made.state[1:]), torch.tensor(0))
    ((p, slope, read_all),) = seen[-1:]
    above = ~attention_triton.causal(T, CPU) & (read_all == 0).unsqueeze(-1)
    assert not (above & ~p.isnan().all(-1, keepdim=True) & (p.view(torch.int32) != 0)).any()
    assert slope[above].isfinite().all()
    assert bool(read_all.any()) == (kind != "normal")


@cache
def gpt(layers: int) -> job.JobArtifacts:
    config = models.GptConfig(n_layer=layers, n_head=2, d_model=32, context=16, tied=True)
    layout = datasets.TextLayout(config.context)
    data = datasets.Dataset(layout, bytes(i * 7 % 251 for i in range(layout.record_size * 16)), b"")
    model = models.Gpt(config)
    return job.build_job(model, cross_entropy, AdamW(), data, batch=4, shards=1, outer=DiLoCo())


@pytest.mark.long
def test_attention_in_parts_of_a_deep_program() -> None:
    """A part knows its mask, and which of its inputs is a softmax; the step has the same bits."""
    made, at = gpt(3), StepContext(gpt(3).records, SEED, 1, 7)
    cut = plan(made.inner, whole_nodes=0)
    assert cut is not None
    graphs = [trace(part, CPU) for part in cut.parts]
    given = [graph for graph, part in zip(graphs, cut.parts, strict=True) if part.softmaxes]
    assert given and all(called(graph, "causal_softmax_gradient") for graph in given)
    assert not any("ones" in str(node.target) for graph in given for node in graph.graph.nodes)
    times = [sum(s.part == number for s in cut.segments) for number in range(len(cut.parts))]
    for name in ("causal_softmax", "causal_softmax_gradient"):
        assert sum(n * called(graph, name) for n, graph in zip(times, graphs, strict=True)) == 3
    data = [read_data(node, CPU, at) for node in made.inner.nodes if node.op is Op.DATA]
    forms = [partial(_called, graph) for graph in graphs]
    with torch.inference_mode():
        after = SegmentedForm(made.inner, cut, forms, CPU)([*made.genesis, *data, counter(at.step, CPU)])
    wanted = Executor(made.inner).step(made.genesis, at)
    assert [to_bytes(x) for x in after] == [to_bytes(x) for x in wanted]


def _called(graph: Any, given: Any) -> list[Tensor]:
    made: list[Tensor] = graph(*given)
    return made

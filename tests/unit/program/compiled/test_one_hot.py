"""Sums of one-hot rows, and of few addends among many places, take short forms with the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.numerics import contraction, fused
from assay.numerics.encoding import to_bytes
from assay.numerics.hard_products import same
from assay.program.build import ProgramBuilder
from assay.program.compiled.graph import trace
from assay.program.compiled.one_hot import one_hot_sums
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Input, Op, Program

ROWS, WIDTH = 9, 40
SHARES = (0.25, -0.0, 0.0, -1.5, float("inf"), float("-inf"), float("nan"), 2.0**-149, -3.4028234e38)


def one_hot(b: ProgramBuilder, index: Input, share: Input, width: int = WIDTH, other: float = 0.0) -> Input:
    hit = b.eq(b.iota((width,), 0), index)
    return b.select(hit, share, b.const(other, DType.F32))


def loss_like(b: ProgramBuilder, index: Input, share: Input) -> list[Input]:
    """Of a whole row and of parts of it, as a gradient over a vocabulary has them."""
    row = one_hot(b, index, share)
    parts = [b.slice(row, 1, start, stop) for start, stop in ((0, 16), (16, 32), (32, 39), (39, 40))]
    turned = b.select(b.eq(index, b.iota((ROWS, WIDTH), 1)), share, b.const(0.0, DType.F32))
    return [b.sum(row), *map(b.sum, parts), b.sum(turned)]


def others(b: ProgramBuilder, index: Input, share: Input) -> list[Input]:
    """Rows that only look like it."""
    row = one_hot(b, index, share)
    made = [
        one_hot(b, index, b.mul(share, b.convert(b.iota((WIDTH,), 0), DType.F32))),
        one_hot(b, index, share, other=-0.0),
        b.select(b.eq(b.iota((ROWS, WIDTH), 0), index), share, b.const(0.0, DType.F32)),
        b.select(b.lt(b.iota((WIDTH,), 0), index), share, b.const(0.0, DType.F32)),
        b.strided(row, (ROWS - 1, 16), WIDTH - 3, (WIDTH, 1)),
        b.transpose(row),
        b.strided(row, (ROWS, 16), 0, (WIDTH, 2)),
    ]
    return list(map(b.sum, made))


def program(makes: Callable[[ProgramBuilder, Input, Input], list[Input]], each: bool) -> Program:
    b = ProgramBuilder()
    index, share = b.state(DType.I32, (ROWS, 1)), b.state(DType.F32, (ROWS, 1))
    made = makes(b, index, share if each else b.strided(share, (), 3, ()))
    for x in made:
        b.state(x.dtype, x.shape)
    return b.finish([index, share, *made], params=1)


@pytest.mark.parametrize("form", ["cpu", "gpu"])
@pytest.mark.parametrize("each", [True, False], ids=["a share a row", "one share"])
@pytest.mark.parametrize("makes", [loss_like, others])
def test_sums_of_one_hot_rows(
    monkeypatch: pytest.MonkeyPatch,
    makes: Callable[[ProgramBuilder, Input, Input], list[Input]],
    each: bool,
    form: str,
) -> None:
    monkeypatch.setattr(fused, "on_processor", lambda x: form == "cpu")
    made = program(makes, each)
    sums = [i for i, node in enumerate(made.nodes) if node.op is Op.SUM]
    assert sorted(one_hot_sums(made)) == (sums if makes is loss_like else [])
    graph = trace(made, torch.device("cpu"))
    for index in ([0, 15, 16, 31, 32, 38, 39, 40, -1], [39] * 9, [2**31 - 1, -(2**31), *range(7)]):
        for turn in range(len(SHARES)):
            shares = torch.tensor([*SHARES[turn:], *SHARES[:turn]]).view(ROWS, 1)
            state = [torch.tensor(index, dtype=torch.int32).view(ROWS, 1), shares]
            state += [torch.zeros(node.shape) for node in made.state[2:]]
            wanted = Executor(made).step(state, StepContext(None, b"", 0, 0))
            with torch.inference_mode():
                after = graph(*state, torch.tensor(0))
            assert [to_bytes(x) for x in after] == [to_bytes(x) for x in wanted]


@pytest.mark.parametrize("length", [1, 2, 3, 1000, 4096])
def test_a_one_hot_sum_is_exact_at_any_length(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    share = torch.randint(-(2**31), 2**31, (64,), generator=generator).to(torch.int32).view(torch.float32)
    index = torch.randint(-2, length + 2, (64,), generator=generator).to(torch.int32)
    index[0], share[0] = 0, 1.5
    rows = torch.where(torch.arange(length) == index[:, None], share[:, None], 0.0)
    made = fused.one_hot_sum(index, share, 0, length)
    assert same(contraction.sum(rows), made)
    assert not same(contraction.sum(rows), fused.one_hot_sum(index, share, 1, length))


def addends(kind: str, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(6, count, generator=generator) * 2.0 ** torch.arange(-140, 100, 40.0)[:, None]
    idx = torch.randint(-3, 70, (count,), generator=generator).to(torch.int32)
    if kind == "one place":
        idx = torch.full_like(idx, 63)
    if kind == "outside":
        idx = torch.full_like(idx, -1)
    if kind == "not finite":
        x[0, 1], x[2, 0], x[3, -1] = float("nan"), float("inf"), float("-inf")
    if kind == "cancelling":
        idx[1::2] = idx[: count - 1 : 2][: len(idx[1::2])]
        x[:, 1::2] = -x[:, : count - 1 : 2][:, : x[:, 1::2].shape[1]]
    return x, idx


@pytest.mark.parametrize("count", [2, 3, 16, 63, 64])
@pytest.mark.parametrize("kind", ["any", "one place", "outside", "not finite", "cancelling"])
def test_few_addends_among_many_places(monkeypatch: pytest.MonkeyPatch, kind: str, count: int) -> None:
    monkeypatch.setattr(fused, "on_processor", lambda x: False)
    x, idx = addends(kind, count)
    wanted = contraction.scatter_sum(x, idx, V=64)
    assert same(wanted, fused.scatter_sum(x, idx, V=64))
    x[4, 0] *= 2
    changed = kind != "outside" and bool((idx[0] >= 0) & (idx[0] < 64))
    assert same(wanted, fused.scatter_sum(x, idx, V=64)) != changed, "another addend must be seen"


@pytest.mark.parametrize(("form", "places"), [("gpu", 64), ("gpu", 16), ("gpu", 17), ("cpu", 64)])
def test_what_is_stored_of_few_addends(monkeypatch: pytest.MonkeyPatch, form: str, places: int) -> None:
    monkeypatch.setattr(fused, "on_processor", lambda x: form == "cpu")
    sparse = form == "gpu" and places > 16
    b = ProgramBuilder()
    x, idx = b.state(DType.F32, (6, 16)), b.state(DType.I32, (16,))
    made = b.scatter_sum(x, idx, places)
    b.state(made.dtype, made.shape)
    graph = trace(b.finish([x, idx, made], params=1), torch.device("cpu"))
    (table,) = (node for node in graph.graph.nodes if "added_at" in str(node.target))
    assert list(table.meta["val"].shape) == ([17, 6] if sparse else [6, places + 1])
    assert ("rows" in str(table.target)) == sparse

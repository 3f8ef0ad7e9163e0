"""Sums and exponents of exponentials take their largest number from a known maximum, with the same bits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.numerics import constants as c
from assay.numerics import contraction, fused, transcendental
from assay.numerics.encoding import to_bytes
from assay.program.build import ProgramBuilder
from assay.program.compiled.graph import trace
from assay.program.compiled.largest import known_maxima
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Input, Op, Program

CPU = torch.device("cpu")
INF, NAN = float("inf"), float("nan")
ROWS, LENGTH = 24, 40
SLICES = ((0, 16), (16, 32), (32, 40))


@pytest.mark.parametrize("top", [0x80000000, 0x80400000, 0xBF800000, 0xC2CF0000])
def test_exp_never_falls_where_its_argument_rises(top: int) -> None:
    """Part of what the slow test proves of all arguments from -104 to -0."""
    assert_rises(range(top, min(top + (1 << 16), last() + 1)))


@pytest.mark.slow
def test_exp_never_falls_where_any_argument_rises() -> None:
    for start in range(0x80000000, last(), 1 << 22):
        assert_rises(range(start, min(start + (1 << 22), last()) + 1))


def last() -> int:
    """Pattern of -104, below which exp's argument is cut."""
    return int(torch.tensor(c.EXP_CLAMP_LOW).view(torch.int32)) & 0xFFFFFFFF


def assert_rises(patterns: range) -> None:
    bits = torch.arange(patterns.start - (1 << 32), patterns.stop - (1 << 32)).to(torch.int32)
    made = transcendental.exp(bits.view(torch.float32))
    assert bool((made[1:] <= made[:-1]).all()) and bool((made >= 0).all()) and bool((made <= 1).all())


def softmax(b: ProgramBuilder, x: Input) -> list[Input]:
    m = b.reshape(b.amax(x), (ROWS, 1))
    powers = b.exp(b.sub(x, m))
    total = b.sum(powers)
    p = b.div(powers, b.reshape(total, (ROWS, 1)))
    e = b.exponent(p)
    return [total, p, e, b.quantise(p, e)]


def parts(b: ProgramBuilder, x: Input) -> list[Input]:
    """As of a vocabulary that is longer than a row may be."""
    maxima = [b.amax(b.slice(x, 1, *ends)) for ends in SLICES]
    most = b.max(b.max(maxima[0], maxima[1]), maxima[2])
    powers = b.exp(b.sub(x, b.reshape(most, (ROWS, 1))))
    return [most, *(b.sum(b.slice(powers, 1, *ends)) for ends in SLICES)]


def others(b: ProgramBuilder, x: Input) -> list[Input]:
    """Rows that only look like it."""
    own = b.reshape(b.amax(x), (ROWS, 1))
    first = b.reshape(b.amax(b.slice(x, 1, 0, 16)), (ROWS, 1))
    apart = b.exp(b.sub(x, first))
    total = b.sum(apart)
    p = b.div(apart, b.reshape(total, (ROWS, 1)))
    made = [
        b.exp(b.sub(own, x)),
        b.sub(x, own),
        apart,
        b.exp(b.add(x, own)),
        b.exp(b.transpose(b.sub(x, own))),
    ]
    return [total, b.exponent(p), *map(b.sum, made), b.exponent(b.div(p, own))]


MAKES = {"softmax": softmax, "parts": parts, "others": others}


def program(kind: str) -> Program:
    b = ProgramBuilder()
    x = b.state(DType.F32, (ROWS, LENGTH))
    made = MAKES[kind](b, x)
    for one in made:
        b.state(one.dtype, one.shape)
    return b.finish([x, *made], params=1)


def rows(kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(len(kind))
    x = torch.randn(ROWS, LENGTH, generator=generator)
    if kind == "any bits":
        shape = (ROWS, LENGTH)
        return torch.randint(-(2**31), 2**31, shape, generator=generator).to(torch.int32).view(torch.float32)
    if kind == "hard":
        x[0], x[1], x[2] = 0.0, -0.0, -INF
        x[3, 5], x[4, 5], x[5, 5], x[6, ::2], x[7, 17] = INF, -INF, NAN, -INF, INF
        x[8, 33], x[9, :20], x[10, 20:] = NAN, -INF, -INF
        x[11], x[12], x[13] = 3.4028234e38, -3.4028234e38, 2.0**-149
        x[14, 3], x[15, 35], x[16, ::3], x[17, 1:] = 3.4028234e38, 105.0, -103.9, -104.1
        x[18, 0], x[18, 1] = INF, INF
        x[19, :] = torch.arange(LENGTH) * -3.0
        x[20, :16] = -200.0
    if kind == "far":
        x *= 60
    if kind == "alike":
        x = x[:, :1].expand(-1, LENGTH).contiguous()
    return x


@pytest.mark.parametrize("form", ["cpu", "gpu"])
@pytest.mark.parametrize("numbers", ["normal", "any bits", "hard", "far", "alike"])
@pytest.mark.parametrize("kind", MAKES)
def test_the_same_bits(monkeypatch: pytest.MonkeyPatch, kind: str, numbers: str, form: str) -> None:
    monkeypatch.setattr(fused, "on_processor", lambda x: form == "cpu")
    made = program(kind)
    graph = trace(made, CPU)
    state = [rows(numbers), *(torch.zeros(n.shape, dtype=torch.float32) for n in made.state[1:])]
    for i, node in enumerate(made.state):
        state[i] = state[i].to(torch.int16) if node.dtype is DType.I16 else state[i]
    wanted = Executor(made).step(state, StepContext(None, b"", 0, 0))
    with torch.inference_mode():
        after = graph(*state, torch.tensor(0))
    assert [to_bytes(x) for x in after] == [to_bytes(x) for x in wanted]


@pytest.mark.parametrize(
    ("kind", "sums", "exponents"), [("softmax", 1, 1), ("parts", 3, 0), ("others", 0, 0)]
)
def test_what_is_found(kind: str, sums: int, exponents: int) -> None:
    made = program(kind)
    found = [made.nodes[index].op for index in known_maxima(made)]
    assert (found.count(Op.SUM), found.count(Op.EXPONENT)) == (sums, exponents)


@pytest.mark.parametrize("form", ["cpu", "gpu"])
def test_another_largest_number_gives_other_sums(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr(fused, "on_processor", lambda x: form == "cpu")
    x = torch.rand(200, 100, generator=torch.Generator().manual_seed(1))
    largest, wanted = x.amax(-1), contraction.sum(x)
    assert torch.equal(fused.sum(x, largest), wanted)
    assert not torch.equal(fused.sum(x, largest * 2.0**24), wanted)

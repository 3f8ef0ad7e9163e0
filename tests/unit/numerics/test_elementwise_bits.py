"""Element-wise tensor operations against the integer-only model, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.numerics import scalar
from assay.program.isa import Family, Op
from assay.program.kernels import REFERENCE
from tests.marked import only
from tests.unit.numerics import patterns as p

UNARY = [op.word for op in Op.of(Family.UNARY)]
BINARY = [op.word for op in Op.of(Family.BINARY)]
TRANSCENDENTAL = [op.word for op in Op.of(Family.UNARY) if op.row.transcendental]


@pytest.mark.parametrize("op", only([op for op in UNARY if op not in TRANSCENDENTAL or op == "exp"], UNARY))
def test_unary_equals_the_model(op: str) -> None:
    x = p.unary(seed=UNARY.index(op))
    assert len(x) >= 10_000
    p.assert_same(REFERENCE[op](p.tensor(x)), [p.by_model(op, int(v)) for v in x], x)


@pytest.mark.parametrize("op", only([op for op in BINARY if op != "pow"], BINARY))
def test_binary_equals_the_model(op: str) -> None:
    a, b = p.pairs(seed=BINARY.index(op))
    assert len(a) >= 10_000
    want = [p.by_model(op, int(u), int(v)) for u, v in zip(a, b, strict=True)]
    p.assert_same(REFERENCE[op](p.tensor(a), p.tensor(b)), want, a, b)


@pytest.mark.parametrize("op", [op.word for op in Op.of(Family.COMPARISON)])
def test_f32_comparison_equals_the_model(op: str) -> None:
    a, b = p.pairs(seed=3)
    want = [p.by_model(op, int(u), int(v)) for u, v in zip(a, b, strict=True)]
    got = REFERENCE[op](p.tensor(a), p.tensor(b))
    assert got.dtype == torch.bool
    assert {0, 1} == set(want)
    p.assert_same(got, want, a, b)


def _i32_pairs() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    edge = np.array(
        [-(2**31), -(2**31) + 1, -65536, -1, 0, 1, 2, 46341, 65535, 2**31 - 2, 2**31 - 1], dtype=np.int32
    )
    left, right = (grid.reshape(-1) for grid in np.meshgrid(edge, edge))
    a, b = (generator.integers(-(2**31), 2**31, 10_000, dtype=np.int64).astype(np.int32) for _ in range(2))
    return np.concatenate([left, a]), np.concatenate([right, b])


@pytest.mark.parametrize("op", [op.word for op in Op.of(Family.INTEGER, Family.COMPARISON)])
def test_i32_operation_equals_the_model(op: str) -> None:
    a, b = _i32_pairs()
    attributes = {"type": "i32"} if op in ("eq", "lt", "le") else {}
    want = [p.by_model(op, int(u), int(v), **attributes) for u, v in zip(a, b, strict=True)]
    p.assert_same(REFERENCE[op](torch.from_numpy(a), torch.from_numpy(b)), want, a, b)


@pytest.mark.parametrize("op", [op.word for op in Op.of(Family.LOGIC)])
def test_logic_equals_the_model(op: str) -> None:
    rows = [[0, 0], [0, 1], [1, 0], [1, 1]]
    rows = [row[:1] for row in rows] if op == "not" else rows
    operands = [torch.tensor(column, dtype=torch.bool) for column in zip(*rows, strict=True)]
    p.assert_same(REFERENCE[op](*operands), [p.by_model(op, *row) for row in rows])


def test_select_copies_either_side_of_any_dtype() -> None:
    condition = torch.tensor([True, False])
    for dtype in (torch.float32, torch.int32, torch.int16, torch.uint8, torch.bool):
        a, b = torch.tensor([1, 1]).to(dtype), torch.tensor([0, 0]).to(dtype)
        got = REFERENCE["select"](condition, a, b)
        assert got.dtype == dtype
        assert got.tolist() == [p.by_model("select", int(c), 1, 0) for c in condition]


DTYPES = {"f32": torch.float32, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}


def _inputs(source: str) -> np.ndarray:
    if source == "f32":
        around = np.random.default_rng(9).normal(0, 2.0**31, 10_000).astype(np.float32).view(np.uint32)
        return np.concatenate([p.unary(seed=8), around])
    if source == "i32":
        return _i32_pairs()[0]
    return np.arange(256 if source == "u8" else 2, dtype=np.uint8)


@pytest.mark.parametrize(("source", "target"), sorted(scalar.CONVERSIONS))
def test_conversion_equals_the_model(source: str, target: str) -> None:
    x = _inputs(source)
    operand = p.tensor(x) if source == "f32" else torch.from_numpy(x).to(DTYPES[source])
    got = REFERENCE["convert"](operand, dtype=DTYPES[target])
    assert got.dtype == DTYPES[target]
    p.assert_same(got, [p.by_model("convert", int(v), source=source, target=target) for v in x], x)


@pytest.mark.parametrize(("source", "target"), [("f32", "i32"), ("i32", "f32")])
def test_bits_equal_the_model(source: str, target: str) -> None:
    """A29: NaNs are one going out, and any pattern comes in."""
    x = _inputs(source)
    if source == "i32":
        x = np.concatenate([x, p.unary(seed=11).view(np.int32)])
    operand = p.tensor(x) if source == "f32" else torch.from_numpy(x)
    got = REFERENCE["bits"](operand, dtype=DTYPES[target])
    assert got.dtype == DTYPES[target]
    want = [p.by_model("bits", int(v), source=source, target=target) for v in x]
    assert p.NAN in want
    p.assert_same(got, want, x)


def test_undefined_conversion_is_refused() -> None:
    with pytest.raises(TypeError, match="no conversion"):
        REFERENCE["convert"](torch.zeros(1), dtype=torch.uint8)


@pytest.mark.parametrize("op", TRANSCENDENTAL)
def test_blocks_do_not_change_bits(op: str) -> None:
    x = torch.from_numpy(
        np.random.default_rng(1)
        .integers(0, 2**32, 70_001, dtype=np.uint64)
        .astype(np.uint32)
        .view(np.float32)
    )
    whole = REFERENCE[op](x)
    pieces = torch.cat([REFERENCE[op](piece) for piece in x.split(977)])
    assert (p.bits(whole) == p.bits(pieces)).all()


@pytest.mark.parametrize("op", UNARY)
def test_strides_do_not_change_bits(op: str) -> None:
    """A view that another node made: transposed, repeated, every second element."""
    x = torch.randn(6, 8, 10, generator=torch.Generator().manual_seed(1))
    for view in (x.permute(2, 0, 1), x[:, :1].expand(6, 8, 10), x[::2, :, ::2]):
        assert (p.bits(REFERENCE[op](view)) == p.bits(REFERENCE[op](view.contiguous()))).all()


def test_operands_broadcast_right_aligned() -> None:
    a, b = torch.full((3, 1), 2.0), torch.tensor([1.0, 2.0, 3.0, 4.0])
    for op in ("add", "pow", "max", "lt"):
        assert REFERENCE[op](a, b).shape == (3, 4)
    assert REFERENCE["pow"](a, b)[1].tolist() == [2.0, 4.0, 8.0, 16.0]


def test_operands_are_left_unchanged() -> None:
    x = torch.linspace(-3, 3, 64)
    for op in UNARY:
        before = x.clone()
        REFERENCE[op](x)
        assert torch.equal(x, before), op


# Special values of IEEE-754 9.2.1 and of the document, written out: neither implementation made them.
INF, NINF, NAN, ONE, MINUS_ONE, ZERO, NZERO = (
    0x7F800000,
    0xFF800000,
    p.NAN,
    0x3F800000,
    0xBF800000,
    0,
    0x80000000,
)
TWO, HALF, THREE = 0x40000000, 0x3F000000, 0x40400000
SPECIAL_VALUES = [
    ("exp", (NINF,), ZERO), ("exp", (INF,), INF), ("exp", (NZERO,), ONE),
    ("exp", (ONE,), 0x402DF854), ("log", (ZERO,), NINF), ("log", (NZERO,), NINF),
    ("log", (MINUS_ONE,), NAN), ("log", (ONE,), ZERO), ("log", (INF,), INF),
    ("tanh", (INF,), ONE), ("tanh", (NINF,), MINUS_ONE), ("tanh", (NZERO,), NZERO),
    ("tanh", (1,), 1), ("erf", (INF,), ONE), ("erf", (NINF,), MINUS_ONE),
    ("erf", (NZERO,), NZERO), ("erf", (ONE,), 0x3F57BB3D), ("sin", (INF,), NAN),
    ("sin", (NZERO,), NZERO), ("sin", (0x40490FDB,), 0xB3BBBD2E), ("sin", (0xCE000000,), NZERO),
    ("cos", (NINF,), NAN), ("cos", (NZERO,), ONE), ("cos", (0x7F7FFFFF,), ONE),
    ("cos", (0x3FC90FDB,), 0xB33BBD2E), ("sqrt", (NZERO,), NZERO), ("sqrt", (MINUS_ONE,), NAN),
    ("sqrt", (INF,), INF), ("sqrt", (TWO,), 0x3FB504F3), ("floor", (0xBF000000,), MINUS_ONE),
    ("floor", (HALF,), ZERO), ("floor", (NZERO,), NZERO), ("floor", (NINF,), NINF),
    ("max", (ZERO, NZERO), NZERO), ("max", (NZERO, ZERO), ZERO), ("min", (ZERO, NZERO), NZERO),
    ("max", (NAN, ONE), NAN), ("max", (ONE, NAN), NAN), ("min", (ONE, NAN), NAN),
    ("mul", (ZERO, INF), NAN), ("add", (INF, NINF), NAN), ("div", (ONE, NZERO), NINF),
    ("div", (ZERO, ZERO), NAN), ("div", (ONE, THREE), 0x3EAAAAAB), ("sub", (ONE, ONE), ZERO),
    ("pow", (NAN, ZERO), ONE), ("pow", (ONE, NAN), ONE), ("pow", (NZERO, MINUS_ONE), NINF),
    ("pow", (NZERO, TWO), ZERO), ("pow", (NZERO, THREE), NZERO), ("pow", (MINUS_ONE, INF), ONE),
    ("pow", (MINUS_ONE, HALF), NAN), ("pow", (HALF, NINF), INF), ("pow", (NINF, MINUS_ONE), NZERO),
    ("pow", (NINF, HALF), INF), ("pow", (0xC0000000, THREE), 0xC1000000), ("pow", (TWO, 0xC3140000), 2),
    ("pow", (ZERO, NINF), INF), ("pow", (INF, NINF), ZERO),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "want"), SPECIAL_VALUES)
def test_special_value(op: str, operands: tuple[int, ...], want: int) -> None:
    got = REFERENCE[op](*(p.tensor(np.array([x], dtype=np.uint32)) for x in operands))
    assert hex(p.bits(got)[0]) == hex(want)
    assert hex(p.by_model(op, *operands)) == hex(want)

"""Contractions: the same bits from the model, in every order, from every backend, with any split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.numerics import backends, blocks, contraction
from assay.program.kernels import REFERENCE
from tests.unit.numerics import patterns as p

LENGTHS = (1, 2, 3, 7, 64, 65)
BACKENDS: list[Callable[[Tensor, Tensor], Tensor]] = [
    backends.integer_product_int64,
    backends.integer_product_f64,
    backends.integer_product_int8,
    backends.integer_product_fast,
]


def rows(length: int, count: int, seed: int) -> np.ndarray:
    """f32 patterns [count, length]: rows of one scale, of uniform bits, with specials, with infinities."""
    generator = np.random.default_rng([seed, length])
    shape = (count, length)
    scale = np.exp2(generator.integers(-149, 120, (count, 1)).astype(np.float64))
    spread = np.exp2(generator.integers(-30, 1, shape).astype(np.float64))
    with np.errstate(over="ignore", under="ignore"):
        x = (generator.normal(size=shape) * scale * spread).astype(np.float32).view(np.uint32)
    kind = generator.integers(0, 8, (count, 1))
    uniform = generator.integers(0, 2**32, shape, dtype=np.uint64).astype(np.uint32)
    finite = np.where(uniform & 0x7F800000 == 0x7F800000, uniform & 0x807FFFFF, uniform)
    x = np.where(kind == 0, uniform, np.where(kind == 1, finite, x))
    drawn = generator.choice(p.special(), shape)
    x = np.where((kind == 2) & (generator.random(shape) < 0.1), drawn, x)
    one_kind = np.where(generator.random((count, 1)) < 0.5, 0x7F800000, 0xFF800000)
    x = np.where((kind == 3) & (generator.random(shape) < 0.1), one_kind, x)
    x = np.where(kind == 4, (uniform & 1) << 31, x)
    return x.astype(np.uint32)


def as_rows(x: np.ndarray) -> list[list[int]]:
    return [[int(v) for v in row] for row in x]


@pytest.mark.parametrize("op", ["sum", "amax", "argmax", "exponent"])
@pytest.mark.parametrize("length", LENGTHS)
def test_reduction_equals_the_model(op: str, length: int) -> None:
    x = rows(length, 1700, seed=1)
    got = REFERENCE[op](p.tensor(x))
    p.assert_same(got, [p.by_model(op, row) for row in as_rows(x)], np.arange(len(x)))


@pytest.mark.parametrize("length", [1000, 4095, 4096])
def test_long_sum_equals_the_model(length: int) -> None:
    x = rows(length, 16, seed=2)
    p.assert_same(REFERENCE["sum"](p.tensor(x)), [p.by_model("sum", row) for row in as_rows(x)])


def test_quantise_equals_the_model_with_its_own_exponent_and_any_other() -> None:
    x = rows(16, 800, seed=3)
    own = REFERENCE["exponent"](p.tensor(x))
    foreign = torch.from_numpy(np.random.default_rng(3).integers(-(2**15), 2**15, 800).astype(np.int16))
    near = (own + torch.from_numpy(np.random.default_rng(4).integers(-3, 4, 800).astype(np.int16))).to(
        torch.int16
    )
    for e in (own, foreign, near):
        want = [p.by_model("quantise", v, int(k)) for row, k in zip(as_rows(x), e, strict=True) for v in row]
        got = REFERENCE["quantise"](p.tensor(x), e)
        assert got.dtype == torch.int16
        p.assert_same(got, want, x.reshape(-1))


def _quantised(shape: tuple[int, ...], seed: int, limit: int = 8192) -> tuple[Tensor, Tensor]:
    generator = np.random.default_rng([seed, *shape])
    q = torch.from_numpy(generator.integers(-limit, limit + 1, shape).astype(np.int16))
    e = torch.from_numpy(generator.integers(-160, 140, shape[:-1]).astype(np.int16))
    keep = torch.from_numpy(generator.random(shape[:-1]) < 0.7)
    return q, torch.where(keep, e.clamp(-20, 20), e)


@pytest.mark.parametrize("length", [1, 5, 64])
@pytest.mark.parametrize("limit", [1, 8192, 32767])
def test_product_equals_the_model(length: int, limit: int) -> None:
    qa, ea = _quantised((2, 23, length), 1, limit)
    qb, eb = _quantised((2, 29, length), 2, limit)
    want = [
        p.by_model("product", qa[b, i].tolist(), int(ea[b, i]), qb[b, j].tolist(), int(eb[b, j]))
        for b in range(2)
        for i in range(23)
        for j in range(29)
    ]
    p.assert_same(REFERENCE["product"](qa, ea, qb, eb), want)


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 7), (17, 16, 128), (33, 40, 1000), (64, 80, 4096)])
def test_product_backends_agree_on_every_bit(shape: tuple[int, int, int]) -> None:
    qa, ea = _quantised((shape[0], shape[2]), 5)
    qb, eb = _quantised((shape[1], shape[2]), 6)
    qa[0], qb[0] = 8192, -8192
    reference = contraction.scale_product(backends.integer_product_int64(qa, qb), ea, eb)
    assert (p.bits(contraction.product(qa, ea, qb, eb)) == p.bits(reference)).all()
    for backend in BACKENDS:
        got = contraction.scale_product(backend(qa, qb), ea, eb)
        assert (p.bits(got) == p.bits(reference)).all(), backend.__name__


@pytest.mark.parametrize(
    "shape", [(1, 1, 64), (63, 5, 512), (65, 700, 64), (30, 9, 2048), (40, 9, 2049), (130, 80, 4096)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_put_together_by_rows_has_every_bit(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int], transposed: bool
) -> None:
    monkeypatch.setattr(blocks, "_BLOCK", 640)
    monkeypatch.setattr(backends, "processor_multiplies_int8", lambda: True)
    qa, ea = _quantised((shape[0], shape[2]), 18)
    qb, eb = _quantised((shape[1], shape[2]), 19)
    qa[0], qb[0], ea[-1] = 8192, -8192, 129
    reference = contraction.scale_product(backends.integer_product_int64(qa, qb), ea, eb)
    if transposed:
        qa, qb = qa.t().contiguous().t(), qb.t().contiguous().t()
    got = contraction.product_of_quantised(qa, ea, qb, eb)
    assert backends.prefers_int8(qa) and (p.bits(got) == p.bits(reference)).all()
    assert torch.isnan(got[-1]).all()


def test_batched_product_backends_agree_on_every_bit() -> None:
    qa, _ = _quantised((2, 3, 9, 40), 7)
    qb, _ = _quantised((2, 3, 11, 40), 8)
    reference = backends.integer_product_int64(qa, qb)
    for backend in BACKENDS:
        assert torch.equal(backend(qa, qb) + 0.0, reference + 0.0), backend.__name__


def test_split_fits_int8_for_every_quantised_value() -> None:
    q = torch.arange(-8192, 8193, dtype=torch.int16)
    high, low, total = (part.to(torch.int32) for part in backends.split(q))
    assert torch.equal(128 * high + low, q.to(torch.int32))
    assert torch.equal(high + low, total)


def test_sum_and_product_do_not_depend_on_order() -> None:
    x = p.tensor(rows(4096, 12, seed=9))
    q, e = _quantised((20, 4096), 10)
    total, product = REFERENCE["sum"](x), REFERENCE["product"](q, e, q, e)
    for seed in range(4):
        order = torch.from_numpy(np.random.default_rng(seed).permutation(4096))
        assert (p.bits(REFERENCE["sum"](x[:, order])) == p.bits(total)).all()
        assert (p.bits(REFERENCE["product"](q[:, order], e, q[:, order], e)) == p.bits(product)).all()


def test_thread_count_and_batch_split_do_not_change_bits() -> None:
    x = p.tensor(rows(2000, 96, seed=11))
    e = REFERENCE["exponent"](x)
    q = REFERENCE["quantise"](x, e)
    idx = torch.from_numpy(np.random.default_rng(12).integers(-2, 40, 2000).astype(np.int32))

    def everything(part: slice) -> list[np.ndarray]:
        results = [REFERENCE["sum"](x[part]), REFERENCE["product"](q[part], e[part], q, e)]
        results += [contraction.scale_product(backends.integer_product_int8(q[part], q), e[part], e)]
        results += [REFERENCE["scatter_sum"](x[part], idx, V=37)]
        return [p.bits(result) for result in results]

    whole = everything(slice(None))
    halves = [
        np.concatenate(pair) for pair in zip(everything(slice(0, 41)), everything(slice(41, 96)), strict=True)
    ]
    torch.set_num_threads(2)
    threaded = everything(slice(None))
    for one, two, three in zip(whole, halves, threaded, strict=True):
        assert (one == two).all()
        assert (one == three).all()


@pytest.mark.parametrize("length", [1, 9, 64])
def test_scatter_sum_equals_the_model(length: int) -> None:
    x = rows(length, 40, seed=13)
    size = 11
    idx = np.random.default_rng(14).integers(-2, size + 2, length).astype(np.int32)
    want = [
        p.by_model("scatter_sum", row, idx.tolist(), v=v, V=size) for row in as_rows(x) for v in range(size)
    ]
    p.assert_same(REFERENCE["scatter_sum"](p.tensor(x), torch.from_numpy(idx), V=size), want)


def test_scatter_sum_by_a_rows_own_index_equals_the_model() -> None:
    generator = np.random.default_rng(4)
    x = generator.permutation(p.unary(seed=12))[: 40 * 33].reshape(40, 33)
    x[::2] = x[::2] & 0xBFFFFFFF | 0x20000000  # every other row is finite
    idx = generator.integers(-2, 9, x.shape).astype(np.int32)
    want = [
        p.by_model("scatter_sum", [int(v) for v in row], at.tolist(), v=v, V=7)
        for row, at in zip(x, idx, strict=True)
        for v in range(7)
    ]
    assert p.NAN in want and len({*want}) > 100
    got = REFERENCE["scatter_sum"](p.tensor(x), torch.from_numpy(idx), V=7)
    p.assert_same(got.reshape(-1), want)


def test_scatter_sum_does_not_depend_on_order() -> None:
    x = p.tensor(rows(3000, 8, seed=15))
    idx = torch.from_numpy(np.random.default_rng(16).integers(0, 50, 3000).astype(np.int32))
    order = torch.from_numpy(np.random.default_rng(17).permutation(3000))
    first = REFERENCE["scatter_sum"](x, idx, V=50)
    assert (p.bits(first) == p.bits(REFERENCE["scatter_sum"](x[:, order], idx[order], V=50))).all()


F32 = {"inf": 0x7F800000, "-inf": 0xFF800000, "nan": p.NAN, "1": 0x3F800000, "0": 0, "-0": 0x80000000}


@pytest.mark.parametrize(
    ("op", "row", "want"),
    [
        ("sum", ["inf", "1"], "inf"),
        ("sum", ["-inf", "1", "-inf"], "-inf"),
        ("sum", ["inf", "-inf"], "nan"),
        ("sum", ["inf", "nan"], "nan"),
        ("sum", ["-0", "-0"], "0"),
        ("amax", ["-0", "-0"], "0"),
        ("amax", ["-inf", "-inf"], "-inf"),
        ("amax", ["inf", "nan"], "nan"),
    ],
)
def test_special_row(op: str, row: list[str], want: str) -> None:
    x = np.array([[F32[name] for name in row]], dtype=np.uint32)
    assert p.bits(REFERENCE[op](p.tensor(x)))[0] == F32[want]
    assert p.by_model(op, as_rows(x)[0]) == F32[want]


def test_infinite_operand_poisons_its_row_of_the_product_only() -> None:
    x = torch.tensor([[1.0, float("inf")], [2.0, 4.0]])
    e = REFERENCE["exponent"](x)
    q = REFERENCE["quantise"](x, e)
    out = REFERENCE["product"](q, e, q, e)
    assert e.tolist() == [129, 3]
    assert torch.isnan(out).tolist() == [[True, True], [True, False]]
    assert out[1, 1] == 20.0


def test_reduction_longer_than_the_fan_in_bound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"outside 1\.\.4096"):
        REFERENCE["sum"](torch.zeros(4097))


def test_argmax_takes_the_first_maximum_and_the_first_nan() -> None:
    nan = float("nan")
    x = torch.tensor([[1.0, 3.0, 3.0], [0.0, -0.0, -1.0], [5.0, nan, nan], [-0.0, 0.0, 0.0]])
    assert REFERENCE["argmax"](x).tolist() == [1, 0, 1, 0]


def test_take_and_pick_clamp_their_index() -> None:
    table = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    idx = torch.tensor([[-(2**31), 0], [1, 2**31 - 1]], dtype=torch.int32)
    taken = REFERENCE["take"](table, idx)
    assert taken.shape == (2, 2, 2)
    assert taken.tolist() == [[p.by_model("take", table.tolist(), int(i)) for i in line] for line in idx]
    picked = REFERENCE["pick"](table, torch.tensor([-1, 1, 9], dtype=torch.int32))
    assert picked.tolist() == [1.0, 4.0, 6.0]


def test_quantising_loses_up_to_the_bound_that_the_document_states() -> None:
    """2^-13 of a row's largest magnitude, reached where that is a power of two; 2^-14 of 2^e always."""
    x = torch.cat([torch.tensor([[1.0, 2.0**-13]]), torch.rand((4096, 2)) * 2 - 1])
    e = contraction.exponent(x)
    unit = torch.exp2(e.double() - 13).unsqueeze(-1)
    lost = (contraction.quantise(x, e).double() * unit - x.double()).abs().amax(-1)
    largest = x.double().abs().amax(-1)
    assert float(lost[0] / largest[0]) == 2.0**-13
    assert bool((lost <= 2.0**-13 * largest).all()) and bool((lost <= unit.squeeze(-1) / 2).all())

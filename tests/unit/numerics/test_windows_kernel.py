"""The compiled kernel's sums are exact on any view, and a kernel whose sums are not is never used."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from assay.numerics import windows_kernel
from assay.numerics.backends import integer_product_int64
from assay.numerics.windows_kernel import Dims, Kernel, Unusable, strided, view
from tests.marked import long
from tests.unit.planting import UNOPTIMISED, planted

SOURCE = Path(windows_kernel.__file__).with_suffix(".c")


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return windows_kernel.build(SOURCE)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def _numbers(count: int, seed: int) -> Tensor:
    """Over the whole range, half of them at its ends."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randint(-8192, 8193, (count,), generator=generator)
    ends = torch.randint(0, 4, (count,), generator=generator)
    return torch.where(ends < 2, q, torch.where(ends == 2, 8192, -8192)).to(torch.int16)


def _exact(kernel: Kernel, a: Tensor, a_view: tuple[int, ...], b: Tensor, b_view: tuple[int, ...]) -> None:
    left, right = strided(a, a_view), strided(b, b_view)
    fa = 2.0 ** -torch.arange(prod(left.shape[:2])).remainder(9).view(left.shape[:2]).to(torch.float64)
    fb = 2.0 ** torch.arange(prod(right.shape[:2])).remainder(7).view(right.shape[:2]).to(torch.float64)
    wanted = integer_product_int64(left, right) * fa.unsqueeze(-1) * fb.unsqueeze(-2)
    assert torch.equal(kernel.product(a, a_view, fa, b, b_view, fb), wanted.to(torch.float32))


def _reach(*parts: Dims) -> int:
    return 1 + sum((n - 1) * s for sizes, strides in parts for n, s in zip(sizes, strides, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_sums_over_any_view_are_exact(kernel: Kernel, seed: int) -> None:
    """Dimensions of any sizes in any order in memory, some of them overlapping."""
    random = Random(seed)
    torch.set_num_threads(random.choice([1, 2, 3]))
    batch, inner = random.choice([(1,), (3,), (2, 2)]), random.choice([(1,), (3, 5), (4, 2, 8), (200,)])
    operands: list[tuple[Tensor, tuple[int, ...]]] = []
    for side in range(2):
        rows = random.choice([(1,), (7,), (4, 16), (3, 32), (100,), (5, 4, 3)])
        sizes = (*batch, *rows, *inner)
        strides, step = [0] * len(sizes), random.choice([1, 1, 2])
        for d in random.choice([range(len(sizes))[::-1], random.sample(range(len(sizes)), len(sizes))]):
            strides[d] = step
            step *= random.choice([max(1, sizes[d] - 1), sizes[d], sizes[d] + 1])
        cut, end = len(batch), len(batch) + len(rows)
        parts = [(sizes[i:j], tuple(strides[i:j])) for i, j in ((0, cut), (cut, end), (end, len(sizes)))]
        offset = random.choice([0, 5])
        operands.append((_numbers(offset + _reach(*parts), 2 * seed + side), view(offset, *parts)))
    (a, a_view), (b, b_view) = operands
    _exact(kernel, a, a_view, b, b_view)


@pytest.mark.parametrize("turned", [False, True])
def test_the_largest_sums_do_not_overflow(kernel: Kernel, turned: bool) -> None:
    length, rows = 4096, 33
    most = torch.full((rows * length,), 8192, dtype=torch.int16)
    strides = ((1,), (rows,)) if turned else ((length,), (1,))
    whole = view(0, ((1,), (1,)), ((rows,), strides[0]), ((length,), strides[1]))
    for other in (most, -most):
        _exact(kernel, most, whole, other, whole)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("((1 << 18) - 1)", "((1 << 20) - 1)"),
        long("count && most <= LIMIT &&", "count &&"),
        long(
            "(float)(sums[i - start] * t->row_factors[row + r] * t->column_factors[i]);\n        else",
            "0;\n else",
        ),
        long("b ? b[rows[r]] : 0", "a[rows[r]]"),
        long("t->x_count - t->step - least", "t->x_count - least - count"),
    ],
)
def test_a_kernel_with_other_sums_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    with pytest.raises(Unusable, match="other sums"):
        windows_kernel.build(planted(tmp_path, SOURCE, right, wrong), UNOPTIMISED)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("v < -8192 ? -8192 : v", "v"),
        long("if (e >= 129) {", "if (e > 129) {"),
        long("rintf(", "roundf("),
        long("digits[d] - before[d]", "digits[d] - after[d]"),
    ],
)
def test_a_kernel_that_quantises_otherwise_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    with pytest.raises(Unusable, match="quantises otherwise"):
        windows_kernel.build(planted(tmp_path, SOURCE, right, wrong), UNOPTIMISED)


def test_a_source_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="refuses"):
        windows_kernel.build(
            planted(tmp_path, SOURCE, "#include <stdlib.h>", "#include <nothing.h>"), UNOPTIMISED
        )


@pytest.mark.long
def test_without_a_fault_it_is_not_refused(tmp_path: Path) -> None:
    assert windows_kernel.build(planted(tmp_path, SOURCE, "((1 << 18) - 1)", "((1 << 18) - 1)"), UNOPTIMISED)


@pytest.mark.parametrize(
    "asked",
    [
        "malloc(count * sizeof *own->pairs)",
        long("malloc(ROWS * vectors * LANES * sizeof(double))"),
        long("malloc((2 * batch + rows + w_count + 2 * inner + 2 * pairs + 1) * sizeof *numbers)"),
        long("malloc(4 * padded * pairs)"),
        long("malloc(padded * sizeof *sums)"),
        long("malloc(((rows > padded ? rows : padded) / LANES + 1) * sizeof *groups)"),
    ],
)
def test_where_memory_is_refused_nothing_is_computed(tmp_path: Path, asked: str) -> None:
    with pytest.raises(MemoryError, match="no room to pack a product"):
        windows_kernel.build(planted(tmp_path, SOURCE, asked, "NULL"), UNOPTIMISED)

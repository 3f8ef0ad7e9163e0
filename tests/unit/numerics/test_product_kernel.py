"""The compiled kernel's products have the definition's bits; one whose products have not is never used."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.numerics import contraction, fused, product_kernel
from assay.numerics.fused import Exponents, Unquantised
from assay.numerics.hard_products import hard_pairs, same, wanted
from assay.numerics.native import ARITHMETIC_FLAGS
from assay.numerics.product_kernel import Kernel, Unusable
from tests.marked import long
from tests.unit.planting import UNOPTIMISED, planted

SOURCE = Path(product_kernel.__file__).with_suffix(".c")
TILES = SOURCE.with_name("product_amx.c")
SHIM = (*ARITHMETIC_FLAGS, "-DSHIM")
"""Tiles in plain C, so that any processor with AVX-512 runs the kernel of AMX."""

with_avx512 = pytest.mark.skipif(
    not torch.cpu.get_capabilities().get("avx512_bw"), reason="what is beside tiles needs AVX-512"
)


@pytest.fixture(scope="module", params=["pairs", pytest.param("tiles", marks=with_avx512)])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    if request.param == "tiles":
        return product_kernel.build_tiles(flags=SHIM)
    return product_kernel.build(SOURCE)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def _bits(x: Tensor) -> Tensor:
    return torch.where(torch.isnan(x), torch.tensor(float("nan")), x).view(torch.int32)


def _wanted(x: Tensor, ex: Tensor, y: Tensor, ey: Tensor) -> Tensor:
    return contraction.product(contraction.quantise(x, ex), ex, contraction.quantise(y, ey), ey)


def _operand(random: Random, batch: tuple[int, ...], rows: int, length: int) -> Tensor:
    """Numbers of some kind in some order in memory, a part of a larger tensor or all of it."""
    shape = (*batch, rows, length)
    order = random.choice([range(len(shape)), random.sample(range(len(shape)), len(shape))])
    around = [shape[d] + random.choice([0, 0, 1, 5]) for d in order]
    generator = torch.Generator().manual_seed(random.randrange(1 << 30))
    x = torch.randn(around, generator=generator)
    x = random.choice([x, x.sign(), x**5, torch.ones_like(x), x * 2.0**-140])
    x = x.permute([list(order).index(d) for d in range(len(shape))])
    x = x[tuple(slice(0, n) for n in shape)]
    if random.random() < 0.2:
        x = x[..., :1, :].expand(shape)
    return x


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted as Linux shows them")
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_wake_the_threads_that_there_are(batch: tuple[int, ...]) -> None:
    kernel = product_kernel.build(SOURCE)
    x, y = torch.ones(*batch, 120, 512), torch.ones(*batch, 120, 512)
    e = torch.ones(*batch, 120, dtype=torch.int32)
    before, seen = set(os.listdir("/proc/self/task")), set[str]()
    with ThreadPoolExecutor(1) as caller:
        done = caller.submit(lambda: [kernel.product(x, e, y, e, 2) for _ in range(100)])
        while not done.done():
            seen.update(os.listdir("/proc/self/task"))
    assert len(seen - before) == 2, "the caller, and one more for all products"


@pytest.mark.parametrize("seed", range(80))
def test_products_have_the_definition_s_bits(kernel: Kernel, seed: int) -> None:
    random = Random(seed)
    batch = random.choice([(), (), (3,), (2, 3)])
    length = random.choice([1, 2, 15, 16, 17, 100, 512, 1500])
    torch.set_num_threads(random.choice([1, 2, 3]))
    sides, own = list[Tensor](), list[Tensor]()
    for _ in range(2):
        x = _operand(random, batch, random.choice([1, 4, 12, 13, 32, 33, 100]), length)
        own.append(contraction.exponent(x).to(torch.int32))
        away = torch.tensor([random.choice([0, 0, 0, 1, -3, 200, -200]) for _ in range(own[-1].numel())])
        sides += [x, own[-1] + away.view(own[-1].shape).to(torch.int32)]
    x, ex, y, ey = sides
    assert torch.equal(_bits(_wanted(x, ex, y, ey)), _bits(kernel.product(x, ex, y, ey)))
    assert torch.equal(_bits(_wanted(x, own[0], y, own[1])), _bits(kernel.product(x, None, y, None)))
    assert torch.equal(_bits(_wanted(x, own[0], y, ey)), _bits(kernel.product(x, None, y, ey)))


@pytest.mark.parametrize("apart", [False, True])
def test_a_row_s_own_exponent_is_that_of_its_largest_number(kernel: Kernel, apart: bool) -> None:
    """Wherever it lies, and whether it is subnormal, the largest, Inf or NaN."""
    largest = [0.0, 1e-45, -(2.0**-126), 1.0, -3.4e38, float("inf"), -float("inf"), float("nan")]
    x = torch.zeros(len(largest) * 5, 40)
    for row in range(len(x)):
        x[row, row * 7 % 40] = largest[row % len(largest)]
    y = torch.randn(20, 40)
    y[3, 5] = float("nan")
    lying = x.t().contiguous().t() if apart else x
    wanted = _wanted(x, contraction.exponent(x), y, contraction.exponent(y))
    assert 0 < wanted.isnan().sum() < wanted.numel()
    assert torch.equal(_bits(wanted), _bits(kernel.product(lying, None, y, None)))


def test_exponents_may_lie_in_any_order(kernel: Kernel) -> None:
    """A copy of them has to live as long as the call."""
    x, y = torch.randn(2, 600, 20), torch.randn(2, 500, 20)
    for ex in (torch.tensor(3, dtype=torch.int32), torch.arange(600, dtype=torch.int32) % 7):
        alike = ex.expand(2, 600)
        turned = (torch.arange(1000, dtype=torch.int32) % 5).view(500, 2).t()
        wanted = _wanted(x, alike, y, turned)
        assert torch.equal(_bits(wanted), _bits(kernel.product(x, alike, y, turned)))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_sums_do_not_overflow(kernel: Kernel, sign: float) -> None:
    """Also where only the end of a row is large, in one row of many, or the lengths of both rows differ."""
    length = 4096
    late = torch.zeros(40, length)
    late[33, length // 2 :] = 1.0
    alternating = torch.ones(5, length)
    alternating[:, 1::2] = 0.25
    for x in (torch.ones(3, length), late, alternating):
        for y in (sign * torch.ones(35, length), sign * late, sign * alternating):
            e = [torch.zeros(len(z), dtype=torch.int32) for z in (x, y)]
            made = kernel.product(x, e[0], y, e[1])
            assert torch.equal(_bits(_wanted(x, e[0], y, e[1])), _bits(made))
            assert made.abs().max() > 200


IN_VECTORS = [
    ("number = _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q)", "number = 0xffff"),
    ("_mm512_set1_ps(-8192)", "_mm512_set1_ps(-8193)"),
    ("_mm512_set1_ps(12582912)", "_mm512_set1_ps(12582913)"),
    ("there = ROW_MASK(rows)", "there = ROW_MASK(rows - 1)"),
    ("there = ROW_MASK(count)", "there = ROW_MASK(count - 1)"),
    ("_mm512_slli_epi32(high, 16)", "_mm512_slli_epi32(low, 16)"),
    ("_mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15)", "_mm512_setr_epi64(2, 3, 10, 11, 6, 7, 15, 14)"),
    ("mask_storeu_epi32(squares, written, sum)", "mask_storeu_epi32(squares, 0, sum)"),
]
"""Faults where f32 is packed by vectors of 16; other processors do not compile that."""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        *(long(*each) for each in IN_VECTORS if torch.cpu.get_capabilities().get("avx512_bw")),
        ("#define LIMIT 0x1p62", "#define LIMIT 0x1p64"),
        long("rintf(v == v ? v : 0)", "rintf(v == v ? v : 1)"),
        long("e >= 129 ? NAN : made.value", "made.value"),
        long("i % 2 ? one * 65536 : one & 0xffff", "one & 0xffff"),
        long("rows = rows < HIGH ? rows : HIGH;", "rows = rows < HIGH ? rows - 1 : HIGH;"),
        ("most = size > most ? size : most;", "most = size;"),
        long("e[r] = size > e[r] ? size : e[r];", "e[r] = size;"),
        long("field == 255 ? 129", "field == 254 ? 129"),
    ],
)
def test_a_kernel_with_other_products_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    with pytest.raises(Unusable, match="other products"):
        product_kernel.build(planted(tmp_path, SOURCE, right, wrong), UNOPTIMISED)


IN_TILES = [
    ("_mm512_set1_ps(12582912.0f + 64.0f)", "_mm512_set1_ps(12582912.0f + 63.0f)"),
    ("static const int ORDER[4] = {0, 2, 1, 3};", "static const int ORDER[4] = {0, 1, 2, 3};"),
    ("least + low >= -100", "least + low >= -1000"),
    ("xs->most[i] <= 102", "xs->most[i] <= 1000"),
    ("_mm512_set1_epi32(16384)", "_mm512_set1_epi32(-1)"),
    ("_mm512_set1_epi32(16383)", "_mm512_set1_epi32(8191)"),
    ("int single = 13 - least <= 127;", "int single = 13 - least <= 1000;"),
    ("    store_last(&st);", "    st.unstored = NULL;"),
    (
        "s.low = _mm512_sub_epi8(_mm512_and_si512(low, _mm512_set1_epi8(127)), _mm512_set1_epi8(64));",
        "s.low = low;",
    ),
    ("sum += (uint32_t)((int8_t)shim_tile[a][m][k]", "sum += (uint32_t)((uint8_t)shim_tile[a][m][k]"),
]
"""Faults in the kernel of AMX, where they lie in what every processor compiles."""


@with_avx512
@pytest.mark.long
@pytest.mark.parametrize(("right", "wrong"), IN_TILES)
def test_a_kernel_of_tiles_with_other_products_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    with pytest.raises(Unusable, match="other products"):
        product_kernel.build_tiles(planted(tmp_path, TILES, right, wrong), (*UNOPTIMISED, "-DSHIM"))


@with_avx512
def test_tiles_that_the_processor_would_refuse_end_the_process(tmp_path: Path) -> None:
    source = planted(tmp_path, TILES, "c.rows[i] = 16;", "c.rows[i] = 15;")
    build = f"product_kernel.build_tiles(Path({str(source)!r}), {(*UNOPTIMISED, '-DSHIM')!r})"
    command = f"from pathlib import Path; from assay.numerics import product_kernel; {build}"
    assert subprocess.run([sys.executable, "-c", command], capture_output=True).returncode < 0


def test_tiles_make_large_products_and_the_other_kernel_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[tuple[int, ...]]()

    class Tiles:
        def product(
            self, x: Tensor, ex: Tensor | None, y: Tensor, ey: Tensor | None, threads: int | None
        ) -> Tensor:
            made.append((*x.shape, len(y)))
            return torch.zeros(len(x), len(y))

    monkeypatch.setattr(product_kernel, "processor_flags", lambda: "flags : avx512bw amx_int8")
    monkeypatch.setattr(product_kernel, "build_tiles", Tiles)
    best = product_kernel._best()
    for shape in ((31, 64), (32, 47), (32, 48), (64, 4096), (64, 4097)):
        x = torch.ones(shape)
        e = torch.ones(len(x), dtype=torch.int32)
        best.product(x, e, x[:1], e[:1], 1)  # several threads would be compared first
    assert made == [(32, 48, 1), (64, 4096, 1)]


@pytest.mark.parametrize(("flags", "why"), [("amx_int8", "not let"), ("avx512bw", None)])
def test_without_tiles_the_other_kernel_makes_all_products(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, flags: str, why: str | None
) -> None:
    def refused() -> Kernel:
        raise Unusable("the system does not let this process use AMX tiles")

    monkeypatch.setattr(product_kernel, "processor_flags", lambda: f"flags : {flags}")
    monkeypatch.setattr(product_kernel, "build_tiles", refused)
    assert product_kernel._best().tiles is None
    assert ("without AMX, on this machine: the system does not let" in caplog.text) == (why is not None)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="only GCC is asked")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is of x86-64")
def test_the_real_instructions_compile(tmp_path: Path) -> None:
    """They run on no processor at hand; their bits are compared when the kernel is loaded on one that has
    them."""
    target = tmp_path / "tiles.s"
    flags = ["-O3", "-std=gnu11", "-fPIC", "-S", "-ffp-contract=off", "-fopenmp", "-march=sapphirerapids"]
    subprocess.run(["gcc", *flags, "-o", str(target), str(TILES)], check=True)
    text = target.read_text()
    assert all(
        text.count(name) for name in ("tdpbssd", "tileloaddt1", "tilestored", "ldtilecfg", "tilerelease")
    )


@pytest.mark.long
def test_threads_that_give_other_products_are_done_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "a->panels * t / threads + (threads == 1) * a->panels"
    source = planted(tmp_path, SOURCE, "a->panels * (t + 1) / threads", wrong)
    faulty = product_kernel.build(source, UNOPTIMISED)
    assert faulty._several is None, "one thread is right, and several were not asked for"

    def right() -> list[bool]:
        given = [pair for shape in product_kernel._SHAPES for pair in hard_pairs(*shape)]
        return [same(wanted(*pair), faulty.product(*pair, 2)) for pair in given]

    assert all(right())
    assert faulty._several is False and "products use one thread on this machine" in caplog.text
    faulty._several = True
    assert not all(right()), "the fault was planted"


@pytest.mark.long
def test_several_threads_are_compared_once_and_then_used(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, compared = product_kernel.build(SOURCE), list[int]()
    check = product_kernel._check

    def counted(*given: Any) -> None:
        compared.append(given[-1])
        check(*given)

    monkeypatch.setattr(product_kernel, "_check", counted)
    x = torch.randn(20, 64)
    ex = contraction.exponent(x).to(torch.int32)
    first = fresh.product(x, ex, x, ex, 1)
    assert compared == [] and fresh._several is None
    for _ in range(3):
        assert torch.equal(fresh.product(x, ex, x, ex, 2), first)
    assert compared == [2, 2, 2] and fresh._several is True


@pytest.mark.long
def test_without_a_fault_it_is_not_refused(tmp_path: Path) -> None:
    assert product_kernel.build(
        planted(tmp_path, SOURCE, "#define LIMIT 0x1p62", "#define LIMIT 0x1p62"), UNOPTIMISED
    )


@pytest.mark.parametrize(
    "asked",
    [
        "aligned_alloc(64, (size + 63) / 64 * 64)",
        long("malloc((a.grains + 1) * sizeof *cuts)"),
        long("calloc(a.panels * HIGH + b.panels * WIDE, sizeof *sums)"),
    ],
)
def test_where_memory_is_refused_nothing_is_computed(tmp_path: Path, asked: str) -> None:
    with pytest.raises(MemoryError, match="no room to pack a product"):
        product_kernel.build(planted(tmp_path, SOURCE, asked, "NULL"), UNOPTIMISED)


def test_the_operation_has_the_same_bits_with_and_without_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(2, 9, 40), torch.randn(2, 5, 40)
    x[0, 3, 4] = float("inf")
    ex, ey = (Exponents(contraction.exponent(z).to(torch.int32), own=True) for z in (x, y))
    wanted = _wanted(x, ex.i32, y, ey.i32)
    assert wanted.isnan().sum() == 5
    for load in (product_kernel.load, lambda: None):
        monkeypatch.setattr(product_kernel, "load", load)
        for own in (False, True):
            made = fused.product_of_unquantised(Unquantised(x, ex, own), Unquantised(y, ey, own))
            assert torch.equal(_bits(made), _bits(wanted))

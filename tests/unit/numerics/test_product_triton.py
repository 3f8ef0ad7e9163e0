"""The GPU's kernel has the definition's bits, by Triton's interpreter; one that has not is never used."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.numerics import contraction, fast, product_triton
from assay.numerics.hard_products import hard_pairs, same, wanted
from assay.numerics.native import Unusable
from assay.numerics.product_triton import TILES, Kernel, Tile, tile_for
from tests.unit.numerics.triton_cases import EVERY
from tests.unit.planting import planted

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(product_triton.__file__).with_name("triton_kernel.py")
interpreted_only = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="`make kernels` installs Triton and runs these"
)


def interpreted(case: str, *arguments: object) -> str:
    """What a case says when Triton interprets."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.numerics.triton_cases", case]
    inherited = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": inherited},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@interpreted_only
@pytest.mark.parametrize("tile", range(len(EVERY)))
def test_every_tile_has_the_definition_s_bits(tile: int) -> None:
    assert interpreted("checked", SOURCE, tile, "exact") == "right"


@interpreted_only
@pytest.mark.slow
@pytest.mark.parametrize("tile", range(len(EVERY)))
def test_every_tile_has_them_for_the_longest_rows(tile: int) -> None:
    assert interpreted("checked", SOURCE, tile, "wide") == "right"


@interpreted_only
def test_sums_at_the_edges_of_what_numbers_hold() -> None:
    assert interpreted("found", SOURCE) == "right"


@interpreted_only
@pytest.mark.parametrize("seed", range(6))
def test_every_layout_and_size_class(seed: int) -> None:
    assert interpreted("layouts", SOURCE, seed) == "right"


@interpreted_only
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("both + 127 * high - low", "both + 128 * high - low"),
        ("(middle + 2048) >> 12", "(middle + 2047) >> 13"),
        ("(both - high - low).to", "(both - high + low).to"),
        ("tl.minimum(tl.maximum(ea, -125), 129)", "tl.minimum(ea, 129)"),
        ("(least_a + least_b >= -100)", "(least_a + least_b >= -250)"),
        ("(least_a >= -110) & (least_b >= -110) & ", ""),
        ("tl.max(ea, 0) <= 60", "tl.max(ea, 0) <= 200"),
        ("tl.where(poisoned, ", "tl.where(poisoned & False, "),
        ("tl.minimum(n, N - 1)[:, None] * K", "tl.minimum(n, N - 2)[:, None] * K"),
        ("(k < K - start)[None, :]", "(k < K - start - 1)[None, :]"),
        ("batch * N * K", "batch * M * K"),
        ("out + batch * M * N", "out + batch * N * N"),
        ("within // height * BLOCK_N", "within // GROUP * BLOCK_N"),
    ],
)
def test_a_kernel_with_other_products_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    """By the check at its first use, or by the edges above."""
    source = planted(tmp_path, SOURCE, right, wrong)
    assert interpreted("found", source) != "right"


class _Wrong:
    """A kernel whose products are another's, as a module that was loaded."""

    FAULTS = (ZeroDivisionError,)

    def __init__(self, makes: str) -> None:
        self._makes = makes

    def product(self, *given: Tensor) -> Tensor:
        raise AssertionError("the launcher is replaced")


def planted_kernel(monkeypatch: pytest.MonkeyPatch, fault: str) -> Kernel:
    """A kernel by PyTorch: right, with one bit wrong, or that cannot be compiled."""
    kernel = Kernel(_Wrong(fault))  # type: ignore[arg-type]

    def product(a: object, ea: Tensor, b: object, eb: Tensor, length: int, tile: Tile) -> Tensor:
        if fault == "refused":
            raise ZeroDivisionError("out of registers")
        monkeypatch.setattr(product_triton, "load", lambda: None)
        made = fast.product_of_parts(a, ea, b, eb, length)  # type: ignore[arg-type]
        if fault == "bit":
            made.view(torch.int32).view(-1)[-1] ^= 1
        return made

    monkeypatch.setattr(kernel, "product", product)
    return kernel


@pytest.mark.parametrize(
    ("fault", "said"),
    [("", ""), ("bit", "the kernel gives other products"), ("refused", "Triton refuses the kernel: out of")],
)
def test_what_the_check_says_of_a_kernel(monkeypatch: pytest.MonkeyPatch, fault: str, said: str) -> None:
    kernel = planted_kernel(monkeypatch, fault)
    if said:
        with pytest.raises(Unusable, match=said):
            product_triton.check(kernel, EVERY[0], True, torch.device("cpu"))
    else:
        product_triton.check(kernel, EVERY[0], True, torch.device("cpu"))


def test_a_kernel_that_fails_the_check_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = planted_kernel(monkeypatch, "bit")
    with caplog.at_level(logging.WARNING):
        assert not product_triton._trusted(kernel, EVERY[0], True, torch.device("cpu"))
    assert "products take longer, by cuBLAS, on cpu: the kernel gives other products" in caplog.text


def test_without_triton_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(
        Unusable, match=r"Triton cannot be imported .* install the one that PyTorch for CUDA needs"
    ):
        product_triton.build(SOURCE)


@pytest.mark.parametrize(
    ("rows", "others", "length"), [(1, 70, 300), (17, 33, 64), (40, 9, 131), (24, 24, 8)]
)
def test_products_of_parts_without_the_kernel_have_the_definition_s_bits(
    rows: int, others: int, length: int
) -> None:
    for x, ex, y, ey in hard_pairs(rows, others, length):
        a, b = (product_triton.parts(contraction.quantise(z, e)) for z, e in ((x, ex), (y, ey)))
        assert same(wanted(x, ex, y, ey), fast.product_of_parts(a, ex, b, ey, length))


@pytest.mark.parametrize("from_shared", [True, False])
def test_tiles_keep_multiprocessors_busy(from_shared: bool) -> None:
    def chosen(m: int, n: int, batches: int = 1) -> tuple[int, int]:
        return tile_for(m, n, batches, from_shared=from_shared, processors=132)[:2]

    large, least = TILES[from_shared][0], TILES[from_shared][-1]
    assert chosen(8192, 8192) == large[:2]
    assert chosen(100, 50) == least[:2]
    assert chosen(768, 768) == (128, 64), "72 programs at a time, not 36 large ones"
    assert chosen(512, 64, 96)[1] == 64, "no half of a tile is thrown away"


def test_parts_are_padded_to_what_a_gpu_loads_at_once() -> None:
    q = torch.arange(-8192, 8193, 5, dtype=torch.int16).view(-1, 29)
    high, low, both = product_triton.parts(q)
    assert high.shape == (len(q), 32) and high.is_contiguous()
    assert torch.equal(high.to(torch.int16)[:, :29] * 128 + low[:, :29], q)
    assert torch.equal(high + low, both) and not both[:, 29:].any()

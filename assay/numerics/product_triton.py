"""Products on an accelerator: one Triton kernel a product, batches too, and only f32 is written to memory.

Contract: `product` gives the definition's bits (``numerics.contraction``): each way to cut a product is
compared with it on its device before its first use. None, with a warning, where Triton is missing or a
product differs. Not guaranteed: anything for parts that `parts` does not make; and speed, since tiles were
chosen by counting (docs/accelerators.md).

Source: docs/decisions/0013-accelerators.md.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.numerics import contraction
from assay.numerics.backends import split
from assay.numerics.hard_products import hard_pairs, same, wanted
from assay.numerics.native import Shared, Unusable

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("triton_kernel.py")
_BYTES = 16
"""Rows of parts are padded to a multiple of so many: a GPU loads that many at once."""
_EXACT_F32 = 4032
"""Up to this length a low sum and what is carried into it stay below 2^24, so that f32 holds it."""
_GROUP = 8
_PLACES = 1 << 31
Parts = Sequence[Tensor]
"""(hi, lo, hi + lo) of A51, int8 [b..., rows, K], K padded."""


class Tile(NamedTuple):
    """How one program of the kernel cuts a product."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    cost: float
    """Of a product of two numbers, beside the largest tile's: smaller ones read more shared memory."""


TILES = {
    True: (
        Tile(128, 128, 64, 8, 3, 1.0),
        Tile(128, 64, 64, 4, 3, 1.15),
        Tile(64, 64, 64, 4, 3, 1.4),
    ),
    False: (Tile(128, 64, 128, 8, 2, 1.0), Tile(64, 64, 64, 4, 3, 1.2)),
}
"""Whether operands are multiplied from shared memory (capabilities 9 and 10) or from registers, of which
three sums of 128 × 128 would leave too few."""


def tile_for(m: int, n: int, batches: int, *, from_shared: bool, processors: int) -> Tile:
    """The tile with which this many multiprocessors should be through first."""

    def cost(tile: Tile) -> float:
        programs = -(-m // tile.m) * -(-n // tile.n) * batches
        return -(-programs // processors) * tile.m * tile.n * tile.cost

    return min(TILES[from_shared], key=cost)


def padded(length: int) -> int:
    """The length of parts' rows."""
    return -(-length // _BYTES) * _BYTES


def parts(q: Tensor) -> Parts:
    """What the kernel takes of i16 [b..., rows, K], |q| <= 8192."""
    return split(pad(q, (0, padded(q.shape[-1]) - q.shape[-1])))


class Kernel:
    """``triton_kernel.py``, loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._product = module.product
        self.faults: tuple[type[Exception], ...] = module.FAULTS

    def product(self, a: Parts, ea: Tensor, b: Parts, eb: Tensor, length: int, tile: Tile) -> Tensor:
        """f32[b..., M, N] from parts of [b..., M, K] and [b..., N, K] and exponents i32 of their rows (A32).

        `length` is K before it was padded. Raises what Triton raises.
        """
        *batch, m, k = a[0].shape
        n = b[0].shape[-2]
        out = torch.empty((*batch, m, n), dtype=torch.float32, device=ea.device)
        grid = (-(-m // tile.m) * -(-n // tile.n), out.numel() // (m * n))
        given = [x.contiguous() for x in (*a, *b, ea, eb)]
        cut = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "GROUP": _GROUP}
        options = {"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": False}
        with torch.cuda.device_of(out):
            exact = length <= _EXACT_F32
            self._product[grid](*given, out, m, n, k, **cut, EXACT_F32=exact, **options)
        return out


def build(source: Path) -> Kernel:
    """Load a kernel; Triton compiles it later, for each tile. Raises Unusable."""
    spec = importlib.util.spec_from_file_location("assay_triton_kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise Unusable(
            f"Triton cannot be imported ({error}); install the one that PyTorch for CUDA needs"
        ) from error
    return Kernel(module)


def check(kernel: Kernel, tile: Tile, exact: bool, device: torch.device) -> None:
    """Raises Unusable unless products cut so are as A31 and A32 say. `exact`: whether they are short enough
    for f32."""
    rows, others, length = tile.m + 6, tile.n // 2 + 9, (tile.k + 9 if exact else _EXACT_F32 + 64)
    for x, ex, y, ey in hard_pairs(rows, others, length):
        a, b = (
            [part.to(device) for part in parts(contraction.quantise(z, e))] for z, e in ((x, ex), (y, ey))
        )
        try:
            made = kernel.product(a, ex.to(device), b, ey.to(device), length, tile).cpu()
        except kernel.faults as error:
            raise Unusable(f"Triton refuses the kernel: {str(error).strip().splitlines()[-1]}") from error
        if not same(wanted(x, ex, y, ey), made):
            raise Unusable(f"the kernel gives other products of {length} numbers on {device}")


def product(a: Parts, ea: Tensor, b: Parts, eb: Tensor, length: int) -> Tensor | None:
    """`Kernel.product` with the tile for the device and size; None where the kernel cannot be had, as on
    processors."""
    m, k, n = *a[0].shape[-2:], b[0].shape[-2]
    if ea.device.type != "cuda" or max(m * k, n * k, m * n) >= _PLACES:
        return None
    kernel = load()
    if kernel is None:
        return None
    from_shared, processors = _device(ea.device)
    batches = ea.numel() // m
    tile = tile_for(m, n, batches, from_shared=from_shared, processors=processors)
    if not _trusted(kernel, tile, length <= _EXACT_F32, ea.device):
        return None
    return kernel.product(a, ea, b, eb, length, tile)


def tiles_of(device: torch.device) -> tuple[Tile, ...]:
    """Every way in which products are cut on this GPU."""
    return TILES[_device(device)[0]]


@cache
def _device(device: torch.device) -> tuple[bool, int]:
    """(whether it multiplies from shared memory, its multiprocessors)."""
    found = torch.cuda.get_device_properties(device)
    return found.major in (9, 10), found.multi_processor_count


@cache
def _trusted(kernel: Kernel, tile: Tile, exact: bool, device: torch.device) -> bool:
    """Whether products cut so have been compared with the definition, and were right."""
    try:
        check(kernel, tile, exact, device)
    except Unusable as reason:
        log.warning("products take longer, by cuBLAS, on %s: %s", device, reason)
        return False
    return True


load = Shared(lambda: build(_SOURCE), "products take longer, by cuBLAS,")
"""The kernel, or None where it cannot be had."""

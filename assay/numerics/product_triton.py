"""Products on an accelerator: one Triton kernel per product, also for batches, that only writes f32 to
memory.

Contract: `product` gives the definition's bits (``numerics.contraction``): each tiling is compared with it on
its device before its first use, once for each version of everything that its machine code depends on. None,
noted in ``numerics.slow_paths``, if Triton is missing or a product differs. Not guaranteed: anything for
parts that `parts` does not make; and the fastest tile of each product, since few were timed.

Source: docs/decisions/0013-accelerators.md.
"""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from assay.numerics import contraction, slow_paths
from assay.numerics.backends import split
from assay.numerics.constants import MAX_FAN_IN
from assay.numerics.hard_products import hard_pairs, same, wanted
from assay.numerics.native import Shared, Unusable
from assay.numerics.verdicts import Verdict, compared, loaded, refused

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("triton_kernel.py")
_HOPPER_SOURCE = Path(__file__).with_name("gluon_kernel.py")
_BYTES = 16
"""Rows of parts are padded to a multiple of this many bytes: a GPU loads that many at once."""
_GROUP = 8
_PLACES = 1 << 31
_DRIVER = Path("/proc/driver/nvidia/version")
Parts = Sequence[Tensor]
"""(hi, lo) of A51, int8 [b..., rows, K], K padded."""


class Tile(NamedTuple):
    """Tiling of a product by one program of the kernel, and what it takes in relation to others."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    step: float
    """Time of `k` terms of the sums."""
    end: float = 0.0
    """Time of rounding and storing."""
    ragged: float = 0.0
    """Time that `end` takes more where N is no multiple of 16."""
    resident: int = 1
    """Programs that one multiprocessor runs at the same time."""


TILES = {
    9: (Tile(128, 128, 128, 8, 3, 1.47, 6.1), Tile(64, 64, 128, 4, 3, 0.76, 3.4, resident=2)),
    10: (
        Tile(128, 128, 64, 8, 3, 1.0),
        Tile(128, 64, 64, 4, 3, 0.575),
        Tile(64, 64, 64, 4, 3, 0.35),
    ),
    0: (Tile(128, 64, 128, 8, 2, 1.0), Tile(64, 64, 64, 4, 3, 0.3)),
}
"""By major compute capability; 0: any other. 9 and 10 multiply from shared memory, of which 10 takes one
stage more. Others multiply from registers, of which three sums of 128 × 128 would leave too few. Times of 9
are microseconds, fitted to eight products on an H200; others are counted."""
_BLACKWELL = (3, 8)
"""First Triton version that multiplies int8 from shared memory on capability 10."""


HOPPER = (Tile(128, 128, 128, 4, 3, 1.2, 4.0, 5.4), Tile(128, 64, 128, 4, 4, 0.6, 2.2, 3.1))
"""Tilings of ``gluon_kernel.py``, beside those of `TILES` where Triton has Gluon, on capability 9.0."""
_SECONDS = 300.0
"""Time for comparing one of these, which a process of its own makes: partitions that wait for each other
would never end."""


def tile_for(m: int, n: int, k: int, batches: int, *, tiles: Sequence[Tile], processors: int) -> Tile:
    """The tile with the least expected time on this many multiprocessors."""

    def cost(tile: Tile) -> float:
        programs = -(-m // tile.m) * -(-n // tile.n) * batches
        one = -(-k // tile.k) * tile.step + tile.end + (tile.ragged if n % 16 else 0.0)
        return -(-programs // (processors * tile.resident)) * one

    return min(tiles, key=cost)


def padded(length: int) -> int:
    """Padded row length of parts."""
    return -(-length // _BYTES) * _BYTES


def parts(q: Tensor) -> Parts:
    """Converts i16 [b..., rows, K], |q| <= 8192, to the kernel's input."""
    return split(pad(q, (0, padded(q.shape[-1]) - q.shape[-1])))[:2]


class Kernel:
    """``triton_kernel.py``, loaded, and ``gluon_kernel.py`` where Triton has Gluon."""

    def __init__(self, module: ModuleType, hopper: ModuleType | None = None) -> None:
        self._product = module.product
        self._short: int = module.SHORT_K
        self.hopper = hopper
        self.faults: tuple[type[Exception], ...] = module.FAULTS

    def product(self, a: Parts, ea: Tensor, b: Parts, eb: Tensor, tile: Tile, programs: int = 0) -> Tensor:
        """f32[b..., M, N] from parts of [b..., M, K] and [b..., N, K] and exponents i32 of their rows (A32).
        With a tile of `HOPPER`, at most so many programs, or one for each multiprocessor. Raises what Triton
        raises."""
        *batch, m, k = a[0].shape
        n = b[0].shape[-2]
        out = torch.empty((*batch, m, n), dtype=torch.float32, device=ea.device)
        tiles, batches = -(-m // tile.m) * -(-n // tile.n), out.numel() // (m * n)
        a, b, ea, eb = (
            [x.contiguous() for x in a],
            [x.contiguous() for x in b],
            ea.contiguous(),
            eb.contiguous(),
        )
        cut: dict[str, int] = {"GROUP": _GROUP, "SHORT": k <= self._short}
        cut |= {"num_warps": tile.warps, "enable_fp_fusion": False}
        with torch.cuda.device_of(out):
            if tile in HOPPER:
                assert self.hopper is not None
                grid = (min(tiles * batches, programs or _device(ea.device)[1]),)
                given = [*self.hopper.described(a, tile.m, tile.k), *self.hopper.described(b, tile.n, tile.k)]
                cut |= {"STAGES": tile.stages}
                self.hopper.product[grid](*given, ea, eb, out, m, n, k, batches, **cut)
            else:
                cut |= {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "num_stages": tile.stages}
                self._product[(tiles, batches)](*a, *b, ea, eb, out, m, n, k, **cut)
        return out


def build(source: Path) -> Kernel:
    """Loads the kernels; Triton compiles them later for each tile. Raises Unusable."""
    module = loaded(source)
    try:
        return Kernel(module, loaded(_HOPPER_SOURCE))
    except (Unusable, AttributeError):  # a Triton whose Gluon has other names
        return Kernel(module)


def check(kernel: Kernel, tile: Tile, device: torch.device, longest: int = MAX_FAN_IN) -> None:
    """Raises Unusable unless products with this tile agree with A31 and A32, for short rows and the longest,
    and for N that is a multiple of 16 or is not: each of the four has machine code of its own."""
    for length, others in itertools.product((tile.k + 9, longest), (tile.n // 2 + 9, tile.n + 16)):
        for x, ex, y, ey in hard_pairs(tile.m + 6, others, length):
            a, b = (
                [part.to(device) for part in parts(contraction.quantise(z, e))] for z, e in ((x, ex), (y, ey))
            )
            try:
                made = kernel.product(a, ex.to(device), b, ey.to(device), tile, programs=3).cpu()
            except kernel.faults as error:
                raise refused(error) from error
            if not same(wanted(x, ex, y, ey), made):
                raise Unusable(f"the kernel gives other products of {length} numbers on {device}")


def check_apart(tile: Tile, device: torch.device) -> None:
    """`check` of one of `HOPPER` by another process, which is ended after `_SECONDS`. Raises Unusable."""
    command = [sys.executable, "-W", "ignore", "-m", __name__, str(HOPPER.index(tile)), str(device)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"the kernel did not end within {_SECONDS:g} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"its comparison ended with {done.returncode}"]
        raise Unusable(said[0])


def product(a: Parts, ea: Tensor, b: Parts, eb: Tensor) -> Tensor | None:
    """`Kernel.product` with the tile for device and size; None if the kernel is unavailable, as on CPUs."""
    m, k, n = *a[0].shape[-2:], b[0].shape[-2]
    if ea.device.type != "cuda":
        return None
    if max(m * k, n * k, m * n) >= _PLACES:
        what = f"products of {m} x {n} x {k} numbers take longer, by cuBLAS"
        slow_paths.note(log, f"{what}: matrices are too large for the kernel")
        return None
    kernel = load()
    if kernel is None:
        return None
    tiles, processors = _device(ea.device)
    tiles = tuple(tile for tile in tiles if tile not in HOPPER or trusted(kernel, tile, ea.device))
    tile = tile_for(m, n, k, ea.numel() // m, tiles=tiles, processors=processors)
    return kernel.product(a, ea, b, eb, tile) if trusted(kernel, tile, ea.device) else None


def tiles_of(device: torch.device) -> tuple[Tile, ...]:
    """All tilings used on this GPU."""
    return _device(device)[0]


def versions(device: torch.device) -> list[str]:
    """Versions that affect a GPU's machine code besides its source: PyTorch, Triton, the driver, the GPU."""
    driver = _DRIVER.read_text().partition("\n")[0] if _DRIVER.exists() else ""
    return [torch.__version__, _triton(), driver, torch.cuda.get_device_name(device)]


def _triton() -> str:
    """Triton's version; empty if it is missing."""
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


@cache
def _device(device: torch.device) -> tuple[tuple[Tile, ...], int]:
    """(tilings of a device, number of its multiprocessors)."""
    found = torch.cuda.get_device_properties(device)
    tiles = TILES.get(found.major, TILES[0])
    if found.major == 10 and tuple(map(int, _triton().split(".")[:2])) < _BLACKWELL:
        said = f"Triton {_triton()} multiplies int8 as on capability 8; from 3.8 on it does not"
        slow_paths.note(log, f"products take longer on {device}: {said} (a newer PyTorch brings it)")
        tiles = TILES[0]
    kernel = load()
    if (found.major, found.minor) == (9, 0) and kernel is not None:
        if kernel.hopper is None:
            said = f"Triton {_triton()} has no Gluon, or one with other names"
            slow_paths.note(log, f"products take longer, by the kernel for other GPUs, on {device}: {said}")
        else:
            tiles = (*HOPPER, *tiles)
    return tiles, found.multi_processor_count


@cache
def trusted(kernel: Kernel, tile: Tile, device: torch.device) -> bool:
    """True if this tiling was compared with the definition, by this or an earlier process, and was right."""
    if tile in HOPPER:
        verdict = Verdict([*versions(device), tile], [_HOPPER_SOURCE, _SOURCE, Path(__file__)])
        without = f"products take longer, by the kernel for other GPUs, on {device}"
        return compared(verdict, partial(check_apart, tile, device), without)
    verdict = Verdict([*versions(device), tile], [_SOURCE, Path(__file__)])
    without = f"products take longer, by cuBLAS, on {device}"
    return compared(verdict, partial(check, kernel, tile, device), without)


load = Shared(lambda: build(_SOURCE), "products take longer, by cuBLAS,")
"""The kernel, or None if unavailable."""


def main() -> None:
    """Compares one of `HOPPER` on a device, for `check_apart`; says on stderr what is wrong."""
    number, device = sys.argv[1:]
    try:
        check(build(_SOURCE), HOPPER[int(number)], torch.device(device))
    except Unusable as reason:
        sys.exit(str(reason))


if __name__ == "__main__":
    main()

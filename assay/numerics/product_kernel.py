"""C kernels for products of quantised operands, or of f32 operands that they quantise while packing.

Contract: `load` compiles ``product_kernel.c`` (a second, then cached: ``numerics.native``) and compares it
with ``numerics.contraction`` before use; None with a warning if it is unavailable or wrong. On a CPU with AMX
the same holds for ``product_amx.c``, used for products of at least `TILE_ROWS` rows and `TILE_LENGTH`
numbers; without it the first one is used. Results of several threads are compared before the first product on
several; if they are wrong, one thread is used, with a warning. (Threads of a busy machine wait long for one
another, and most processes have one.) A call releases the GIL and uses as many threads as PyTorch. Not
guaranteed: speed on CPUs without instructions for products of i16 pairs.

Source: docs/decisions/0014-c-kernels.md.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from pathlib import Path
from threading import RLock

import torch
from torch import Tensor

from assay.numerics import contraction, slow_paths
from assay.numerics.hard_products import hard_pairs, same, wanted
from assay.numerics.native import ARITHMETIC_FLAGS, Shared, Unusable, compiled, numbers, processor_flags

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_suffix(".c")
_TILES_SOURCE = _SOURCE.with_name("product_amx.c")
_SHAPES = (1, 70, 300), (17, 33, 64), (40, 9, 131)
"""Rows, columns and lengths of the products with which a kernel is compared."""
_TILE_SHAPES = *_SHAPES, (64, 96, 128)
"""The same for tiles; the last one has only whole panels."""
TILE_ROWS, TILE_LENGTH = 32, 48
"""Minimum sizes for tiles; smaller products are slower with them (measured:
docs/decisions/0014-c-kernels.md)."""
_MOST_LENGTH = 4096
"""Maximum length of a product by tiles, whose sums are i32."""


class Kernel:
    """A compiled kernel; `shapes`: of the products with which its threads are compared."""

    def __init__(self, library: ctypes.CDLL, shapes: Sequence[tuple[int, int, int]] = _SHAPES) -> None:
        self.tiles: Kernel | None = None
        """Kernel for large products, if the CPU has tiles."""
        self._shapes = shapes
        self._lock = RLock()
        self._several: bool | None = None
        """True if several threads give the right result; None: not compared yet."""
        self._product = library.quantised_product
        self._product.restype = ctypes.c_int
        size, pointer = ctypes.c_int64, ctypes.c_void_p
        self._product.argtypes = [
            *(pointer, pointer, pointer, pointer, pointer, pointer),
            *(ctypes.c_int, pointer, pointer, size, ctypes.c_int),
        ]  # fmt: skip

    def product(
        self, x: Tensor, ex: Tensor | None, y: Tensor, ey: Tensor | None, threads: int | None = None
    ) -> Tensor:
        """f32[b..., M, N] from [b..., M, K] and [b..., N, K] in any memory layout, and i32 exponents of their
        rows, None for those of A30.

        Operands are f32, to be quantised by them, or i16 already quantised, |q| <= 8192. Uses as many threads
        as PyTorch by default. Raises MemoryError.
        """
        if self.tiles and x.shape[-2] >= TILE_ROWS and TILE_LENGTH <= x.shape[-1] <= _MOST_LENGTH:
            return self.tiles.product(x, ex, y, ey, threads)
        out = torch.empty((*x.shape[:-1], y.shape[-2]), dtype=torch.float32)
        sizes = (*x.shape[:-1], *y.shape[-2:])
        ex, ey = (None if e is None else e.contiguous() for e in (ex, ey))
        fits = self._product(
            *(x.data_ptr(), numbers(x.stride()), None if ex is None else ex.data_ptr()),
            *(y.data_ptr(), numbers(y.stride()), None if ey is None else ey.data_ptr()),
            x.dtype is torch.int16,
            *(out.data_ptr(), numbers(sizes), len(sizes) - 3),
            self._allowed(threads or torch.get_num_threads()),
        )
        if not fits:
            raise MemoryError(f"no room to pack a product of {sizes[:-1]} over {sizes[-1]} numbers")
        return out

    def _allowed(self, threads: int) -> int:
        """`threads`, or 1 if several give wrong results. INVARIANT compared-first: nobody else gets a product
        of several before they were compared."""
        if threads == 1:
            return 1
        with self._lock:
            if self._several is None:
                self._several = True  # the comparison's own products use them
                try:
                    for shape in self._shapes:
                        _check(self, *shape, 2)
                except Unusable as reason:
                    self._several = False
                    slow_paths.note(log, f"products use one thread on this machine: {reason}")
            return threads if self._several else 1


def build(source: Path, flags: Sequence[str] = ARITHMETIC_FLAGS) -> Kernel:
    """Compiles, loads and checks a kernel. Raises Unusable."""
    return checked(compiled(source, flags))


def build_tiles(source: Path = _TILES_SOURCE, flags: Sequence[str] = ARITHMETIC_FLAGS) -> Kernel:
    """As `build`, for the kernel on AMX tiles; with the flag -DSHIM on a CPU without them. Raises
    Unusable."""
    library = compiled(source, flags)
    if library.amx_permission() != 0:
        raise Unusable("the system does not let this process use AMX tiles")
    return checked(library, _TILE_SHAPES)


def checked(library: ctypes.CDLL, shapes: Sequence[tuple[int, int, int]] = _SHAPES) -> Kernel:
    """The kernel of a library, compared with the definition. Raises Unusable."""
    kernel = Kernel(library, shapes)
    for shape in shapes:
        _check(kernel, *shape, 1)
    return kernel


def _check(kernel: Kernel, rows: int, others: int, length: int, threads: int) -> None:
    """Raises Unusable unless products of all kinds of numbers, in all layouts, agree with A31 and A32."""
    for x, ex, y, ey in hard_pairs(rows, others, length):
        both, quantised = (x, y), (contraction.quantise(x, ex), contraction.quantise(y, ey))
        apart = _apart(x), _apart(y)
        own = contraction.exponent(x), contraction.exponent(y)
        for given, (e, f), operands in (
            ((ex, ey), (ex, ey), (both, apart, quantised)),
            (own, (None, None), (both, apart)),
        ):
            right = wanted(x, given[0], y, given[1])
            if not all(same(right, kernel.product(a, e, b, f, threads)) for a, b in operands):
                raise Unusable(f"the compiled kernel gives other products of {length} numbers")


def _apart(x: Tensor) -> Tensor:
    """The same numbers, no two of them adjacent in memory."""
    return torch.stack((x, x), -1)[..., 0]


def _best() -> Kernel:
    """The best kernel for this CPU."""
    kernel = build(_SOURCE)
    if " amx_int8" in processor_flags():
        try:
            kernel.tiles = build_tiles()
        except Unusable as reason:
            slow_paths.note(log, f"products take longer, without AMX, on this machine: {reason}")
    return kernel


load = Shared(_best, "compiled steps take longer, by int8 products,")
"""The kernel, or None if unavailable."""

"""Operands of products on an accelerator: exponents and parts by rows and by columns, each number read twice.

Contract: `operands` gives the bits of `definition`: the kernels are compared with it on their device before
their first use, once for each version of everything that their machine code depends on. None, noted in
``numerics.slow_paths``, if Triton is missing or a result differs. Not guaranteed: speed, since the tile was
chosen by counting (docs/accelerators.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from assay.numerics import contraction, product_triton, slow_paths
from assay.numerics.native import Shared, Unusable
from assay.numerics.product_triton import padded, versions
from assay.numerics.verdicts import Verdict, compared, loaded, refused

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("operand_kernel.py")
_TILE = {"HEIGHT": 128, "WIDTH": 64}
"""Parts are stored in runs of 64 bytes and, turned, of 128."""
_WARPS = 4
_PLACES = 1 << 31
_MATRICES = 1 << 16
_WITHOUT = "operands of products take longer, operation by operation,"
Cuts = Sequence[int]
"""Where operands begin and end along a dimension, from 0 to its length; empty if none are wanted."""
Operand = list[Tensor]
"""Exponents i32 [b.., rows] and both parts of A51, int8 [b.., rows, K `padded`], contiguous."""


Loss = Sequence[Tensor]
"""Of a matrix [R, C] of exponentials: their sums, factors, places i32 and shares, each [R]; or none."""


def loss_gradient(x: Tensor, total: Tensor, factor: Tensor, place: Tensor, share: Tensor) -> Tensor:
    """Gradient of a loss over a vocabulary: a row's share at its place, less x / total * factor."""
    hit = torch.arange(x.shape[-1], dtype=torch.int32, device=x.device) == place.unsqueeze(-1)
    return torch.where(hit, share.unsqueeze(-1), 0.0) - x / total.unsqueeze(-1) * factor.unsqueeze(-1)


def definition(x: Tensor, across: Cuts, down: Cuts, loss: Loss = ()) -> list[Operand]:
    """The operands of f32 [b.., R, C]: first the rows of the columns between two of `across`, then the
    columns of the rows between two of `down`. With `loss` they are of `loss_gradient`."""
    x = loss_gradient(x, *loss) if loss else x
    by_rows = [x[..., start:stop] for start, stop in pairwise(across)]
    by_columns = [x[..., start:stop, :].transpose(-1, -2) for start, stop in pairwise(down)]
    made = []
    for operand in (*by_rows, *by_columns):
        e = contraction.exponent(operand)
        parts = product_triton.parts(contraction.quantise(operand, e))
        made.append([part.contiguous() for part in (e.to(torch.int32), *parts)])
    return made


def empty(x: Tensor, across: Cuts, down: Cuts, loss: Loss = ()) -> list[Operand]:
    """Tensors in the shapes and dtypes of `definition`."""
    *batch, rows, columns = x.shape
    made = []
    for lines, cuts in ((rows, across), (columns, down)):
        for start, stop in pairwise(cuts):
            shape = (*batch, lines, padded(stop - start))
            parts = [x.new_empty(shape, dtype=torch.int8) for _ in range(2)]
            made.append([x.new_empty((*batch, lines), dtype=torch.int32), *parts])
    return made


class Kernel:
    """``operand_kernel.py``, loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._maxima, self._parts = module.maxima, module.parts
        self.faults: tuple[type[Exception], ...] = module.FAULTS

    def operands(self, x: Tensor, across: Cuts, down: Cuts, loss: Loss = ()) -> list[Operand]:
        """`definition`; more than one operand a direction only of a single matrix. Raises what Triton
        raises."""
        made = empty(x, across, down)
        count = max(len(across) - 1, 0)
        by_rows, by_columns = made[:count], made[count:]
        *batch, rows, columns = x.shape
        if len(batch) > 2 or 1 not in x.stride()[-2:] or (loss and x.stride(-1) != 1):
            x = x.contiguous().view(-1, rows, columns)
        loss = [vector.contiguous() for vector in loss]
        with torch.cuda.device_of(x):
            for i, (top, bottom) in enumerate(pairwise(down or (0, rows))):
                for j, (left, right) in enumerate(pairwise(across or (0, columns))):
                    self._launch(
                        x[..., top:bottom, left:right],
                        _lines(by_rows[j], top, bottom) if across else [],
                        _lines(by_columns[i], left, right) if down else [],
                        left,
                        [vector[top:bottom] for vector in loss],
                    )
        return made

    def _launch(self, x: Tensor, row: Operand, column: Operand, left: int, loss: Loss) -> None:
        """Writes one operand a direction, or none, of a matrix whose columns are those from `left` on."""
        if x.stride(-1) != 1:
            return self._launch(x.transpose(-1, -2), column, row, left, loss)
        outer, inner, rows, columns = (1, 1, *x.shape)[-4:]
        matrices = outer * inner
        largest = torch.zeros(matrices * (rows + columns), dtype=torch.int32, device=x.device)
        of_rows, of_columns = largest.split([matrices * rows, matrices * columns])
        nowhere = [largest] * 3
        made = (of_rows, *(row or nowhere), of_columns, *(column or nowhere))
        given = (x, *(loss or [largest] * 4))
        size = (rows, columns, left, inner, *(0, 0, *x.stride())[-4:-1])
        kinds = {"LOSS": bool(loss), "BY_ROWS": bool(row), "BY_COLUMNS": bool(column)}
        options = {**kinds, **_TILE, "num_warps": _WARPS, "enable_fp_fusion": False}
        grid = (-(-rows // _TILE["HEIGHT"]) * -(-columns // _TILE["WIDTH"]), matrices)
        self._maxima[grid](*given, of_rows, of_columns, *size, **options)
        self._parts[grid](*given, *made, *size, **options)


def _lines(operand: Operand, start: int, stop: int) -> Operand:
    e, *parts = operand
    return [e[..., start:stop], *(part[..., start:stop, :] for part in parts)]


def build(source: Path) -> Kernel:
    """Loads the kernels; Triton compiles them later. Raises Unusable."""
    return Kernel(loaded(source))


def hard_matrices() -> Iterator[tuple[Tensor, Cuts, Cuts, Loss]]:
    """Matrices of every bit pattern, of ties, zeros, subnormals, numbers that round up to 2^13 or are far
    apart, that lie in several ways; with cuts, some as gradients of losses. Rows of a multiple of 16 numbers
    have code of their own."""
    rows, columns, even = _TILE["HEIGHT"] + 37, 2 * _TILE["WIDTH"] + 9, 2 * _TILE["WIDTH"] + 16
    count = 6 * rows * columns
    any_bits = (torch.arange(count, dtype=torch.int64) * 0x9E3779B1).to(torch.int32).view(torch.float32)
    ties = (torch.arange(count) * 7919 % 16385 - 8192).to(torch.float32) / 2
    apart = ties * torch.exp2((torch.arange(count) % 277 - 139).to(torch.float32))
    most = torch.exp2((torch.arange(count) % 251 - 125).to(torch.float32)) * -1.9999999
    whole = ([0, columns], [0, rows])
    places = (torch.arange(rows, dtype=torch.int32) * 7 - 3) % (columns + 5)
    for line in (any_bits, ties, ties * 2.0**-149, ties * 2.0**113, apart, most, torch.zeros(count) * -1.0):
        one = line[: rows * columns].view(rows, columns)
        yield one, *whole, ()
        yield one.t().contiguous().t(), *whole, ()
        yield line[1 : rows * columns + 1].view(columns, rows).t(), [], [0, rows], ()
        yield line.view(2, 3, rows, columns), *whole, ()
        yield line.view(3, rows, 2, columns).transpose(1, 2), [0, columns], [], ()
        yield line[::6].view(rows, columns), [0, 48, 64, columns], [0, rows], ()
        yield one.view(columns, rows), [0, rows], [0, 33, columns], ()
        yield line[: rows * even].view(rows, even), [0, even], [0, rows], ()
        vectors = [line[start : start + rows] for start in (0, 1, 2)]
        yield one, [0, 64, columns], [0, rows], (*vectors[:2], places, vectors[2])
        yield torch.exp2(-one.abs()), *whole, (one.abs().sum(-1) + 1, vectors[1], places, vectors[1])
        yield line[: rows * even].view(rows, even), [0, even], [0, rows], (*vectors[:2], places, vectors[2])


def check(kernel: Kernel, device: torch.device) -> None:
    """Raises Unusable unless the kernels agree with `definition`."""

    def made(x: Tensor, across: Cuts, down: Cuts, loss: Loss) -> list[Operand]:
        return kernel.operands(x.to(device), across, down, [vector.to(device) for vector in loss])

    try:
        if device.type == "cuda":
            with (
                ThreadPoolExecutor() as pool
            ):  # 22 versions of the kernels are compiled outside Python's lock
                list(pool.map(made, *zip(*hard_matrices(), strict=True)))
        for matrix in hard_matrices():
            pairs = zip(chain(*definition(*matrix)), chain(*made(*matrix)), strict=True)
            if not all(torch.equal(one, other.cpu()) for one, other in pairs):
                shape = list(matrix[0].shape)
                raise Unusable(f"the kernel gives other operands of {shape} numbers on {device}")
    except kernel.faults as error:
        raise refused(error) from error


def operands(x: Tensor, across: Cuts, down: Cuts, loss: Loss = ()) -> list[Operand] | None:
    """`Kernel.operands`; None if the kernels are unavailable, as on CPUs."""
    if x.device.type != "cuda":
        return None
    rows, columns = x.shape[-2:]
    places, count = padded(rows) * padded(columns), x.numel() // (rows * columns)
    if places >= _PLACES or count >= _MATRICES:
        what = f"{count} of {rows} x {columns} numbers are too many for the kernels"
        slow_paths.note(log, f"{_WITHOUT} for some matrices: {what}")
        return None
    kernel = load()
    if kernel is None or not trusted(kernel, x.device):
        return None
    return kernel.operands(x, across, down, loss)


@cache
def trusted(kernel: Kernel, device: torch.device) -> bool:
    """True if the kernels were compared with the definition, by this process or before, and were right."""
    verdict = Verdict([*versions(device), _TILE, _WARPS], [_SOURCE, Path(__file__)])
    return compared(verdict, partial(check, kernel, device), f"{_WITHOUT} on {device}")


load = Shared(lambda: build(_SOURCE), _WITHOUT)
"""The kernels, or None if unavailable."""

"""Softmax of causal attention and its gradient on an accelerator, with the operands that products read.

Contract: `softmax` and `gradient` give the bits of `softmax_definition` and `gradient_definition`: the
kernels are compared with them on their device before their first use, once for each version of everything
that their machine code depends on. None, noted in ``numerics.slow_paths``, if Triton is missing or a result
differs. Not guaranteed: speed, since blocks were chosen by counting (docs/accelerators.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from assay.numerics import contraction, operand_triton, slow_paths, transcendental
from assay.numerics.constants import MAX_FAN_IN
from assay.numerics.hard_products import same
from assay.numerics.native import Shared, Unusable
from assay.numerics.product_triton import padded, versions
from assay.numerics.verdicts import Verdict, compared, loaded, refused

log = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("attention_kernel.py")
_SOURCES = [_SOURCE, Path(__file__), Path(__file__).with_name("operand_kernel.py")]
_ELEMENTS = 2048
"""Numbers that a program holds."""
_ROUNDS = 8
"""Times that a program of the gradient by rows does so. On an H200 it took 0.34 ms with one time, and with
half of the programs, so of the maxima that they raise in memory, 0.20."""
_TILE = {"HEIGHT": 64, "WIDTH": 32}
"""Of the kernel by columns, the fastest of six on an H200: parts are stored in runs of 64 bytes."""
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
_LEAST_WIDTH = 16
USUAL_LENGTH = 512
_MATRICES = 1 << 16
_WITHOUT = "attention takes longer, operation by operation,"


def causal(length: int, device: torch.device) -> Tensor:
    """bool [length, length]: what is not masked."""
    place = torch.arange(length, device=device)
    return place <= place.unsqueeze(1)


def softmax_definition(x: Tensor) -> list[Tensor]:
    """Softmax of the rows of f32 [b.., T, T] up to the diagonal, and their `operand_triton.Operand`."""
    x = torch.where(causal(x.shape[-1], x.device), x, -torch.inf)
    powers = transcendental.exp(x - contraction.amax(x).unsqueeze(-1))
    made = powers / contraction.sum(powers).unsqueeze(-1)
    return [made, *operand_triton.definition(made, [0, made.shape[-1]], [])[0]]


def softmax_empty(x: Tensor) -> list[Tensor]:
    """Tensors in the shapes and dtypes of `softmax_definition`."""
    made = x.new_empty(x.shape)
    return [made, *operand_triton.empty(made, [0, made.shape[-1]], [])[0]]


def gradient_definition(p: Tensor, g: Tensor, read_all: Tensor) -> list[Tensor]:
    """Of a softmax up to the diagonal and the gradient of it, f32 [b.., T, T]: the rows of the scores'
    gradient, its columns, and those of the softmax, each an `operand_triton.Operand`.

    `read_all` i32 [b.., T] is 0 for rows that have nothing but +0 above the diagonal of p, or nothing but NaN
    in all of it, and nothing but finite numbers above the diagonal of g.
    """
    weighted = g * p
    shares = p * contraction.sum(weighted).unsqueeze(-1)
    made = torch.where(causal(p.shape[-1], p.device), weighted - shares, 0.0)
    whole = [0, p.shape[-1]]
    return [
        *chain(*operand_triton.definition(made, whole, whole)),
        *operand_triton.definition(p, [], whole)[0],
    ]


def gradient_empty(p: Tensor, g: Tensor, read_all: Tensor) -> list[Tensor]:
    """Tensors in the shapes and dtypes of `gradient_definition`."""
    whole = [0, p.shape[-1]]
    return [*chain(*operand_triton.empty(p, whole, whole)), *operand_triton.empty(p, [], whole)[0]]


class Kernel:
    """``attention_kernel.py``, loaded."""

    def __init__(self, module: ModuleType) -> None:
        self._softmax, self._by_rows, self._by_columns = module.softmax, module.by_rows, module.by_columns
        self.faults: tuple[type[Exception], ...] = module.FAULTS

    def softmax(self, x: Tensor) -> list[Tensor]:
        """`softmax_definition`. Raises what Triton raises."""
        x, made, length = x.contiguous(), softmax_empty(x), x.shape[-1]
        cut, grid = _blocks(x)
        with torch.cuda.device_of(x):
            self._softmax[grid](x, *made, length, padded(length), **cut, **_OPTIONS)
        return made

    def gradient(self, p: Tensor, g: Tensor, read_all: Tensor) -> list[Tensor]:
        """`gradient_definition`. Raises what Triton raises."""
        p, g, read_all = p.contiguous(), g.contiguous(), read_all.contiguous()
        made, length = gradient_empty(p, g, read_all), p.shape[-1]
        rows, columns, of_softmax = made[:3], made[3:6], made[6:]
        cut, grid = _blocks(p, _ROUNDS)
        sums = torch.empty(read_all.shape, dtype=torch.float32, device=p.device)
        maxima, of_gradient = torch.zeros((2, *read_all.shape), dtype=torch.int32, device=p.device)
        given = (p, g, read_all, sums)
        tiles = -(-length // _TILE["HEIGHT"]) * -(-length // _TILE["WIDTH"])
        with torch.cuda.device_of(p):
            self._by_rows[grid](
                *given, *rows, maxima, of_gradient, length, padded(length), **cut, ROUNDS=_ROUNDS, **_OPTIONS
            )
            self._by_columns[tiles, grid[1]](
                *given, maxima, *of_softmax, of_gradient, *columns, length, **_TILE, **_OPTIONS
            )
        return made


def _blocks(x: Tensor, rounds: int = 1) -> tuple[dict[str, int], tuple[int, int]]:
    """(how a kernel by rows is cut, its grid) for f32 [b.., T, T], if a program takes `rounds` blocks."""
    length, width = x.shape[-1], _width(x.shape[-1])
    cut = {"K": contraction.sum_shift(length), "H": max(1, _ELEMENTS // width), "W": width}
    return cut, (-(-length // (cut["H"] * rounds)), x.numel() // length**2)


def alike(length: int) -> int:
    """The shortest length whose machine code is the same: Triton's depends on whether 16 divides it."""
    width = _width(length)
    return length if width <= 32 else width // 2 + (1 if length % 16 else 16)


def _width(length: int) -> int:
    return max(_LEAST_WIDTH, 1 << (length - 1).bit_length())


def build(source: Path) -> Kernel:
    """Loads the kernels; Triton compiles them later. Raises Unusable."""
    return Kernel(loaded(source))


def _several(length: int) -> tuple[int, int, int]:
    """Matrices to compare; few of the largest, for the definition takes a second for a million numbers."""
    return (2 if length <= USUAL_LENGTH else 1, length, length)


def hard_scores(length: int) -> Iterator[Tensor]:
    """Scores of every bit pattern; near each other, far apart, and apart by what makes subnormal results;
    with Inf and NaN here and there, on either side of the diagonal."""
    shape = _several(length)
    at = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    any_bits = (at * 0x9E3779B1).to(torch.int32).view(torch.float32)
    wave = (at * 7919 % 16385 - 8192).to(torch.float32) / 512
    yield any_bits.view(shape)
    for factor in (0.0, 2.0**-140, 2.0**-20, 0.125, 1.0, 6.5, 2.0**122):
        yield (wave * factor).view(shape)
    for rare in (-torch.inf, torch.inf, torch.nan):
        for every in (7 * length + 3, length + 1):
            yield torch.where(at % every == 5 % every, rare, wave).view(shape)
    yield torch.full(shape, -torch.inf)


def hard_gradients(length: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Softmax, gradient of it, and rows of which all has to be read: of every size, and with what poisons."""
    at = torch.arange(torch.Size(_several(length)).numel(), dtype=torch.int64).view(_several(length))
    any_bits = (at * 0x9E3779B1).to(torch.int32).view(torch.float32)
    wave = (at * 7919 % 16385 - 8192).to(torch.float32) / 512
    below = causal(length, wave.device)
    scores = (wave, wave * 6.5, torch.where(at % (7 * length + 3) == 5, torch.nan, wave))
    everything = torch.ones(at.shape[:2], dtype=torch.int32)
    for x in scores:
        p = softmax_definition(x)[0]
        for g in (wave, wave * 2.0**120, wave * 2.0**-130, any_bits):
            finite = torch.where(g.isfinite() | below, g, 0.0)
            yield p, finite, everything * 0
            yield p, g, (~g.isfinite()).any(-1).to(torch.int32)
    # A sum just beyond the middle of two results, by one unit of a number that has no bit to spare.
    shift = contraction.sum_shift(length)
    middle = torch.zeros(length)
    middle[0], middle[-1] = 1.0, (2.0**23 + 2.0 ** (shift - 25) + 1) * 2.0 ** (1 - shift)
    yield torch.ones_like(wave), middle * torch.where(at % 2 == 0, 1.0, -1.0)[..., :1], everything
    yield any_bits, wave, everything
    yield wave, any_bits.roll(1), everything
    yield wave, torch.where(at % (length + 1) == 5, -torch.inf, wave), everything


def check(kernel: Kernel, device: torch.device, length: int) -> None:
    """Raises Unusable unless the kernels agree with the definitions for rows of this length."""
    cases: Iterator[tuple[str, list[Tensor], Callable[..., list[Tensor]], Sequence[Tensor]]] = chain(
        (("softmax", softmax_definition(x), kernel.softmax, (x,)) for x in hard_scores(length)),
        (("gradient", gradient_definition(*x), kernel.gradient, x) for x in hard_gradients(length)),
    )
    for name, wanted, function, given in cases:
        try:
            made = function(*(x.to(device) for x in given))
        except kernel.faults as error:
            raise refused(error) from error
        if not equal(wanted, made):
            raise Unusable(f"the kernel gives another {name} of {length} numbers on {device}")


def equal(wanted: list[Tensor], made: list[Tensor]) -> bool:
    """True if all bits are, except in NaNs."""
    pairs = [(a, b.to(a.device)) for a, b in zip(wanted, made, strict=True)]
    return all(same(a, b) if a.dtype is torch.float32 else torch.equal(a, b) for a, b in pairs)


def softmax(x: Tensor) -> list[Tensor] | None:
    """`Kernel.softmax`; None if the kernel is unavailable, as on CPUs."""
    kernel = _kernel_for(x)
    return None if kernel is None else kernel.softmax(x)


def gradient(p: Tensor, g: Tensor, read_all: Tensor) -> list[Tensor] | None:
    """`Kernel.gradient`; None if the kernels are unavailable, as on CPUs."""
    kernel = _kernel_for(p)
    return None if kernel is None else kernel.gradient(p, g, read_all)


def _kernel_for(x: Tensor) -> Kernel | None:
    """The kernels, if they can compute with f32 [b.., T, T]."""
    if x.device.type != "cuda":
        return None
    length = x.shape[-1]
    if length > MAX_FAN_IN or x.numel() // length**2 >= _MATRICES:
        what = f"{x.numel() // length**2} of {length} x {length} numbers are too many for the kernels"
        slow_paths.note(log, f"{_WITHOUT} for some scores: {what}")
        return None
    kernel = load()
    return kernel if kernel is not None and trusted(kernel, x.device, length) else None


@cache
def trusted(kernel: Kernel, device: torch.device, length: int = USUAL_LENGTH) -> bool:
    """True if the kernels for rows of this length were compared with the definition, by this process or
    before, and were right."""
    like = alike(length)
    verdict = Verdict([*versions(device), _ELEMENTS, _ROUNDS, _TILE, _OPTIONS, like], _SOURCES)
    return compared(verdict, partial(check, kernel, device, like), f"{_WITHOUT} on {device}")


load = Shared(lambda: build(_SOURCE), _WITHOUT)
"""The kernels, or None if unavailable."""

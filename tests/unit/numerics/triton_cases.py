"""Products by Triton's interpreter, run as a program of their own: Triton decides at its import to interpret.

Usage: `python -m tests.unit.numerics.triton_cases CASE [ARGUMENT ...]`; prints what went wrong, or "right".
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from assay.numerics import contraction, product_triton
from assay.numerics.constants import MAX_FAN_IN
from assay.numerics.hard_products import same, wanted
from assay.numerics.native import Unusable
from assay.numerics.product_triton import TILES, Kernel, Tile, check, parts

CPU = torch.device("cpu")
SMALL = Tile(16, 16, 32, 4, 1, 1.0)
"""Quick to interpret, and many in a small matrix."""
LONG = Tile(32, 32, 512, 4, 1, 1.0)
"""Quick to interpret for long rows."""
EVERY = sorted({tile for tiles in TILES.values() for tile in tiles})


def kernel_of(source: str) -> Kernel:
    return product_triton.build(Path(source))


def differs(kernel: Kernel, x: Tensor, ex: Tensor, y: Tensor, ey: Tensor, tile: Tile) -> str:
    a, b = (parts(contraction.quantise(z, e)) for z, e in ((x, ex), (y, ey)))
    made = kernel.product(a, ex, b, ey, tile)
    return "" if same(wanted(x, ex, y, ey), made) else f"{list(x.shape)} by {list(y.shape)} in {tile}"


def checked(source: str, tile: str) -> str:
    """What the check at the first use on a device says of this tile."""
    try:
        check(kernel_of(source), EVERY[int(tile)], CPU)
    except Unusable as reason:
        return str(reason)
    return ""


def found(source: str) -> str:
    """What is found first, if anything, by the check in small tiles, by rounding, by the largest sums."""
    kernel = kernel_of(source)
    try:
        check(kernel, SMALL, CPU, longest=100)
    except Unusable as reason:
        return str(reason)
    return edges(source) or apart(source) or rounding(source) or largest(source)


def layouts(source: str, seed: str) -> str:
    """Matrices and batches of any size that lie in any order, with exponents of any size."""
    kernel, random = kernel_of(source), Random(int(seed))
    generator = torch.Generator().manual_seed(int(seed))
    for _ in range(40):
        batch = random.choice([(), (), (1,), (3,), (2, 3)])
        length = random.choice([1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 300])
        given: list[Tensor] = []
        for _ in range(2):
            shape = (*batch, random.choice([1, 2, 15, 16, 17, 33, 40, 150]), length)
            order = random.choice([list(range(len(shape))), random.sample(range(len(shape)), len(shape))])
            x = torch.randn([shape[d] for d in order], generator=generator)
            x = random.choice([x, x.sign(), x**5, x * 2.0**-140, x * 2.0**100, x * 0])
            x = x.permute([order.index(d) for d in range(len(shape))])
            away = torch.randint(-1, 2, shape[:-1], generator=generator) * random.choice([0, 1, 40, 150, 300])
            given += [x, contraction.exponent(x).to(torch.int32) + away.to(torch.int32)]
        x, ex, y, ey = given
        if wrong := differs(kernel, x, ex, y, ey, random.choice([SMALL, EVERY[0]])):
            return wrong
    return ""


def largest(source: str) -> str:
    """The largest sums: where numbers still hold what is carried, just beyond, and of the longest rows."""
    kernel = kernel_of(source)
    for length in (2032, 2064, 4031, 4032, 4033, 4095, 4096):
        ones = torch.full((17, length), 1.9999999)
        halves = torch.full((17, length), -8192.0 * 2.0**-13 * (1 - 2.0**-7) - 2.0**-13)
        mixed = torch.full((17, length), 8128 / 4096)
        pairs = [*itertools.product((ones, -ones, halves), (ones, halves)), (mixed, mixed)]
        for (x, y), at in itertools.product(pairs, (1, -40, -80, -125, 60, 70, 128)):
            ex, ey = torch.full((17,), at, dtype=torch.int32), torch.ones(17, dtype=torch.int32)
            if wrong := differs(kernel, x * 2.0 ** (at - 1), ex, y, ey, LONG):
                return f"{wrong}, exponent {at}"
    return ""


def apart(source: str) -> str:
    """Exponents of both sides that are far apart, also beyond those that numbers have."""
    kernel, line = kernel_of(source), (torch.arange(17 * 40) * 7919 % 16385 - 8192).to(torch.float32)
    for at, other in (
        (-125, 60),
        (-126, 90),
        (-140, 100),
        (128, -60),
        (128, -110),
        (100, 20),
        (129, 3),
        (200, 0),
    ):
        size, other_size = (2.0 ** (min(max(e, -125), 128) - 14) for e in (at, other))
        x, y = line.view(17, 40) * size, line.view(17, 40).flip(0) * other_size
        ex, ey = (torch.full((17,), e, dtype=torch.int32) for e in (at, other))
        for given in ((x, ex, y, ey), (y, ey, x, ex)):
            if wrong := differs(kernel, *given, SMALL):
                return f"{wrong}, exponents {at} and {other}"
    return ""


def rounding(source: str) -> str:
    """Sums in the middle of two f32 numbers, and results on both sides of the least normal one."""
    kernel, generator = kernel_of(source), torch.Generator().manual_seed(3)
    for low in (-26, -60, -75, -100, -112):
        x = torch.randint(-8192, 8193, (33, 48), generator=generator).to(torch.float32)
        y = torch.randint(-8192, 8193, (40, 48), generator=generator).to(torch.float32)
        x[:, 24:] = 0.0
        x[::2, 1:] = 0.0
        ex = low + torch.arange(33, dtype=torch.int32) % 19
        ey = low + torch.arange(40, dtype=torch.int32) % 23
        scaled = [z * torch.exp2((e - 13).to(torch.float64)).unsqueeze(-1) for z, e in ((x, ex), (y, ey))]
        x, y = (z.to(torch.float32) for z in scaled)
        if wrong := differs(kernel, x, ex, y, ey, SMALL):
            return f"{wrong}, exponents from {low}"
    return ""


def edges(source: str) -> str:
    """Sums that are extreme or at the edges of rounding, made of high, mixed and low sums in several ways,
    under exponents for which results are of every kind."""
    from tests.unit.numerics import triton_edges

    spec = importlib.util.spec_from_file_location("kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for length, (seed, (wild, others)) in itertools.product(
        (module.SHORT_K, MAX_FAN_IN), enumerate(EXPONENTS)
    ):
        generator = torch.Generator().manual_seed(seed)
        for exact in torch.tensor(sorted(edge_sums(length))).split(COLUMNS):
            exact = exact.repeat(-(-COLUMNS // len(exact)))[:COLUMNS].expand(len(wild), -1)
            sums = taken_apart(exact, length, generator)
            ea = torch.tensor(wild, dtype=torch.int32)
            eb = torch.tensor(others, dtype=torch.int32).repeat(COLUMNS)[:COLUMNS]
            made = triton_edges.run(module, sums, ea, eb, short=length <= module.SHORT_K)
            powers = torch.exp2((ea[:, None] + eb - 26).to(torch.float64))
            right = (exact.to(torch.float64) * powers).to(torch.float32)
            right[(ea[:, None] == 129) | (eb == 129)] = float("nan")
            wrong = (made.view(torch.int32) != right.view(torch.int32)).nonzero()
            if len(wrong):
                row, column = wrong[0].tolist()
                return f"{exact[row, column]} of {length} under {ea[row]} and {eb[column]}"
    return ""


COLUMNS = 1024
EXPONENTS = [
    (range(-100, 28), (0,)),  # tame, as are the next two
    (range(-67, 61), (-33, 3)),
    (range(-10, 22), (110, 60)),
    (range(-125, 3), (-125, -124)),
    (range(-62, 66), (-125, -77)),
    (range(-125, 3), (-20, 0, 128)),
    (range(1, 129), (128, -120, -125, 57)),
    ((129, 0, 5, 129) * 32, (0,)),
    (range(-64, 64), (129, 0, 0, 9)),
]
"""Those of rows, and those of columns in turn."""


def edge_sums(longest: int) -> set[int]:
    """Sums S of A32, up to the largest that so many numbers give."""
    found = set(range(-40, 41))
    for length in (1, 7, longest - 63, longest - 1, longest):
        found |= {length << 26, length * (8192 * 8191), length * 8191**2, length * 64 * 8192}
    for bits in range(1, 39):
        found |= {1 << bits, 3 << max(bits - 1, 0)}
        for kept in (1, 2, 5, 23, 24, 25):
            # Odd in the last place that a result keeps, and in the middle of two such.
            unit = 1 << max(bits - kept, 0)
            found |= {(1 << bits) - unit, (1 << bits) + unit, (1 << bits) - 3 * unit, (1 << bits) - unit // 2}
    found = {s + d for s in found for d in (-2, -1, 0, 1, 2)}
    return {sign * s for s in found for sign in (1, -1) if abs(s) <= longest << 26}


def taken_apart(exact: Tensor, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """(high, cross, low), i32, of which `exact` is made: what they must be within the bounds of so many
    numbers, else at random."""
    most = length << 12
    cross = torch.randint(-2 * most, 2 * most + 1, exact.shape, generator=generator)
    cross = torch.where(exact.abs() >= most << 13, torch.sign(exact) * 2 * most, cross)
    rest = exact - (cross << 7)
    room = (most >> 14) - 1
    low = (rest & 16383) + (torch.randint(-room, room, exact.shape, generator=generator) << 14)
    high = (rest - low) >> 14
    assert (high.abs() <= most).all() and (low.abs() <= most).all()
    assert torch.equal((high << 14) + (cross << 7) + low, exact)
    return tuple(x.to(torch.int32) for x in (high, cross, low))  # type: ignore[return-value]


def main() -> None:
    case: Callable[..., str] = globals()[sys.argv[1]]
    print(case(*sys.argv[2:]) or "right")


if __name__ == "__main__":
    main()

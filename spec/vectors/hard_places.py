"""Operands at the places where an instruction's arithmetic is most likely to go wrong.

Ties of every rounding (and their neighbours on both sides), the borders of the special cases of
docs/arithmetic.md, results that are subnormal or overflow, cancellation, and the borders inside the
transcendental sequences: where RNE takes the next multiple of ln 2, of π/2, or the next segment of erf.

Contract: what is drawn follows from the generator's state alone. Values are f32 patterns or integers, as
`numerics.scalar` takes them. Not guaranteed: that a drawn case is hard; most are, some miss by rounding.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable

from assay.program.isa import DType, Op

SIGN, INF, NAN = 0x80000000, 0x7F800000, 0x7FC00000
FEW_BITS = (0, 0x400000, 0x200000, 0x600000, 1, 0x7FFFFF, 0x7FFFFE, 0x555555)
EDGES_I32 = (0, 1, -1, 2**31 - 1, -(2**31), 2**31 - 2, -(2**31) + 1)


def nearest(x: float) -> int:
    """Pattern of the f32 nearest to x; infinity beyond the range."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", x))[0])
    except OverflowError:
        return INF if x > 0 else SIGN | INF


def about(rng: random.Random, bits: int, ulps: int = 2) -> int:
    """A pattern within `ulps` of `bits`, which stays within its sign."""
    magnitude = min(max((bits & ~SIGN) + rng.randint(-ulps, ulps), 0), INF)
    return bits & SIGN | magnitude


def signed(rng: random.Random, bits: int) -> int:
    """The pattern with a random sign."""
    return bits & ~SIGN | rng.randrange(2) << 31


def number(rng: random.Random, exponent: int) -> int:
    """A pattern with this biased exponent (clamped to the finite ones), random sign, few or random bits."""
    fraction = rng.choice(FEW_BITS) if rng.randrange(2) else rng.getrandbits(23)
    return rng.randrange(2) << 31 | min(max(exponent, 0), 254) << 23 | fraction


def _sum_near_a_tie(rng: random.Random) -> tuple[int, int]:
    a = number(rng, rng.randrange(255))
    b = number(rng, (a >> 23 & 255) - rng.choice((22, 23, 24, 25, 26, 1, 0)))
    return (a, about(rng, b)) if rng.randrange(2) else (about(rng, b), a)


def _product_at_the_border(rng: random.Random) -> tuple[int, int]:
    a = number(rng, rng.randrange(255))
    wanted = rng.choice((rng.randrange(-26, 3), rng.randrange(252, 258)))
    return a, number(rng, wanted + 127 - (a >> 23 & 255))


def _quotient_at_the_border(rng: random.Random) -> tuple[int, int]:
    b = number(rng, rng.randrange(255))
    wanted = rng.choice((rng.randrange(-26, 3), rng.randrange(252, 258)))
    return number(rng, wanted - 127 + (b >> 23 & 255)), b


def _root(rng: random.Random) -> tuple[int]:
    kind = rng.randrange(3)
    if kind == 0:
        return (about(rng, nearest(float(rng.getrandbits(12) ** 2) * 4.0 ** rng.randrange(-60, 50))),)
    if kind == 1:
        return (rng.getrandbits(rng.randrange(1, 24)),)
    return (number(rng, rng.randrange(255)),)


def _whole(rng: random.Random) -> tuple[int]:
    scale = 2.0 ** rng.randrange(-1, 26)
    return (signed(rng, about(rng, nearest(rng.randrange(1, 9) * scale / rng.choice((1, 2))), 1)),)


def _exp(rng: random.Random) -> tuple[int]:
    kind = rng.randrange(4)
    if kind == 0:
        return (about(rng, nearest((rng.randrange(-150, 129) + 0.5) * math.log(2))),)
    if kind == 1:
        return (about(rng, nearest(rng.choice((-104.0, -103.97, -103.28, -87.34, 88.72, 88.73, 89.0))), 9),)
    if kind == 2:
        return (nearest(rng.uniform(-104.5, -87.0)),)
    return (number(rng, rng.randrange(95, 110)),)


def _log(rng: random.Random) -> tuple[int]:
    kind = rng.randrange(3)
    if kind == 0:
        return (about(rng, 0x3F3504F3 + (rng.randrange(-126, 127) << 23)),)
    if kind == 1:
        return (about(rng, 0x3F800000, 1 << rng.randrange(20)),)
    return (rng.getrandbits(rng.randrange(1, 24)),)


def _tanh(rng: random.Random) -> tuple[int]:
    kind = rng.randrange(3)
    if kind == 0:
        return (signed(rng, about(rng, nearest(abs(rng.randrange(30) + 0.5) * math.log(2) / 2))),)
    if kind == 1:
        return (signed(rng, nearest(rng.uniform(8.5, 10.2))),)
    return (number(rng, rng.randrange(95, 120)),)


def _erf(rng: random.Random) -> tuple[int]:
    kind = rng.randrange(3)
    if kind == 0:
        return (signed(rng, about(rng, nearest(rng.randrange(9) / 2 + rng.choice((0.25, 0.0))), 3)),)
    if kind == 1:
        return (signed(rng, nearest(rng.uniform(3.6, 4.1))),)
    return (number(rng, rng.randrange(95, 125)),)


def _circular(rng: random.Random) -> tuple[int]:
    kind = rng.randrange(4)
    turns = rng.randrange(1 << rng.randrange(1, 29))
    if kind <= 1:
        return (signed(rng, about(rng, nearest((turns + kind / 2) * math.pi / 2))),)
    if kind == 2:
        return (signed(rng, about(rng, 0x4E000000, 3)),)
    return (number(rng, rng.randrange(95, 135)),)


def _pow(rng: random.Random) -> tuple[int, int]:
    kind = rng.randrange(5)
    if kind == 0:  # results at the borders of the range
        x = nearest(rng.uniform(1e-3, 1e3))
        target = rng.choice((-103.9, -103.3, -87.3, 88.7, 0.0)) + rng.uniform(-0.1, 0.1)
        base = math.log(struct.unpack("<f", struct.pack("<I", x))[0]) or 1e-7
        return x, nearest(target / base)
    if kind == 1:  # whole exponents, odd and even, up to where all are even
        y = rng.choice((1, 4, 1 << 23, 1 << 24)) + rng.randrange(-3, 4)
        return signed(rng, about(rng, 0x3F800000, 3)), signed(rng, nearest(float(y)))
    if kind == 2:  # halves
        return signed(rng, number(rng, 127)), signed(rng, nearest(rng.randrange(1, 99) + 0.5))
    specials = (0, 1, INF, NAN, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x40000000, 0x3F000000, 0x40400000)
    return signed(rng, rng.choice(specials)), signed(rng, rng.choice(specials))


def _beside_each_other(rng: random.Random) -> tuple[int, int]:
    a = rng.choice((0, 1, INF, 0x7F7FFFFF, 0x00800000, NAN, 0xFFC00001, number(rng, rng.randrange(255))))
    return signed(rng, a), signed(rng, about(rng, a & 0x7FFFFFFF if a < SIGN else a, 1))


def _integers(rng: random.Random) -> tuple[int, int]:
    def one() -> int:
        near = rng.choice(EDGES_I32) if rng.randrange(2) else rng.choice((1, -1)) << rng.randrange(31)
        return (near + rng.randint(-2, 2) + 2**31) % 2**32 - 2**31

    return one(), one()


def _to_integer(rng: random.Random) -> tuple[int]:
    kind = rng.randrange(3)
    if kind == 0:
        return (signed(rng, about(rng, rng.choice((0x4F000000, 0x4F800000, 0x3F800000, 1)), 3)),)
    return (signed(rng, about(rng, nearest(rng.getrandbits(rng.randrange(1, 33)) + rng.choice((0.5, 0.0))))),)


def _from_integer(rng: random.Random) -> tuple[int]:
    """25 to 31 bits of which those that do not fit are at or beside a half."""
    extra = rng.randrange(1, 8)
    value = (rng.getrandbits(23) | 1 << 23) << extra | 1 << extra - 1
    value += rng.choice((-1, 0, 0, 1))
    return (min(value, 2**31 - 1) * rng.choice((1, -1)),)


Draw = Callable[[random.Random], tuple[int, ...]]

_F32: dict[Op, Draw] = {
    Op.SQRT: _root,
    Op.FLOOR: _whole,
    Op.EXP: _exp,
    Op.LOG: _log,
    Op.TANH: _tanh,
    Op.ERF: _erf,
    Op.SIN: _circular,
    Op.COS: _circular,
    Op.ADD: _sum_near_a_tie,
    Op.SUB: _sum_near_a_tie,
    Op.MUL: _product_at_the_border,
    Op.DIV: _quotient_at_the_border,
    Op.POW: _pow,
}
_F32 |= dict.fromkeys((Op.MAX, Op.MIN, Op.EQ, Op.LT, Op.LE), _beside_each_other)


def operands(op: Op, sources: list[DType], to: DType) -> Draw | None:
    """Function that draws hard operands of an element-wise instruction; None if no operands are harder
    than others."""
    if op is Op.CONVERT:
        pairs: dict[tuple[DType, DType], Draw] = {
            (DType.F32, DType.I32): _to_integer,
            (DType.I32, DType.F32): _from_integer,
        }
        return pairs.get((sources[0], to))
    if sources == [DType.I32, DType.I32]:
        return _integers
    return _F32.get(op)


def row(rng: random.Random, length: int) -> list[int]:
    """A row of f32 whose sum is at or near a tie, cancels, overflows, or is subnormal."""
    kind = rng.randrange(5)
    exponent = rng.choice((0, 1, 2, 25, 127, 230, 252, 253, 254, rng.randrange(255)))
    if kind == 0:  # one large, a half of its last place, and dust on either side of the tie
        lead = number(rng, exponent)
        parts = [lead, number(rng, exponent - 24) & ~0x7FFFFF, number(rng, exponent - rng.randrange(40, 60))]
        rest = [number(rng, exponent - rng.randrange(45, 70)) for _ in range(length)]
        made = (parts + rest)[:length] if rng.randrange(2) else (parts + [0] * length)[:length]
        rng.shuffle(made)
        return made
    if kind == 1:  # equal magnitudes: the largest sums there are, or none at all
        lead = number(rng, exponent)
        flip = rng.choice((0, SIGN))
        return [lead ^ (flip if i % 2 else 0) for i in range(length)]
    if kind == 2:  # subnormals
        return [signed(rng, rng.getrandbits(rng.randrange(1, 25))) for _ in range(length)]
    if kind == 3:  # halves of the last kept place of A33: every element is a tie of its own rounding
        kept = 50 - (length - 1).bit_length()
        return [number(rng, exponent)] + [
            signed(rng, max(exponent - 1 - kept + rng.randrange(-1, 3), 0) << 23) for _ in range(length - 1)
        ]
    few = rng.sample((0, SIGN, INF, SIGN | INF, NAN, 0x7F7FFFFF, 1), rng.randrange(1, 4))
    return [rng.choice(few) if rng.randrange(4) == 0 else number(rng, exponent) for _ in range(length)]


def quantised(rng: random.Random) -> tuple[int, int]:
    """(x, e) with x · 2^(13−e) at or beside a half, or at the clamp."""
    e = rng.randrange(-125, 129)
    at = rng.choice((8192, 8191.5, 8192.5, 0.5, rng.randrange(8192) + 0.5))
    return signed(rng, about(rng, nearest(math.ldexp(at, e - 13)), 1)), e


def factors(rng: random.Random, length: int) -> tuple[list[int], list[int]]:
    """Two rows of i16 whose product has 25 or more bits and is at or beside a tie of its rounding."""
    a, b = [0] * length, [0] * length
    whole = (rng.getrandbits(24) | 1 << 24) & ~1 | 1
    a[0], b[0] = whole >> 12, 1 << 12
    if length > 1:
        a[1], b[1] = whole & 0xFFF, 1
    if length > 2:
        a[2], b[2] = rng.choice((-1, 0, 1)), 1
    if rng.randrange(2):
        a = [-x for x in a]
    return a, b


def exponents(rng: random.Random) -> tuple[int, int]:
    """Exponents of two rows whose product is of ordinary size, subnormal, or beyond the range."""
    total = rng.choice((0, rng.randrange(-150, -115), rng.randrange(120, 132)))
    ea = rng.randrange(max(-125, total - 128), min(128, total + 125) + 1)
    return ea, total - ea


def indices(rng: random.Random, count: int, limit: int) -> list[int]:
    """Indices inside [0, limit), at its borders, and far outside."""
    return [rng.choice((*EDGES_I32, limit - 1, limit, limit + 1, rng.randrange(limit))) for _ in range(count)]

"""Random operands for the arithmetic test vectors: values, rows, exponents, indices and shapes.

All draw from the `random.Random` they are given, so that a seed gives the same vectors everywhere. An f32 is
its bit pattern, other types are integer values. Half of what `vectors` draws is at the places of
`hard_places` instead.
"""

from __future__ import annotations

import random
from math import prod

import numpy as np

from assay.program.isa import DType
from spec.vectors import hard_places as hard

F32, I32, I16, U8, BOOL = DType

HARD_LOG = (0x3C413D3A, 0x41178FEB, 0x4C5D65A5, 0x65D890D3, 0x6F31A8EC)
HARD_EXP = (0xC16912CD,)
SPECIAL_WORDS = """
    00000000 80000000 7F800000 FF800000 7FC00000 FFC00000 7FFFFFFF 7F800001 FFFFFFFF 00000001
    80000001 007FFFFF 807FFFFF 00800000 80800000 00800001 7F7FFFFF FF7FFFFF 3F800000 BF800000
    3F7FFFFF 3F800001 40000000 C0000000 3F000000 BF000000 40400000 4B000000 4B000001 4B7FFFFF
    CB000001 4B800000 CB800001 4EFFFFFF 4F000000 CF000000 CF000001 4F7FFFFF 4F800000 3FC00000
    BFC00000 40200000 42B17218 42B17217 C2CFF1B5 C2D00000 42B20000 41200000 40800000 3FC90FDB
    40490FDB 4E000000 4DFFFFFF 3F3504F3
"""
SPECIAL_F32 = tuple(int(word, 16) for word in SPECIAL_WORDS.split())
SPECIAL_I32 = (0, 1, -1, 2, 255, -256, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**31 - 1, -(2**31))


def any_f32(rng: random.Random) -> int:
    """A pattern: special, any bits, a power of two or its neighbour, or a number of moderate size."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(SPECIAL_F32)
    if kind == 1:
        power = rng.randrange(256) << 23
        return (power + rng.randrange(-1, 2)) % 2**31 | rng.randrange(2) << 31
    if kind <= 3:
        return rng.getrandbits(32)
    return near_one(rng)


def near_one(rng: random.Random) -> int:
    """A finite pattern with an exponent between -12 and +12."""
    return rng.randrange(2) << 31 | rng.randrange(115, 140) << 23 | rng.getrandbits(23)


def any_value(rng: random.Random, dtype: DType) -> int:
    if dtype is F32:
        return any_f32(rng)
    if dtype is I32:
        return rng.choice(SPECIAL_I32) if rng.randrange(4) == 0 else rng.randrange(-(2**31), 2**31)
    if dtype is I16:
        return rng.randrange(-(2**15), 2**15)
    return rng.randrange(2 if dtype is BOOL else 256)


def any_operands(rng: random.Random, sources: list[DType]) -> tuple[int, ...]:
    values = tuple(any_value(rng, d) for d in sources)
    if len(values) == 2 and sources[0] is F32 and rng.randrange(4) == 0:
        # Close in size, so that sums cancel and quotients and comparisons are near a tie.
        return values[0], (values[0] + rng.randrange(-3, 4) ^ rng.randrange(2) << 31) % 2**32
    return values


def pairs(values: tuple[int, ...], limit: int) -> list[tuple[int, ...]]:
    """Up to `limit` pairs, spread over the whole square."""
    every: list[tuple[int, ...]] = [(a, b) for a in values for b in values]
    step = max(1, len(every) // limit)
    return every[::step][:limit]


def row_of(rng: random.Random, length: int) -> list[int]:
    """A row of f32: ordinary numbers, one wide in range, with specials, or at a hard place."""
    kind = rng.randrange(12)
    if kind >= 8:
        return hard.row(rng, length)
    if kind == 0:
        return [any_f32(rng) for _ in range(length)]
    if kind == 1:
        return [rng.getrandbits(32) % 0x7F800000 | rng.randrange(2) << 31 for _ in range(length)]
    if kind == 2:
        return [rng.choice((0, 0x80000000, 1, 0x80000002, 0x00800000)) for _ in range(length)]
    row = [near_one(rng) for _ in range(length)]
    if kind == 3:
        row[rng.randrange(length)] = rng.choice(SPECIAL_F32)
    if kind == 4:
        row[rng.randrange(length)] = row[0] ^ 0x80000000
    if kind == 5 and length > 2:
        # The largest cancel, so that what is left of the smallest shows.
        small = [(x & 0x807FFFFF) | (115 - rng.randrange(56)) << 23 for x in row[2:]]
        row = [row[0], row[0] ^ 0x80000000, *small]
    return row


def length_of(rng: random.Random, case: int) -> int:
    """A row's length; the first case of a file is at the bound, and every 250th."""
    if case % 250 == 0:
        return 4096
    if case % 50 == 0:
        return rng.choice((255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2049, 4095))
    return rng.choice((1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, rng.randrange(1, 130)))


def any_exponent(rng: random.Random) -> int:
    return rng.choice((-32768, -126, -125, 0, 128, 129, 130, 32767, *([rng.randrange(-30, 30)] * 8)))


def tensor(rng: random.Random, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return np.array([any_value(rng, dtype) for _ in range(prod(shape))], dtype=np.int64).reshape(shape)


def any_indices(rng: random.Random, count: int, limit: int) -> np.ndarray:
    values = hard.indices(rng, count, limit) if rng.randrange(4) == 0 else rng.choices(range(-2, 7), k=count)
    return np.array(values, dtype=np.int64)


def shape_of(rng: random.Random, least: int = 0) -> tuple[int, ...]:
    """Up to four dimensions of up to four; one time in eight up to seven of up to two."""
    if rng.randrange(8) == 0:
        return tuple(rng.randrange(1, 3) for _ in range(rng.randrange(max(least, 5), 8)))
    return tuple(rng.randrange(1, 5) for _ in range(rng.randrange(least, 5)))

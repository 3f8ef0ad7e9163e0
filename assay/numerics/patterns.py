"""Generates bit patterns that are hard for arithmetic, from a counter: the same on every machine.

Contract: pattern i of a seed depends on the seed and i alone, through integer arithmetic, so neither a
library's generator nor a floating-point unit can change an input. Included are uniform bits, numbers of
ordinary size, subnormals, few-bit numbers (whose products and sums are ties), NaN payloads, both infinities
and zeros, the known hard inputs of docs/arithmetic.md, powers of two, and the neighbours of all of these. Not
guaranteed: that a fault is found.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

Words = np.ndarray
"""u32 patterns of f32 numbers, or u64 random words."""

HARD = (
    0x3C413D3A, 0x41178FEB, 0x4C5D65A5, 0x65D890D3, 0x6F31A8EC,  # log
    0xC16912CD, 0x42B17218, 0x42B17217, 0xC2CFF1B5, 0xC2D00000, 0x42B20000,  # exp and its ends
    0x46199998, 0x40490FDB, 0x3FC90FDB, 0x4DFFFFFF, 0x4E000000,  # sin, cos and where they end
    0x3FE00000, 0x40800000, 0x41200000,  # erf's ties, erf's and tanh's ends
)  # fmt: skip
EDGES = (
    0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x337FFFFF, 0x3E800000, 0x3EFFFFFF, 0x3F000000,
    0x3F3504F3, 0x3F7FFFFF, 0x3F800000, 0x3FB504F3, 0x3FC00000, 0x40400000, 0x4B000000, 0x4B7FFFFF,
    0x4B800000, 0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
    0x7FFFFFFF,
)  # fmt: skip
SIGN = np.uint32(0x80000000)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def words(seed: int, count: int) -> Words:
    """u64[count], well mixed: the output function of SplitMix64 (Steele, Lea, Flood 2014) on a counter."""
    x = (np.arange(count, dtype=np.uint64) + np.uint64((seed % 2**24) << 40)) * _GOLDEN + _GOLDEN
    for shift, factor in _MIX:
        x = (x ^ (x >> shift)) * factor
    return x ^ (x >> np.uint64(31))


def _part(x: Words, low: int, bits: int) -> np.ndarray:
    """i64: `bits` bits of each word from bit `low`."""
    return ((x >> np.uint64(low)) & np.uint64((1 << bits) - 1)).astype(np.int64)


def special() -> Words:
    """Hard inputs, edges and all powers of two, each with two neighbours on both sides, of both signs."""
    centres = np.array((*HARD, *EDGES, *(e << 23 for e in range(256))), dtype=np.int64)
    near = (centres[:, None] + np.arange(-2, 3)).reshape(-1) % 2**32
    return np.unique(np.concatenate([near, near ^ 0x80000000])).astype(np.uint32)


def _number(sign: np.ndarray, exponent: np.ndarray, fraction: np.ndarray) -> Words:
    """Patterns from their fields (i64)."""
    return ((sign << 31) | (np.clip(exponent, 0, 255) << 23) | (fraction & 0x7FFFFF)).astype(np.uint32)


def f32(seed: int, count: int) -> Words:
    """u32[count]: the special patterns first, as far as they fit, then every kind in turn."""
    w = words(seed, count)
    fraction, sign, pick = _part(w, 0, 23), _part(w, 23, 1), _part(w, 24, 20)
    few = fraction & ~((1 << (12 + pick % 11)) - 1)
    kinds = (
        _part(w, 0, 32).astype(np.uint32),
        _number(sign, 107 + pick % 28, fraction),
        _number(sign, 119 + pick % 16, few),
        _number(sign, pick % 3, fraction),
        special()[pick % len(special())],
        _number(sign, pick % 256, few),
        _number(sign, 107 + pick % 28, fraction),
        _part(w, 0, 32).astype(np.uint32),
    )
    out = np.choose(_part(w, 60, 3), kinds)
    first = special()[:count]
    out[: len(first)] = first
    return out


def f32_pairs(seed: int, count: int) -> tuple[Words, Words]:
    """Two u32[count]: all pairs of edges first, then pairs that cancel, tie, are equal, or are unrelated."""
    w = words(seed + 1, count)
    a = np.roll(f32(seed, count), int(w[0] % np.uint64(count)))
    near = ((a.astype(np.int64) + _part(w, 0, 3) - 4) % 2**32).astype(np.uint32)
    exponent = _part(a.astype(np.uint64), 23, 8)
    half_ulp = _number(_part(w, 3, 1), exponent - 24 - _part(w, 4, 1), _part(w, 5, 2) << 21)
    other = f32(seed + 2, count)[::-1]
    b = np.choose(_part(w, 60, 3), (near, near ^ SIGN, half_ulp, a, other, other, other, other))
    edge = np.array((*EDGES, *HARD), dtype=np.uint32)
    edge = np.concatenate([edge, edge ^ SIGN])
    left, right = (grid.reshape(-1)[:count] for grid in np.meshgrid(edge, edge))
    a[: len(left)], b[: len(right)] = left, right
    return a, b.astype(np.uint32)


def i32(seed: int, count: int) -> np.ndarray:
    """i32[count]: the ends of the range, numbers that f32 rounds, small and any numbers."""
    w = words(seed, count)
    any_ = _part(w, 0, 32) - 2**31
    small = _part(w, 0, 5) - 16
    ties = (_part(w, 0, 25) << _part(w, 25, 3)) * (1 - 2 * _part(w, 28, 1))
    ends = np.array((0, 2**31 - 1, -(2**31), 2**24, -(2**24), 255))[_part(w, 0, 16) % 6] + _part(w, 16, 3) - 4
    out = np.choose(_part(w, 60, 2), (any_, small, ties, ends))
    return np.clip(out, -(2**31), 2**31 - 1).astype(np.int32)


def u8(seed: int, count: int) -> np.ndarray:
    """u8[count], every value among any 256 in a row."""
    return ((np.arange(count) + seed) % 256).astype(np.uint8)


def bools(seed: int, count: int) -> np.ndarray:
    """bool[count]."""
    return _part(words(seed, count), 7, 1).astype(np.bool_)


def exponents(seed: int, count: int) -> np.ndarray:
    """i16[count]: near what quantise allows, at its ends, and anything."""
    w = words(seed, count)
    kinds = (_part(w, 0, 9) - 256, _part(w, 0, 4) - 133, _part(w, 0, 4) + 121, _part(w, 0, 16) - 2**15)
    return np.choose(_part(w, 60, 2), kinds).astype(np.int16)


def indices(seed: int, count: int, size: int) -> np.ndarray:
    """i32[count]: mostly within [0, size), some beyond both ends."""
    w = words(seed, count)
    inside, around = _part(w, 0, 32) % size, _part(w, 0, 32) % (size + 8) - 4
    far = np.where(_part(w, 32, 1) == 1, 2**31 - 1, -(2**31))
    return np.choose(_part(w, 60, 3) // 3, (inside, around, far)).astype(np.int32)


def rows(seed: int, count: int, length: int) -> Words:
    """u32[count, length]: rows that are hard to sum, scale or compare; row i is of kind i mod 12."""
    w = words(seed, count * length).reshape(count, length)
    head = words(seed + 3, count)[:, None]
    fraction, sign, pick = _part(w, 0, 23), _part(w, 23, 1), _part(w, 24, 20)
    scale = _part(head, 0, 20) % 255
    column = np.arange(length)[None, :]
    spread = _number(sign, scale - pick % 30, fraction)
    finite = _number(sign, pick % 255, fraction)
    partner = np.where(column % 2 == 1, column - 1, np.minimum(column + 1, length - 1))
    cancelling = np.where(column % 2 == 1, np.take_along_axis(spread, partner, 1) ^ SIGN, spread)
    unpaired = column >= length - 2 + length % 2
    cancelling = np.where(unpaired, _number(sign, scale - 40, fraction), cancelling)
    # Odd multiples of half the quantisation step 2^(e - 13), e being that of the row's first number.
    half = 1 << (10 + pick % 13)
    ties = _number(sign, scale - pick % 13, fraction & -half | half)
    ties = np.where(column == 0, _number(sign, scale + 0 * pick, fraction & 0x7FF800), ties)
    one_size = _number(sign, scale + 0 * pick, np.full_like(fraction, 0x7FFFFF))
    place = _part(head, 20, 20) % length
    infinite = np.where(
        column == place, np.where(sign == 1, 0xFF800000, 0x7F800000).astype(np.uint32), spread
    )
    unequal = np.where(column == (place * 7 + 1) % length, infinite ^ SIGN, infinite)
    unequal = np.where(column == place, 0x7F800000, unequal)
    undefined = np.where(
        column == place, (0x7F800001 + fraction).astype(np.uint32) | SIGN * (sign == 1), spread
    )
    kinds = (
        spread,
        cancelling,
        ties,
        finite,
        (sign << 31).astype(np.uint32),
        _number(sign, 0 * pick, fraction),
        _number(sign, 254 - pick % 2, fraction),
        one_size,
        infinite,
        np.where(_part(head, 40, 1) == 1, unequal, undefined),
        np.where(pick % 3 == 0, 0x3F800000, _number(sign, 127 + 0 * pick, 0 * pick)).astype(np.uint32),
        np.where(pick % 64 == 0, _part(w, 0, 32), finite).astype(np.uint32),
    )
    kind = (np.arange(count) % len(kinds))[:, None]
    return np.choose(np.broadcast_to(kind, (count, length)), [k.astype(np.uint32) for k in kinds])


def numbers(patterns: Words) -> Tensor:
    """The f32 tensor with these patterns, of their shape."""
    return torch.from_numpy(np.ascontiguousarray(patterns).view(np.float32).copy())


def uniform(seed: int, count: int, exponent: int) -> Tensor:
    """f32[count]: multiples of 2^(exponent-23) in [-2^exponent, 2^exponent), exact on every machine."""
    whole = _part(words(seed, count), 40, 24) - 2**23
    return torch.from_numpy(whole.astype(np.float32) * np.float32(2.0 ** (exponent - 23)))

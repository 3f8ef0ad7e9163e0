"""Input bit patterns for the numerics tests: uniform, special, and around the known hard inputs.

Contract: deterministic for a seed; f32 patterns are uint32 arrays. Not guaranteed: full coverage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from assay.program.isa import Op

HARD_LOG = (0x3C413D3A, 0x41178FEB, 0x4C5D65A5, 0x65D890D3, 0x6F31A8EC)
HARD_EXP = (0xC16912CD,)
NAN = 0x7FC00000
SPECIAL = (
    0x00000000, 0x00000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x00800001, 0x33000000, 0x33000001,
    0x337FFFFF, 0x34000000, 0x3E800000, 0x3EFFFFFF, 0x3F000000, 0x3F3504F3, 0x3F3504F4, 0x3F7FFFFF,
    0x3F800000, 0x3F800001, 0x3FB504F3, 0x3FB504F4, 0x40000000, 0x40400000, 0x40800000, 0x41200000,
    0x42B17218, 0x42B20000, 0x42CFF1B5, 0x42D00000, 0x4B000000, 0x4B7FFFFF, 0x4B800000, 0x4DFFFFFF,
    0x4E000000, 0x4EFFFFFF, 0x4F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF,
    0x3FC90FDB, 0x40490FDB, 0x3E7FFFFF, 0x3F400000, 0x40700000,
)  # fmt: skip


def by_model(word: str, *operands: Any, **attributes: Any) -> Any:
    """One element of an instruction by its integer-only model."""
    model = Op[word.upper()].row.model
    assert model is not None
    return model(*operands, **attributes)


def special() -> np.ndarray:
    """Special patterns of both signs, hard inputs, powers of two, and the neighbours of all of them."""
    centres = np.array(SPECIAL + HARD_LOG + HARD_EXP + tuple(e << 23 for e in range(256)), dtype=np.int64)
    near = (centres[:, None] + np.arange(-2, 3)).reshape(-1) % 2**32
    return np.unique(np.concatenate([near, near ^ 0x80000000])).astype(np.uint32)


def unary(seed: int, count: int = 10_000) -> np.ndarray:
    """At least `count` patterns: the special ones, then half uniform bits and half ordinary magnitudes."""
    generator = np.random.default_rng(seed)
    fixed = special()
    rest = max(count - len(fixed), 0)
    uniform = generator.integers(0, 2**32, rest // 2 + 1, dtype=np.uint64).astype(np.uint32)
    ordinary = generator.normal(0.0, 4.0, rest // 2 + 1).astype(np.float32).view(np.uint32)
    return np.concatenate([fixed, uniform, ordinary])


def pairs(seed: int, count: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    """At least `count` pairs: all pairs of special patterns, then random ones, some of adjacent patterns."""
    generator = np.random.default_rng(seed)
    signed = np.array(SPECIAL + tuple(s | 0x80000000 for s in SPECIAL), dtype=np.uint32)
    left, right = (grid.reshape(-1) for grid in np.meshgrid(signed, signed))
    a, b = unary(seed + 1, count), unary(seed + 2, count)
    length = max(count - len(left), 3000)
    a = generator.permutation(a)[:length]
    b = generator.permutation(b)[:length]
    close = (a.astype(np.int64) + generator.integers(-3, 4, length)) % 2**32
    b = np.where(generator.random(length) < 0.3, close, b).astype(np.uint32)
    return np.concatenate([left, a]), np.concatenate([right, b])


def tensor(patterns: np.ndarray) -> torch.Tensor:
    """The f32 tensor with these patterns."""
    return torch.from_numpy(np.ascontiguousarray(patterns).view(np.float32).copy())


def bits(values: torch.Tensor) -> np.ndarray:
    """Patterns of an f32 tensor with every NaN as 0x7fc00000, or the integers of another tensor."""
    if values.dtype != torch.float32:
        return values.numpy().astype(np.int64).reshape(-1)
    patterns = values.contiguous().numpy().view(np.uint32).reshape(-1).astype(np.int64)
    return np.where((patterns & 0x7FFFFFFF) > 0x7F800000, NAN, patterns)


def assert_same(got: torch.Tensor, want: list[int], *inputs: np.ndarray) -> None:
    """Bitwise equality, naming the first input that differs."""
    expected = np.array(
        [NAN if _is_nan(w) and got.dtype == torch.float32 else w for w in want], dtype=np.int64
    )
    wrong = np.nonzero(bits(got) != expected)[0]
    if len(wrong):
        i = wrong[0]
        operands = [hex(int(x[i])) for x in inputs]
        raise AssertionError(f"{len(wrong)} differ; at {operands}: {bits(got)[i]:#x}, model {expected[i]:#x}")


def _is_nan(pattern: int) -> bool:
    return (pattern & 0x7FFFFFFF) > 0x7F800000

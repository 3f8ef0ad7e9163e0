"""Sizes of packed integers (``numerics.packed``), without importing tensors."""

from __future__ import annotations

MAX_WIDTH = 16
HEADER_BYTES = 4
"""Size of the minimum value, i32, little-endian."""


def packed_bytes(count: int, width: int) -> int:
    """Bytes of `count` packed values of `width` bits."""
    return HEADER_BYTES + -(-count * width // 8)

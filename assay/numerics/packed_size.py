"""Lengths of packed whole numbers (``numerics.packed``), for whoever needs no tensors."""

from __future__ import annotations

MAX_WIDTH = 16
HEADER_BYTES = 4
"""The least number, i32, little-endian."""


def packed_bytes(count: int, width: int) -> int:
    """Length of `count` numbers of `width` bits, packed."""
    return HEADER_BYTES + -(-count * width // 8)

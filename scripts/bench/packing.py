"""A wire as bytes: what the others really fetch of a shard's change.

Contract: `unpacked(coding, packed(coding, wire, n), shape)` is the wire, bit for bit, for every wire that the
coding encodes of a tensor of `shape` with n elements. Codes and places take as many bits as they need, first
bit lowest; each tensor of a wire begins at a whole byte; f32 is little-endian. What stands in a last block
beyond n elements is not sent; it comes back as code 0, which `decode` cuts off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from assay.training.codings import E3M0, Bins, Coding, Integers, Largest, LowRank, Whole, Wire

Piece = tuple[tuple[int, int], int]
"""A tensor's shape as [rows, columns], and the bits of an element: 32 is f32."""


def _pieces(coding: Coding, n: int) -> list[Piece]:
    """The tensors of a wire of n elements. Raises TypeError for a coding of somebody else's."""
    if isinstance(coding, Whole):
        return [((1, n), 32)]
    if isinstance(coding, E3M0 | Integers | Bins):
        block = min(coding.block, n)
        rows = -(-n // block)
        scales = 1 << coding.width if isinstance(coding, Bins) else 1
        return [((rows, block), _width(coding)), ((rows, scales), 32)]
    if isinstance(coding, Largest):
        chunk, kept = coding.chunk((n,)), coding.kept((n,))
        rows = -(-n // chunk)
        return [((rows, kept), (chunk - 1).bit_length()), *_pieces(coding.values, rows * kept)]
    raise TypeError(f"no packing for {coding}")


def _width(coding: E3M0 | Integers | Bins) -> int:
    """Bits of a code, its sign among them."""
    return 4 if isinstance(coding, E3M0) else coding.width


def _lengths(coding: Coding, n: int) -> list[int]:
    """Elements of each tensor that are sent."""
    pieces = _pieces(coding, n)
    sent = [rows * columns for (rows, columns), _ in pieces]
    if isinstance(coding, E3M0 | Integers | Bins):
        sent[0] = n
    if isinstance(coding, Largest) and isinstance(coding.values, Bins):
        sent[1] = sent[0]
    return sent


def _bits(x: np.ndarray, width: int) -> bytes:
    shifts = np.arange(width, dtype=np.uint32)
    return np.packbits((x.astype(np.uint32)[:, None] >> shifts) & 1, bitorder="little").tobytes()


def _numbers(data: bytes, width: int, count: int) -> np.ndarray:
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=width * count, bitorder="little")
    return bits.reshape(count, width).astype(np.int64) @ (1 << np.arange(width, dtype=np.int64))


def packed(coding: Coding, wire: Sequence[Tensor], n: int) -> bytes:
    """The bytes of the wire of a tensor with n elements."""
    if isinstance(coding, LowRank):
        return b"".join(x.detach().reshape(-1).numpy().astype("<f4").tobytes() for x in wire)
    out = []
    for x, (_, width), count in zip(wire, _pieces(coding, n), _lengths(coding, n), strict=True):
        flat = x.detach().reshape(-1)[:count].numpy()
        out.append(flat.astype("<f4").tobytes() if width == 32 else _bits(flat & ((1 << width) - 1), width))
    return b"".join(out)


def _low_rank(coding: LowRank, data: bytes, shape: Sequence[int]) -> Wire:
    if 8 * len(data) != coding.bits(shape):
        raise ValueError(f"{len(data)} bytes are no wire of {math.prod(shape)} elements of {coding}")
    numbers = torch.from_numpy(np.frombuffer(data, "<f4").copy())
    if (found := coding.parts(shape)) is None:
        return (numbers.reshape(tuple(shape)),)
    rows, columns, rank = found
    left, right = numbers.split([rows * rank, columns * rank])
    return left.reshape(rows, rank), right.reshape(columns, rank)


def unpacked(coding: Coding, data: bytes, shape: Sequence[int]) -> Wire:
    """The wire of a tensor of this shape. Raises ValueError unless `data` has exactly its length."""
    if isinstance(coding, LowRank):
        return _low_rank(coding, data, shape)
    n, at, out = math.prod(shape), 0, []
    pieces, lengths = _pieces(coding, n), _lengths(coding, n)
    if len(data) != sum(-(-width * count // 8) for (_, width), count in zip(pieces, lengths, strict=True)):
        raise ValueError(f"{len(data)} bytes are no wire of {n} elements of {coding}")
    for (size, width), count in zip(pieces, lengths, strict=True):
        part = data[at : at + -(-width * count // 8)]
        at += len(part)
        if width == 32:
            out.append(torch.from_numpy(np.frombuffer(part, "<f4").copy()).reshape(size))
            continue
        numbers = _numbers(part, width, count)
        if isinstance(coding, E3M0 | Integers):
            sign = 1 << (width - 1)
            numbers = (numbers ^ sign) - sign
        whole = np.zeros(math.prod(size), np.int32)
        whole[:count] = numbers
        out.append(torch.from_numpy(whole).reshape(size))
    if isinstance(coding, Whole):
        out = [out[0].reshape(tuple(shape))]
    if isinstance(coding, Largest) and isinstance(coding.values, Whole):
        out[1] = out[1].reshape(out[0].shape)
    return tuple(out)

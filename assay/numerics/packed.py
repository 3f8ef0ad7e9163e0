"""Packs i32 tensors to the bits that their values need (docs/formats.md, F3.5).

Contract: `unpacked(packed(x, w), w, shape)` is x, bit for bit, for every i32 x whose values lie in a range of
2^w; `width` is the minimum w. A tensor has one packing: decoding refuses any other length, a larger width
than needed, a value beyond i32, and non-zero padding. Extra memory is bounded, whatever the bytes say. Roots
and arithmetic use the i32 values; only files are packed.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from assay.numerics.encoding import EncodingError
from assay.numerics.packed_size import HEADER_BYTES, MAX_WIDTH, packed_bytes

_SLAB = 1 << 16
"""Values processed at a time; a multiple of 8, so that each slab starts at a whole byte."""


def width(tensor: Tensor) -> int:
    """Bits per value of a tensor's packing; 0 if that saves nothing, or it is not i32."""
    if tensor.dtype != torch.int32 or not tensor.numel():
        return 0
    least, most = tensor.aminmax()
    bits = max((int(most) - int(least)).bit_length(), 1)
    shorter = bits <= MAX_WIDTH and packed_bytes(tensor.numel(), bits) < 4 * tensor.numel()
    return bits if shorter else 0


def packed(tensor: Tensor, bits: int) -> bytes:
    """Packs a tensor whose `width` is `bits`, at least 1."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).numpy()
    least = flat.min()
    parts = [least.astype("<i4").tobytes()]
    parts += [_bits(flat[at : at + _SLAB] - least, bits) for at in range(0, len(flat), _SLAB)]
    return b"".join(parts)


def unpacked(data: bytes | memoryview, bits: int, shape: tuple[int, ...]) -> Tensor:
    """Unpacks an i32 tensor. Raises EncodingError for anything else."""
    count, view = math.prod(shape), memoryview(data).cast("B")
    if not 1 <= bits <= MAX_WIDTH or len(view) != packed_bytes(count, bits):
        raise EncodingError(f"{len(view)} bytes are not {count} numbers of {bits} bits; refetch them")
    least, slab = int.from_bytes(view[:HEADER_BYTES], "little", signed=True), _SLAB * bits // 8
    codes = np.empty(count, np.int32)
    for at in range(0, count, _SLAB):
        begin = HEADER_BYTES + at // _SLAB * slab
        codes[at : at + _SLAB] = _numbers(view[begin : begin + slab], bits, min(_SLAB, count - at))
    most = int(codes.max())
    if least + most > 2**31 - 1 or codes.min() or max(most.bit_length(), 1) != bits:
        raise EncodingError(f"numbers of {bits} bits in another packing than theirs; refetch them")
    tail = count * bits % 8
    if tail and view[-1] >> tail:
        raise EncodingError("packed numbers have bits after the last; refetch them")
    return torch.from_numpy(codes + np.int32(least)).reshape(shape)


def _bits(codes: np.ndarray, bits: int) -> bytes:
    """Packs codes, lowest bit first."""
    spread = (codes.astype(np.uint32)[:, None] >> np.arange(bits, dtype=np.uint32)) & 1
    return np.packbits(spread.astype(np.uint8), bitorder="little").tobytes()


def _numbers(data: memoryview, bits: int, count: int) -> np.ndarray:
    spread = np.unpackbits(np.frombuffer(data, np.uint8), count=bits * count, bitorder="little")
    return spread.reshape(count, bits).astype(np.int32) @ (1 << np.arange(bits, dtype=np.int32))

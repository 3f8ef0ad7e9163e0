"""Tensors as canonical little-endian bytes and back (docs/arithmetic.md, A2, A3).

Contract: equal tensors (all NaNs being equal) have equal bytes; every NaN is written as 0x7fc00000.
Decoding is strict: a wrong length, a bool byte above 1 or another NaN pattern is refused, so bytes and
tensors correspond one to one. Not guaranteed: a copy; `to_bytes` returns a view of the tensor's memory
where it can, valid until the tensor changes.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import torch
from torch import Tensor

from assay.numerics.constants import CANONICAL_NAN_BITS

ITEM_BYTES = {torch.float32: 4, torch.int32: 4, torch.int16: 2, torch.uint8: 1, torch.bool: 1}
_NUMPY = {
    torch.float32: np.float32,
    torch.int32: np.int32,
    torch.int16: np.int16,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}

if sys.byteorder != "little":
    raise ImportError("numerics needs a little-endian machine: tensor bytes are hashed as they lie in memory")


class EncodingError(ValueError):
    """Bytes that encode no tensor, or a tensor of an unsupported dtype; the data is wrong."""


def to_bytes(tensor: Tensor) -> memoryview:
    """Canonical bytes of a tensor, row-major; no copy for contiguous CPU tensors without NaN.

    Raises EncodingError for a dtype outside f32, i32, i16, u8, bool.
    """
    if tensor.dtype not in ITEM_BYTES:
        raise EncodingError(f"dtype {tensor.dtype} has no bytes; convert it to one of {list(ITEM_BYTES)}")
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    flat = flat.as_strided(flat.shape, (1,))  # one element may have stride 0 and still count as contiguous
    if flat.dtype == torch.float32:
        nan = torch.isnan(flat)
        if bool(nan.any()):
            flat = torch.where(nan, CANONICAL_NAN_BITS, flat.view(torch.int32)).contiguous()
    return flat.view(torch.uint8).numpy().data.toreadonly()


def from_bytes(data: bytes | memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Decodes a CPU tensor; always a copy.

    Raises EncodingError if the length does not match the shape, or the bytes are not canonical.
    """
    if dtype not in ITEM_BYTES:
        raise EncodingError(f"dtype {dtype} has no bytes; ask for one of {list(ITEM_BYTES)}")
    view = memoryview(data).cast("B")
    expected = math.prod(shape) * ITEM_BYTES[dtype]
    if len(view) != expected:
        raise EncodingError(f"{len(view)} bytes given, {shape} of {dtype} needs {expected}; refetch it")
    if dtype == torch.bool and bool((np.frombuffer(view, dtype=np.uint8) > 1).any()):
        raise EncodingError("a bool byte is above 1; refetch the tensor")
    tensor = torch.from_numpy(np.frombuffer(view, dtype=_NUMPY[dtype]).copy()).reshape(shape)
    if dtype == torch.float32:
        nan = torch.isnan(tensor)
        if bool(nan.any()) and bool((tensor.view(torch.int32)[nan] != CANONICAL_NAN_BITS).any()):
            raise EncodingError("a NaN is not 0x7fc00000; refetch the tensor")
    return tensor

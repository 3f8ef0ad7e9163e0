"""Computes tensor roots with the CPU's SHA-256 instructions, many leaves at a time.

Contract: `load` compiles ``sha_kernel.c`` (half a second, then cached: ``numerics.native``) and compares it
with ``protocol.trees`` in every process before use. Without a compiler or such a CPU, or if a root differs,
it returns None with a warning: then ``protocol.trees`` hashes at less than half the speed. A call releases
the GIL, so threads hash concurrently. Not guaranteed: a kernel elsewhere than on x86 and 64-bit ARM under
Linux.

Source: docs/decisions/0014-c-kernels.md.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

from assay.numerics.constants import CANONICAL_NAN_BITS
from assay.numerics.native import Shared, Unusable, compiled
from assay.protocol import trees

_SOURCE = Path(__file__).with_suffix(".c")


class Kernel:
    """A compiled kernel."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._tensor_root = library.tensor_root
        self._tensor_root.restype = None
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        self._tensor_root.argtypes = [
            pointer, size, size, ctypes.c_int, ctypes.c_char_p, size, pointer, pointer
        ]  # fmt: skip

    def tensor_root(self, address: int, size: int, floats: bool, key: bytes = b"") -> bytes:
        """Root of the tree over `size` > 0 bytes at `address`, keyed if `key` (32 bytes) is given.

        The bytes must not change meanwhile. With `floats` they are f32: every NaN is hashed as 0x7fc00000.
        """
        prefix, root = trees.prefix(key), ctypes.create_string_buffer(len(trees.ZERO))
        digests = np.empty((-(-size // trees.LEAF_BYTES) + 1, len(trees.ZERO)), np.uint8)
        self._tensor_root(
            address, size, trees.LEAF_BYTES, floats, prefix, len(prefix), digests.ctypes.data, root
        )
        return root.raw


def build(source: Path) -> Kernel:
    """Compiles, loads and checks a kernel. Raises Unusable."""
    return checked(compiled(source))


def checked(library: ctypes.CDLL) -> Kernel:
    """The kernel of a library, compared with the definition. Raises Unusable."""
    if not library.usable():
        raise Unusable("its processor has no SHA-256 instructions")
    kernel = Kernel(library)
    _check(kernel)
    return kernel


def _check(kernel: Kernel) -> None:
    """Compares roots with the definition at every way of filling a block or row. Raises Unusable."""
    most = 11 * trees.LEAF_BYTES
    words = np.arange(most // 4, dtype=np.uint32) * np.uint32(0x9E3779B1)
    words[::97] = 0xFFC00001
    numbers = words.view(np.float32)
    canonical = np.where(np.isnan(numbers), np.uint32(CANONICAL_NAN_BITS), words)
    for size in (*range(16, 68), *range(trees.LEAF_BYTES, most, 2044)):
        for key in (b"", b"\x5a" * 32):
            for floats, meant in ((False, words), (True, canonical))[: 1 if size % 4 else 2]:
                wanted = trees.tensor_root(meant.view(np.uint8)[:size].data, key)
                if kernel.tensor_root(words.ctypes.data, size, floats, key) != wanted:
                    raise Unusable(f"the compiled kernel gives another root for {size} bytes")


load = Shared(lambda: build(_SOURCE), "hashing takes more than twice as long")
"""The kernel, or None if unavailable."""

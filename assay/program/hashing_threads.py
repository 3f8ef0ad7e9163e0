"""Hashes tensors in background threads without the GIL.

Contract: every root is that of ``protocol.trees.tensor_root`` over the tensor's canonical bytes. Tensors are
read later and in place, so they must not be changed. Each is kept alive until its root is ready; the only
extra memory is a contiguous copy of those being hashed. Errors are raised by the future's `result`. Not
guaranteed: order, and speed without ``program.sha_kernel``: then threads take the GIL at each leaf
(docs/decisions/0014-c-kernels.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import torch
from torch import Tensor

from assay.numerics.encoding import ITEM_BYTES, to_bytes
from assay.program import sha_kernel
from assay.protocol import trees

PLAIN_BYTES = 64 << 10
"""Maximum size of tensors hashed in plain Python, so that small jobs compile no kernel."""


def tensor_root(x: Tensor, key: bytes = b"") -> bytes:
    """Root of a CPU tensor's tree, keyed if `key` (32 bytes) is given. Raises EncodingError for an
    unsupported dtype."""
    size = x.numel() * x.element_size()
    kernel = sha_kernel.load() if size > PLAIN_BYTES and x.dtype in ITEM_BYTES else None
    if kernel is None:
        return trees.tensor_root(to_bytes(x), key)
    x = x.contiguous()
    return kernel.tensor_root(x.data_ptr(), size, x.dtype is torch.float32, key)


class Hasher:
    """Hashes tensors on `threads` threads."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="hashing")
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def tensor_root(self, x: Tensor, key: bytes = b"") -> Future[bytes]:
        """Future of a tensor's root, keyed if `key` (32 bytes) is given. `result` raises EncodingError for an
        unsupported dtype."""
        x = x.detach()
        if x.device.type != "cuda":
            return self._threads.submit(tensor_root, x, key)
        x = x.contiguous()
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(x.device))
        return self._threads.submit(lambda: tensor_root(self._fetched(x, ready), key))

    def roots(self, tensors: Sequence[Tensor]) -> list[Future[bytes]]:
        """Futures of the tensor roots of a state's slots."""
        return [self.tensor_root(x) for x in tensors]

    def _fetched(self, x: Tensor, ready: torch.cuda.Event) -> Tensor:
        """Copies the tensor to pinned memory once it is `ready`, concurrently with the device's work."""
        stream = self._streams.setdefault(x.device, torch.cuda.Stream(x.device))
        with torch.cuda.stream(stream):
            ready.wait(stream)
            pinned = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
            pinned.copy_(x, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(stream)
        copied.synchronize()
        return pinned

    def close(self) -> None:
        """Stops the threads after pending work."""
        self._threads.shutdown()


@cache
def shared() -> Hasher:
    """This process's hasher, with one thread per CPU."""
    return Hasher(os.cpu_count() or 1)

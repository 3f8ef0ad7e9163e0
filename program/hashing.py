"""Hashing tensors beside the computation, on processes of its own.

Contract: every root is that of ``protocol.trees.tensor_root`` over the tensor's canonical bytes. Tensors are
read later, so they must not be changed; each is held until its root is there, which is all the memory that is
taken besides 2 MiB a process. Whatever goes wrong is raised by the future's `result`. Processes start when
the first large tensor comes, end with this one, and are replaced when they die. Not guaranteed: order.

Threads would not do: Python's lock is held while compiled steps run, and changes hands at every leaf
(docs/decisions/0014-hashing-beside-compute.md).
"""

from __future__ import annotations

import atexit
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import LifoQueue
from typing import IO

import numpy as np
import torch
from torch import Tensor

from numerics.constants import CANONICAL_NAN_BITS
from numerics.encoding import ITEM_BYTES, to_bytes
from program.hash_worker import ANSWER_BYTES, COMMAND, HEIGHT, LEAF_AT, ROW_BYTES, ROWS
from protocol import trees
from protocol.errors import Retry

PLAIN_BYTES = 64 << 10
"""Tensors up to this size are hashed where they are: asking another process takes as long."""
PIECE_BYTES = ROWS * trees.LEAF_BYTES
_ROOT = Path(__file__).resolve().parent.parent
_START = f"import sys; sys.path.insert(0, {str(_ROOT)!r}); from program.hash_worker import main; main()"


class HashingFailed(Retry):
    """A hashing process ended before it answered."""

    code = "hashing-failed"


class _Lane:
    """One process and the memory that is shared with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rows = np.empty((0, 0), np.uint8)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with _shared_file() as file:
                os.ftruncate(file.fileno(), ROWS * ROW_BYTES)
                memory = mmap.mmap(file.fileno(), ROWS * ROW_BYTES)
                self._process = subprocess.Popen(
                    [sys.executable, "-S", "-E", "-s", "-c", _START, str(file.fileno())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    pass_fds=[file.fileno()],
                    start_new_session=True,
                )
            self._rows = np.frombuffer(memory, np.uint8).reshape(ROWS, ROW_BYTES)[:, LEAF_AT:]
        return self._process

    @property
    def pid(self) -> int | None:
        """Id of the process, if it runs."""
        return None if self._process is None else self._process.pid

    def root(self, array: np.ndarray, key: bytes) -> bytes:
        """Tensor root of a contiguous array. Raises HashingFailed."""
        flat = array.reshape(-1)
        size = flat.nbytes
        if size <= PIECE_BYTES:
            return self._piece(flat, key, trees.depth(-(-size // trees.LEAF_BYTES)))
        step = PIECE_BYTES // flat.itemsize
        pieces = [self._piece(flat[i : i + step], key, HEIGHT) for i in range(0, len(flat), step)]
        return trees.join(pieces, HEIGHT, -(-size // trees.LEAF_BYTES))

    def _piece(self, flat: np.ndarray, key: bytes, height: int) -> bytes:
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        data = _canonical(flat).view(np.uint8)
        full, rest = divmod(len(data), trees.LEAF_BYTES)
        self._rows[:full] = data[: full * trees.LEAF_BYTES].reshape(full, trees.LEAF_BYTES)
        if rest:
            self._rows[full, :rest] = data[full * trees.LEAF_BYTES :]
        command = COMMAND.pack(key, bool(key), height, rest or trees.LEAF_BYTES, full + bool(rest))
        answer = b""
        with suppress(BrokenPipeError):
            process.stdin.write(command)
            process.stdin.flush()
            answer = process.stdout.read(ANSWER_BYTES)
        if len(answer) != ANSWER_BYTES:
            self.close()
            raise HashingFailed(
                f"hashing process {process.pid} ended with status {process.returncode}, so a root is missing",
                hint="compute it again; if this repeats, look for a lack of memory",
            )
        return answer

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()


class Hasher:
    """Hashes tensors on up to `processes` processes at once."""

    def __init__(self, processes: int) -> None:
        self._idle: LifoQueue[_Lane] = LifoQueue()
        self._lanes = [_Lane() for _ in range(processes)]
        for lane in self._lanes:
            self._idle.put(lane)
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="hashing")
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        atexit.register(self.close)

    def tensor_root(self, x: Tensor, key: bytes = b"") -> Future[bytes]:
        """Root of a tensor's tree, keyed if `key` (32 bytes) is given. `result` raises HashingFailed, and
        EncodingError for a dtype that has no bytes."""
        if x.dtype not in ITEM_BYTES or x.numel() * x.element_size() <= PLAIN_BYTES:
            return self._threads.submit(lambda: trees.tensor_root(to_bytes(x), key))
        x, ready = x.detach().contiguous(), None
        if x.device.type == "cuda":
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(x.device))
        return self._threads.submit(self._root, x, key, ready)

    @property
    def processes(self) -> list[int]:
        """Ids of the processes that run."""
        return [pid for lane in self._lanes if (pid := lane.pid) is not None]

    def roots(self, tensors: Sequence[Tensor]) -> list[Future[bytes]]:
        """Tensor roots of a state's slots."""
        return [self.tensor_root(x) for x in tensors]

    def _root(self, x: Tensor, key: bytes, ready: torch.cuda.Event | None) -> bytes:
        if ready is not None:
            x = self._fetched(x, ready)
        lane = self._idle.get()
        try:
            return lane.root(x.numpy(), key)
        finally:
            self._idle.put(lane)

    def _fetched(self, x: Tensor, ready: torch.cuda.Event) -> Tensor:
        """The tensor in pinned memory, copied beside the device's computation once it is `ready`."""
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
        """End all processes, after what was asked of them."""
        atexit.unregister(self.close)
        self._threads.shutdown()
        for lane in self._lanes:
            lane.close()


@cache
def shared() -> Hasher:
    """This process's hasher: one process more than there are processors, to hash while others are filled."""
    return Hasher((os.cpu_count() or 1) + 1)


def _shared_file() -> IO[bytes]:
    """A file without a name, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("assay-hashing"), "r+b")
    return tempfile.TemporaryFile()


def _canonical(flat: np.ndarray) -> np.ndarray:
    """The same numbers with every NaN written as 0x7fc00000; the array itself if there is none."""
    if flat.dtype != np.float32:
        return flat
    with np.errstate(all="ignore"):
        if not np.isnan(np.add.reduce(flat)):
            return flat
    bits = flat.view(np.uint32).copy()
    bits[np.isnan(flat)] = CANONICAL_NAN_BITS
    return bits

"""A process that hashes leaves from shared memory, beside the one that computes.

Contract: for each command (key, height, bytes in the last leaf, leaves) the answer is the root of the
subtree of that height over the leaves in the rows; commands are answered in order until the pipe is closed.
Only the standard library is imported, so that it starts in a few hundredths of a second. Not guaranteed:
anything when the memory is written while a command is being answered.

Layout: a row has ROW_BYTES; its last LEAF_BYTES are the leaf, and what is hashed before it lies just before.
"""

from __future__ import annotations

import mmap
import struct
import sys
from hashlib import sha256

from protocol import trees

HEIGHT = 10
ROWS = 1 << HEIGHT
LEAF_AT = 64
ROW_BYTES = LEAF_AT + trees.LEAF_BYTES
COMMAND = struct.Struct("<32sBBHI")
"""Key, whether there is one, height, bytes in the last leaf, leaves."""
ANSWER_BYTES = 32


class Rows:
    """The rows of one piece of memory, and the prefix that stands in them."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._prefix = b""
        self._views: list[memoryview] = []

    def _begin(self, prefix: bytes) -> None:
        if prefix == self._prefix:
            return
        start = LEAF_AT - len(prefix)
        for row in range(0, ROWS * ROW_BYTES, ROW_BYTES):
            self._memory[row + start : row + LEAF_AT] = prefix
        ends = range(ROW_BYTES, ROWS * ROW_BYTES + 1, ROW_BYTES)
        self._views = [self._memory[end - ROW_BYTES + start : end] for end in ends]
        self._prefix = prefix

    def root(self, key: bytes, height: int, last_bytes: int, leaves: int) -> bytes:
        """Root of the subtree over the first `leaves` rows, the last of which is shorter."""
        self._begin(trees.prefix(key))
        views = self._views[:leaves]
        views[-1] = views[-1][: len(self._prefix) + last_bytes]
        return trees.subtree([sha256(view).digest() for view in views], height)


def main() -> None:
    """Answer commands on standard input; the memory's file descriptor is the only argument."""
    memory = mmap.mmap(int(sys.argv[1]), ROWS * ROW_BYTES)
    rows = Rows(memoryview(memory))
    commands, answers = sys.stdin.buffer, sys.stdout.buffer
    while len(command := commands.read(COMMAND.size)) == COMMAND.size:
        key, keyed, height, last_bytes, leaves = COMMAND.unpack(command)
        answers.write(rows.root(key if keyed else b"", height, last_bytes, leaves))
        answers.flush()

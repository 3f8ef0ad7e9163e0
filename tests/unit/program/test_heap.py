"""Freed memory stays in the process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_ROUNDS = """
import resource, sys
import numpy
from assay.program.heap import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        blocks = [numpy.ones(1 << 20, dtype=numpy.int32) for _ in range(8)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def _faults(kept: str) -> int:
    """Page faults of taking and freeing 32 MiB in blocks of 4 MiB four times, once they were taken before."""
    done = subprocess.run([sys.executable, "-c", _ROUNDS, kept], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc alone")
def test_freed_memory_is_not_faulted_in_again() -> None:
    assert _faults("returned") > 4 * 1024, "by default some of it is returned"
    assert _faults("kept") < 100

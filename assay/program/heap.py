"""Keeps the memory that a step frees for the next step.

Contract: after `keep_freed_memory` glibc returns freed memory to the system only above 2 GiB, and takes
blocks of up to 32 MiB from its heap. Otherwise a step of 12.9M parameters faults its intermediates in again,
20,000 to 30,000 pages, which costs a sixth of its time. Not guaranteed: anything with another allocator.
"""

from __future__ import annotations

import ctypes
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
_RETURNED = 2**31 - 1
_MAPPED = 2**25
"""The largest that glibc takes on 64-bit systems."""


@cache
def keep_freed_memory() -> None:
    """Sets the thresholds for the whole process; does nothing where malloc is not glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, _RETURNED)
        mallopt(M_MMAP_THRESHOLD, _MAPPED)

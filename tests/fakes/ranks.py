"""Ranks that are threads of the test's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from torch.distributed import HashStore

from assay.program.ranks.executor import end, serve
from assay.program.ranks.group import Group
from assay.program.ranks.launch import LOCAL

T = TypeVar("T")


def on_all(size: int, work: Callable[[Group], T]) -> list[T]:
    """What `work` gives on each of `size` ranks, at the same time."""
    store = HashStore()
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(Group(store, rank, size, LOCAL, 60)), range(size)))


@contextmanager
def first_of(size: int) -> Iterator[Group]:
    """The first rank's end of a group whose others serve."""
    store = HashStore()
    with ThreadPoolExecutor(size) as pool:
        others = [
            pool.submit(lambda rank=rank: serve(Group(store, rank, size, LOCAL, 60)))
            for rank in range(1, size)
        ]
        group = Group(store, 0, size, LOCAL, 60)
        try:
            yield group
        finally:
            if not group.broken:
                end(group)
            group.leave()
            for other in others:
                other.result(timeout=60)

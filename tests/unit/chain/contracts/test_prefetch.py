"""Prefetched calls of a batch: those that fit, once each, and none whose answer is known."""

from __future__ import annotations

from typing import Any

import pytest

from assay.chain.contracts.prefetch import filled


class Known(set[Any]):
    """Answers that are known, in batches of four."""

    batch = 4


KEYS = [("Tasks", "status", n) for n in range(12)]


@pytest.mark.parametrize(
    ("wanted", "known", "asked"),
    [
        ([0], [], [0, 5, 6, 7]),
        ([0, 0, 1], [5], [0, 1, 6, 7]),
        ([0, 1, 2, 3], [], [0, 1, 2, 3]),
        ([0, 1, 2, 3, 4], [4], [0, 1, 2, 3]),
        ([0, 1, 2, 3, 4], [], [0, 1, 2, 3, 4, 5, 6, 7]),
        ([0, 5], [], [0, 5, 6, 7]),
        ([0], [0], []),
    ],
)
def test_the_last_batch_is_filled_with_what_is_not_known(
    wanted: list[int], known: list[int], asked: list[int]
) -> None:
    answers: Any = Known(KEYS[n] for n in known)
    found = filled(answers, [KEYS[n] for n in wanted], iter(KEYS[5:]))
    assert found == [KEYS[n] for n in asked]

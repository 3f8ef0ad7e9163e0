"""Detects that blocks which were seen are gone.

Contract: exact for the heads of the last `KEPT` polls. For blocks between them, it returns how many lie
behind the newest one that is still there.
"""

from __future__ import annotations

from collections.abc import Callable

KEPT = 256


class Heads:
    """Heads of the chain at the last polls."""

    def __init__(self) -> None:
        self._seen: dict[int, str] = {}

    def look(self, number: int, block_hash: str, hash_of: Callable[[int], str | None]) -> int:
        """Number of blocks of the last poll that have been replaced or removed; `hash_of`: hash of a
        present block."""
        seen, top = self._seen, max(self._seen, default=number)
        there = (
            past
            for past in sorted(seen, reverse=True)
            if past <= number and (block_hash if past == number else hash_of(past)) == seen[past]
        )
        agreed = next(there, min(seen, default=number + 1) - 1)
        kept = [past for past in sorted(seen) if past <= agreed][-KEPT:]
        self._seen = {**{past: seen[past] for past in kept}, number: block_hash}
        return max(top - agreed, 0)

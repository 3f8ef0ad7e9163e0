"""Reads a follower's events incrementally, and reports how far back the past has changed.

Contract: everything `news` has returned, minus what it has taken back, equals the follower's `transactions`;
a call costs only what is new. Do not call it while the follower polls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.chain.eth.events import Event, EventFollower


@dataclass(frozen=True)
class News:
    """Changes since the last call: transactions read before, in blocks after `stays`, never happened."""

    stays: int | None
    """Last block that is still valid; None: nothing was replaced."""
    transactions: list[list[Event]]
    """New transactions in chain order."""


class EventReader:
    """One reader's position in the follower's transactions."""

    def __init__(self, follower: EventFollower, heeded: Callable[[str], bool]) -> None:
        """`heeded`: selects transactions by a log, as JSON in lower case."""
        self._follower, self._heeded = follower, heeded
        self._read_up_to = follower.first_block - 1
        self._rewinds = len(follower.rewinds)

    def news(self) -> News:
        """Returns the changes since the last call."""
        stays = min(self._follower.rewinds[self._rewinds :], default=None)
        after = self._read_up_to if stays is None else min(stays, self._read_up_to)
        found = list(self._follower.transactions(self._heeded, after))
        self._rewinds, self._read_up_to = len(self._follower.rewinds), self._follower.cursor
        return News(stays, found)

"""Reads on in a follower's events, from where it was, and says how far back the past has changed since.

Contract: what `news` has given, less what it has taken back, is what the follower's `transactions` gives, at
the price of what is new. Call it when the follower is not polled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.chain.eth.events import Event, EventFollower


@dataclass(frozen=True)
class News:
    """What has changed: of what was read before, that of later blocks than `stays` never happened."""

    stays: int | None
    """None: nothing was taken back."""
    transactions: list[list[Event]]
    """In chain order, those since."""


class EventReader:
    """One reader's place in the events of the transactions that it heeds."""

    def __init__(self, follower: EventFollower, heeded: Callable[[str], bool]) -> None:
        """`heeded`: of a log, as JSON in lower case, whether its transaction is wanted."""
        self._follower, self._heeded = follower, heeded
        self._read_up_to = follower.first_block - 1
        self._rewinds = len(follower.rewinds)

    def news(self) -> News:
        """What is new since the last call."""
        stays = min(self._follower.rewinds[self._rewinds :], default=None)
        after = self._read_up_to if stays is None else min(stays, self._read_up_to)
        found = list(self._follower.transactions(self._heeded, after))
        self._rewinds, self._read_up_to = len(self._follower.rewinds), self._follower.cursor
        return News(stays, found)

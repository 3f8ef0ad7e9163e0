"""Keeps the market index in step with the event follower, across reorganisations.

Contract: `index` is the fold of every event that the follower has returned. After a reorganisation it is
folded again from a snapshot before the replaced blocks, so the cost depends on what happened since and not on
the market's age. Two snapshots are kept, at least `SPACING` blocks apart, so that any reorganisation up to
that depth has one. A deeper one, or a failed fold, reads from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from assay.chain.contracts.index import MarketIndex
from assay.chain.eth.events import Event, EventFollower, RolledBack

SPACING = 64
"""Blocks between snapshots: the depth of a reorganisation that is handled without reading from genesis."""


class FollowedIndex:
    """Index of one follower's events. Not thread-safe."""

    def __init__(self, follower: EventFollower) -> None:
        self.index = MarketIndex()
        self._follower = follower
        self._copies: list[tuple[int, MarketIndex]] = []
        """Snapshots with their blocks, oldest first."""
        self._at = follower.first_block - 1
        """Block of the index, or an earlier one since which nothing has happened."""
        self._whole = True
        """True if the index includes everything that the follower returned."""

    def read(self) -> None:
        """Folds all events on disk. Raises KeyError and MalformedData if events contradict one another."""
        self._go_on_from(self._follower.first_block - 1, MarketIndex())

    def fold(self, changes: Sequence[Event | RolledBack]) -> int | None:
        """Folds the follower's last changes; returns the last valid block if blocks were replaced.

        After a failed fold no block counts as valid, as its changes are not returned again. Raises as `read`.
        """
        if not self._whole:
            self.clear()
            self.read()
            return self._follower.first_block - 1
        events = [change for change in changes if isinstance(change, Event)]
        if len(events) == len(changes):
            self._apply(events)
            return None
        agreed = min(change.block_number for change in changes if isinstance(change, RolledBack))
        while self._copies and self._copies[-1][0] > agreed:
            self._copies.pop()
        if self._copies:
            block, copy = self._copies[-1]
            self._go_on_from(block, copy.copy())
        else:
            self.read()
        return agreed

    def clear(self) -> None:
        """Clears the index."""
        self._copies.clear()
        self.index, self._at, self._whole = MarketIndex(), self._follower.first_block - 1, True

    def _go_on_from(self, block: int, index: MarketIndex) -> None:
        """Restores the index of this block and folds what has happened since."""
        self.index, self._at = index, block
        self._apply(self._follower.history(MarketIndex.heeds, after=block))

    def _apply(self, events: Iterable[Event]) -> None:
        """Folds events up to the last block read, and takes snapshots when due."""
        self._whole = False
        first = next(iter(events := iter(events)), None)
        if first is not None:
            self._fold_from(first, events)
        self._whole = True

    def _fold_from(self, first: Event, events: Iterable[Event]) -> None:
        cursor = self._follower.cursor
        early = max(cursor - SPACING, self._at)
        last = self._copies[-1][0] if self._copies else self._follower.first_block - 1
        due = early >= last + SPACING
        for event in chain([first], events):
            if due and event.block_number > early:
                self._copy(early)
                due = False
            self.index.apply(event)
        if due:
            self._copy(early)
        self._at = cursor

    def _copy(self, block: int) -> None:
        copy = self.index.copy()
        copy.just_over.clear()
        self._copies = [*self._copies[-1:], (block, copy)]

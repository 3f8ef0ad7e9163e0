"""The market's index of all events that were read, also after the past has changed.

Contract: `index` is what `MarketIndex` makes of every event that the follower has told. Where blocks are
gone, it is folded again from a copy of a block before them: that costs what has happened since, and not the
market's whole past. Two copies are kept, at least `SPACING` blocks apart, so that whatever goes back by so
many has one. Only what goes back further is read from the beginning, and what follows on a fold that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from assay.chain.contracts.index import MarketIndex
from assay.chain.eth.events import Event, EventFollower, RolledBack

SPACING = 64
"""Blocks from one copy to the next: as deep as a reorganisation may be without being read from genesis."""


class FollowedIndex:
    """The tables of one follower's events. Not safe to share between threads."""

    def __init__(self, follower: EventFollower) -> None:
        self.index = MarketIndex()
        self._follower = follower
        self._copies: list[tuple[int, MarketIndex]] = []
        """Each with the block that it is of, oldest first."""
        self._at = follower.first_block - 1
        """The block that the tables are of, or one before it since which nothing has happened."""
        self._whole = True
        """Whether the tables are of all that was told."""

    def read(self) -> None:
        """Fold what is on disk. Raises KeyError and MalformedData for events that contradict one another."""
        self._go_on_from(self._follower.first_block - 1, MarketIndex())

    def fold(self, changes: Sequence[Event | RolledBack]) -> int | None:
        """Fold what the follower has told last; the last block that has stayed, if others are gone. After a
        fold that failed none has, as what it was told is not told again.

        Raises as `read` does.
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
        """Forget everything."""
        self._copies.clear()
        self.index, self._at, self._whole = MarketIndex(), self._follower.first_block - 1, True

    def _go_on_from(self, block: int, index: MarketIndex) -> None:
        """Take these tables, which are of this block, and fold what has happened since."""
        self.index, self._at = index, block
        self._apply(self._follower.history(MarketIndex.heeds, after=block))

    def _apply(self, events: Iterable[Event]) -> None:
        """Fold all events from where the tables are to the last block that was read; copy them on the way, if
        that is due."""
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

"""A job's loss curve, from the losses in committed states, a few of which are read at a time.

Contract: reads the ends of tasks first, newest round first; then every segment's end, where a state is small
enough to be fetched for a picture. An unavailable state is asked for again later.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assay.client.losses import Losses
from assay.protocol.types import ClaimView, Kind, Phase, Terms

SMALL_STATE_BYTES = 16 << 20
"""States up to this size are read at every segment's end, larger ones at the ends of tasks only."""
AGAIN_AFTER = 20
"""Number of reads before an unavailable state is asked for again."""


class Curve:
    """Losses by claim and leaf."""

    def __init__(self, losses: Losses, terms: Terms) -> None:
        self._losses, self._terms = losses, terms
        self.known: dict[tuple[bytes, int], float] = {}
        """Training loss by claim and leaf of its segments tree."""
        self.tested: dict[bytes, float] = {}
        """Held-out loss of the parameters from which each claim started."""
        self._missed: dict[tuple[bytes, int], int] = {}
        self._turn = 0

    def read(self, claims: Sequence[ClaimView], most: int) -> int:
        """Reads up to `most` new states; returns the number read."""
        self._turn += 1
        found = 0
        for view, leaf in self._wanted(claims):
            if found >= most:
                break
            found += 1
            loss = self._losses.at(view, leaf)
            if loss is None:
                self._missed[view.claim_id, leaf] = self._turn
            else:
                self.known[view.claim_id, leaf] = loss
                if leaf == self._terms.segments and (tested := self._losses.tested(view)) is not None:
                    self.tested[view.claim_id] = tested
        return found

    def _wanted(self, claims: Sequence[ClaimView]) -> Iterator[tuple[ClaimView, int]]:
        tasks = [view for view in claims if view.claim.kind == Kind.TASK]
        tasks = [view for view in tasks if view.status.phase != Phase.VOID]
        tasks.sort(key=lambda view: -view.claim.round)
        last = self._terms.segments
        places = [(view, last) for view in tasks]
        if self._terms.state_bytes <= SMALL_STATE_BYTES:
            places += [(view, leaf) for view in tasks for leaf in range(1, last)]
        for view, leaf in places:
            key = (view.claim_id, leaf)
            missed = self._missed.get(key)
            if key not in self.known and (missed is None or self._turn - missed >= AGAIN_AFTER):
                yield view, leaf

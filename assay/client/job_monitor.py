"""Watches a running job for its client: fetches models of some rounds, and detects that it no longer learns.

Contract: `PeriodicFetcher` fetches the newest settled model into a folder named after its round, verified
against the settled root; a round that was never the newest at a poll is skipped. `stalled` uses held-out
losses only, which a job has with [held_out]. Nothing is sent to the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.client.following import Following
from assay.protocol.errors import Retry


def stalled(losses: Sequence[float | None], patience: int) -> bool:
    """True if none of the last `patience` known losses is lower than all before them."""
    known = [loss for loss in losses if loss is not None]
    return len(known) > patience and min(known[-patience:]) >= min(known[:-patience])


@dataclass
class PeriodicFetcher:
    """Fetches the model after every `every` rounds, and after the last."""

    folder: Path
    every: int
    fetch: Callable[[Path], object]
    """Writes the newest settled model into a folder."""
    kept: int = 0
    """Round of the last fetched model."""

    def look(self, following: Following) -> Path | None:
        """Fetches a due model and returns its folder; None if none is due or it is not available yet."""
        job = following.job
        settled = job.progress.settled_rounds
        due = settled // self.every > self.kept // self.every or settled == job.terms.rounds
        if settled == self.kept or not due:
            return None
        place = self.folder / f"round-{settled}"
        try:
            self.fetch(place)
        except Retry:
            return None
        self.kept = settled
        return place

"""What a client does about a job while it runs: keep the model of some rounds, stop it where it learns no
more.

Contract: `Keeper` fetches the newest settled model into a folder of its round's name, each led to the root
that the chain settled; a round that was never the newest while somebody looked is not kept. `stalled` goes by
held-out losses alone, which a job has with [held_out]. Nothing is sent to the chain here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.client.following import Following
from assay.protocol.errors import Retry


def stalled(losses: Sequence[float | None], patience: int) -> bool:
    """Whether the last `patience` known losses were none of them lower than every one before."""
    known = [loss for loss in losses if loss is not None]
    return len(known) > patience and min(known[-patience:]) >= min(known[:-patience])


@dataclass
class Keeper:
    """Keeps the model after every `every` rounds, and after the last."""

    folder: Path
    every: int
    fetch: Callable[[Path], object]
    """Writes the newest settled model into a folder."""
    kept: int = 0
    """The round after which the last one was."""

    def look(self, following: Following) -> Path | None:
        """Fetch what there is to keep; the folder it was written to. What cannot be fetched now, later."""
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

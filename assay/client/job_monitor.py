"""Watches a running job for its client: fetches models of some rounds, writes its losses to disk, and detects
that it no longer learns.

Contract: `PeriodicFetcher` fetches the newest settled model into a folder named after its round, verified
against the settled root; a round that was never the newest at a poll is skipped. `stalled` uses held-out
losses only, which a job has with [held_out]. Nothing is sent to the chain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.client.following import Following
from assay.client.job_events import JobEvent, JobEventKind, events_between
from assay.protocol.errors import Retry

METRICS_FILE = "metrics.jsonl"


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


@contextmanager
def recording(
    folder: Path | None, now: Callable[[], float] = time.time
) -> Iterator[Callable[[Following], None]]:
    """Yields a callback that records losses in metrics.jsonl and a TensorBoard event file; it does nothing if
    `folder` is None.

    Each loss is written once, when first seen. A claim that replaces another at its place (after a rewind or
    reorganisation) writes its loss again, at the same step, later in the file: the last line of a place is
    valid.
    """
    with ExitStack() as stack:
        if folder is None:
            yield lambda following: None
            return
        from tensorboardX import SummaryWriter  # heavy, and needed only with a folder

        board = stack.enter_context(SummaryWriter(str(folder)))
        lines = stack.enter_context((folder / METRICS_FILE).open("a"))
        seen: list[Following] = []

        def record(following: Following) -> None:
            for event in events_between(seen[-1] if seen else None, following):
                if event.loss is not None and event.step is not None:
                    held_out = event.kind == JobEventKind.HELD_OUT
                    name = "loss/held-out" if held_out else f"loss/shard-{event.shard}"
                    board.add_scalar(name, event.loss, event.step, now())
                    board.flush()
                    lines.write(json.dumps(_line(event, now())) + "\n")
                    lines.flush()
            seen[:] = [following]

        yield record


def _line(event: JobEvent, time_s: float) -> dict[str, object]:
    return {
        "time": round(time_s, 3),
        "step": event.step,
        "round": event.round,
        "shard": event.shard,
        "loss": repr(event.loss) if event.loss != event.loss else event.loss,
        "phase": None if event.phase is None else event.phase.name.lower(),
        "solver": event.solver,
    }

"""Writes a job's training metrics to disk: metrics.jsonl and a TensorBoard event file.

Contract: each loss is written once, when first seen. A claim that replaces another at its place (after a
rewind or reorganisation) writes its loss again, at the same step, later in the file: the last line of a place
is valid.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from assay.client.following import Following
from assay.client.job_events import JobEvent, JobEventKind, events_between

METRICS_FILE = "metrics.jsonl"


@contextmanager
def recording(
    folder: Path | None, now: Callable[[], float] = time.time
) -> Iterator[Callable[[Following], None]]:
    """Yields a callback that records each view of the job; it does nothing if `folder` is None."""
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

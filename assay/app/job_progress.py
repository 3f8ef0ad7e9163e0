"""Formats a job's progress as a terminal table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from assay.app.game_explanation import names_of
from assay.app.ids import SHORT
from assay.app.invocation import App
from assay.app.outlook import in_words as outlook_line
from assay.app.outlook import outlook_of, who_of
from assay.app.output import table
from assay.app.units import round_amount, show_count
from assay.client.following import Following, TaskLine
from assay.protocol.errors import Retry
from assay.protocol.types import ZERO_ADDRESS, JobId, JobView, Phase, Progress
from assay.protocol.words import show_state

if TYPE_CHECKING:
    from assay.app.wiring import Connection, NodeStorage
    from assay.client.losses import Losses


_OVER = (Phase.SETTLED, Phase.CONVICTED)
"""Phases whose states no node keeps."""


def progress_table(following: Following, doing: Sequence[str] = ()) -> Table:
    """Table of rounds by shards: holder, state and loss; below it what the job is `doing`."""
    job = following.job
    at = f"{in_words(job.progress, job.terms.rounds)}, paid {round_amount(following.paid)}"
    title = f"job {job.job_id.hex()[:SHORT]}: {at}"
    tested = following.held_out_by_round()
    last = ("#held out",) if any(loss is not None for loss in tested) else ()
    shards = (f"shard {k}" for k in range(job.terms.shards))
    rows = table(title, "#round", *shards, "outer step", "#loss", *last)
    losses = following.loss_by_round()
    for round_ in range(job.terms.rounds):
        cells = [_cell(line, job.progress.round) for line in following.tasks if line.round == round_]
        loss = losses[round_]
        rows.add_row(
            str(round_),
            *cells,
            _outer(following, round_),
            *("" if each is None else f"{each:.3f}" for each in (loss, tested[round_])[: 1 + len(last)]),
        )
    lines = [*doing]
    if told := _problems(following):
        way_out = "; `assay job halt` ends it before the next round" if goes_on(job.progress) else ""
        lines += [*told[:-1], f"{told[-1]}{way_out}"]
    if lines:
        rows.caption, rows.caption_justify = "\n".join(lines), "left"
    return rows


def _problems(following: Following) -> list[str]:
    """Reasons against continuing the job."""
    first = following.divergence or following.inaccuracy
    return [*([str(first)] if first else []), *following.warnings]


def doing(app: App, connection: Connection, job: JobView) -> list[str]:
    """Formats each activity of a job, with its deadline and what follows, as a line."""
    now, market = connection.clock.now(), connection.market
    return [outlook_line(each, now) for each in outlook_of(market, job, now, who_of(names_of(app)))]


def unread(following: Following) -> str:
    """Why some losses are missing; empty if none is."""
    claimed = [line for line in following.tasks if line.claim_id is not None]
    over = sum(line.loss is None and line.phase in _OVER for line in claimed)
    other = sum(line.loss is None for line in claimed) - over
    if not over + other:
        return ""
    why = []
    if over:
        why.append(
            f"the losses of {show_count(over, 'task')} went with their states, which nodes delete once a task"
            " is settled"
        )
    if other:
        why.append(f"the states of {show_count(other, 'task')}, which hold the losses, cannot be fetched now")
    way_out = "; `assay job watch JOB --metrics FOLDER` keeps the losses of a job while it runs"
    return "; ".join(why) + way_out


def goes_on(progress: Progress) -> bool:
    """True if a further round may begin."""
    return not progress.closed and not progress.halted and progress.round < progress.final_round


def _outer(following: Following, round_: int) -> str:
    """State of a round's outer step, or the number of slices committed."""
    phase, there = following.outer[round_], following.slices[round_]
    if phase != Phase.NONE:
        return show_state(phase)
    return f"{there} of {following.job.terms.slices} slices" if there else "-"


def _cell(line: TaskLine, present: int) -> str:
    """A task's state and, once its states are published, its last loss."""
    if line.phase == Phase.NONE:
        trained = line.round == present and line.holder != ZERO_ADDRESS
        return "missing" if line.missing else "in training" if trained else "-"
    disputed = " (disputed)" if line.disputes else f" ({line.votes})" if line.votes else ""
    loss = "" if line.loss is None else f", loss {line.loss:.3f}"
    return f"{line.state}{disputed}{loss}"


def in_words(progress: Progress, rounds: int) -> str:
    """Progress of a job as text."""
    if progress.closed:
        return f"closed after {show_count(progress.settled_rounds, 'settled round')}"
    running = progress.round < progress.final_round
    at = f"round {progress.round} (of 0 to {rounds - 1})" if running else "all rounds done"
    halted = ", halted" if progress.halted else ""
    rewound = f", rewound {show_count(progress.rewinds, 'time')}" if progress.rewinds else ""
    return f"{at}, {progress.settled_rounds} settled{halted}{rewound}"


def losses_if_fetched(app: App, connection: Connection, storage: NodeStorage, job_id: JobId) -> Losses | None:
    """Loss reader of a job; None while its files are unavailable."""
    from assay.app.computing import engine_of
    from assay.app.resource_limits import RESOURCE_LIMITS
    from assay.client.losses import losses_of
    from assay.node.artifacts import load_job

    market = connection.market
    storage.follow(market)
    try:
        files = load_job(storage.blocks, market.job(job_id).terms, RESOURCE_LIMITS)
    except Retry:
        return None
    return losses_of(market, storage.blocks, job_id, files, engine_of(app.settings, brief=True), measure=True)

"""Derives events from two successive views of a job.

Contract: pure. `events_between` reports every difference in order of rounds and shards, also after a
reorganisation or rewind. Not guaranteed: phases that came and went between the two views.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from assay.client.following import Following, TaskLine
from assay.protocol.types import ZERO_ADDRESS, Address, Phase
from assay.protocol.words import show_state


class JobEventKind(StrEnum):
    """Kind of a `JobEvent`."""

    TAKEN = "taken"
    """A solver took a shard."""
    TASK = "task"
    """A task's claim changed phase."""
    LOSS = "loss"
    """A task's last training loss was read from its published state."""
    HELD_OUT = "held-out"
    """The held-out loss of a round's initial parameters was read."""
    DISPUTE = "dispute"
    """A game was opened on a task."""
    OUTER = "outer"
    """A round's outer claim changed phase."""
    MISSING = "missing"
    """A round was closed without a shard."""
    CONVICTION = "conviction"
    """Claims were convicted."""
    REWIND = "rewind"
    """The job was rewound to an earlier round."""
    DIVERGED = "diverged"
    """A task's numbers became non-finite."""
    WARNING = "warning"
    """Parameters learn nothing or run away, the loss rises, or products lose precision."""
    HALTED = "halted"
    """No further round begins."""
    DONE = "done"
    """Everything that can settle is settled."""


@dataclass(frozen=True)
class JobEvent:
    """One event of a job; `str(event)` describes it."""

    kind: JobEventKind
    text: str
    round: int
    shard: int | None = None
    phase: Phase | None = None
    loss: float | None = None
    """In the unit of the job's loss function: training loss at the task's end, or held-out loss at the
    round's beginning."""
    step: int | None = None
    """Steps of one shard from the job's beginning to this loss; for a held-out loss, of a shard that is not
    slow."""
    solver: Address | None = None
    following: Following | None = field(default=None, repr=False, compare=False)
    """The job's progress when this was seen."""

    def __str__(self) -> str:
        return self.text


def events_between(before: Following | None, now: Following) -> list[JobEvent]:
    """Events between two views; `before` None: everything so far."""
    found: list[JobEvent] = []
    was = {} if before is None else {(line.round, line.shard): line for line in before.tasks}
    rewinds, convictions = (0, 0) if before is None else (before.rewinds, before.convictions)
    at = now.job.progress.round
    if now.convictions > convictions:
        count = now.convictions - convictions
        text = f"{count} claim{'s' if count > 1 else ''} convicted, {now.convictions} in all"
        found.append(JobEvent(JobEventKind.CONVICTION, text, at, following=now))
    if now.rewinds > rewinds:
        text = f"the job is rewound and goes on from round {at}"
        if before is None:
            text = f"rewound {'once' if now.rewinds == 1 else f'{now.rewinds} times'} so far"
        found.append(JobEvent(JobEventKind.REWIND, text, at, following=now))
    for line in now.tasks:
        found += _of_task(was.get((line.round, line.shard)), line, before, now)
    tested = [None] * len(now.outer) if before is None else before.held_out_by_round()
    for round_, loss in enumerate(now.held_out_by_round()):
        if loss is not None and tested[round_] is None:
            text = f"round {round_}: began with held-out loss {loss:.4f}"
            step = round_ * now.job.terms.main.steps
            event = JobEvent(JobEventKind.HELD_OUT, text, round_, loss=loss, step=step, following=now)
            found.append(event)
    for round_, phase in enumerate(now.outer):
        old = Phase.NONE if before is None else before.outer[round_]
        if phase != old:
            text = f"round {round_}: outer step {_moved(old, phase, show_state(phase))}"
            found.append(JobEvent(JobEventKind.OUTER, text, round_, phase=phase, following=now))
    if now.divergence is not None and (before is None or before.divergence is None):
        found.append(JobEvent(JobEventKind.DIVERGED, str(now.divergence), at, following=now))
    for text in _warnings(now):
        if before is None or text not in _warnings(before):
            found.append(JobEvent(JobEventKind.WARNING, text, at, following=now))
    if now.job.progress.halted and not (before is not None and before.job.progress.halted):
        text = "halted: no further round begins"
        found.append(JobEvent(JobEventKind.HALTED, text, at, following=now))
    if now.done and not (before is not None and before.done):
        text = f"done: {now.job.progress.settled_rounds} of {now.job.terms.rounds} rounds settled"
        found.append(JobEvent(JobEventKind.DONE, text, at, following=now))
    return found


_STEPS = {Phase.COMMITTED: "committed", Phase.SEEDED: "verifiers drawn"}
"""Steps of a claim that is unchecked all the while."""


def _moved(old: Phase, new: Phase, state: str) -> str:
    """Describes what happened to a claim that is in this state now."""
    before = _STEPS.get(old) or show_state(old)
    if new == Phase.NONE:
        return f"no longer {before}"
    return (_STEPS.get(new) or state) + (f", after {before}" if new < old else "")


def _warnings(following: Following) -> list[str]:
    return [*following.warnings, *([str(following.inaccuracy)] if following.inaccuracy else [])]


def _of_task(
    old: TaskLine | None, line: TaskLine, before: Following | None, now: Following
) -> list[JobEvent]:
    """Events at one place."""
    found: list[JobEvent] = []
    place = f"round {line.round}, shard {line.shard}"
    same = old is not None and old.claim_id == line.claim_id
    phase = Phase.NONE if old is None else old.phase

    def add(kind: JobEventKind, text: str, loss: float | None = None) -> None:
        step = None if loss is None else (line.round + 1) * now.job.terms.main.of(line.shard).steps
        solver = None if line.holder == ZERO_ADDRESS else line.holder
        told = f"{place}: {text}"
        found.append(JobEvent(kind, told, line.round, line.shard, line.phase, loss, step, solver, now))

    training, begun = _in_training(line, now), phase == Phase.NONE != line.phase
    told = old is not None and old.holder == line.holder and before is not None and _in_training(old, before)
    if not told and (training or (begun and before is not None)):
        add(JobEventKind.TAKEN, f"{'in training' if training else 'trained'} by {line.holder}")
    if line.phase != phase:
        votes = f" ({line.votes})" if line.votes else ""
        add(JobEventKind.TASK, _moved(phase, line.phase, f"{line.state}{votes}"))
    elif not same and line.claim_id is not None and old is not None:
        add(JobEventKind.TASK, f"{line.state} again, by another claim")
    if line.loss is not None and not (same and old is not None and old.loss is not None):
        add(JobEventKind.LOSS, f"loss {line.loss:.4f}", line.loss)
    if line.disputes > (old.disputes if same and old is not None else 0):
        add(JobEventKind.DISPUTE, "disputed")
    if line.missing and not (old is not None and old.missing):
        add(JobEventKind.MISSING, "the round was closed without it")
    return found


def _in_training(line: TaskLine, moment: Following) -> bool:
    """True if a solver holds the shard and has no claim of the present round."""
    here = line.claim_id is None and line.round == moment.job.progress.round
    return here and not moment.done and line.holder != ZERO_ADDRESS

"""Orders of a crew's member to its workers: train a task, find a liar, play a game about a member's step.

Contract: as ``node.orders``. No order imports PyTorch before it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.compute.orders import WorkerContext
from assay.compute.peers import Crew
from assay.node.orders import JobOrder
from assay.protocol.crew import Invitation
from assay.protocol.dispute import Move
from assay.protocol.game_state import GameView
from assay.protocol.types import Address, Claim
from assay.solver.drafting import Draft

if TYPE_CHECKING:
    from assay.node.job_cache import OpenJob

LEADER = 0
Said = Sequence[Sequence[bytes]]
"""What each member says of the steps of a segment (``compute.stage_progress``)."""


class Trained(NamedTuple):
    """A crew's task, trained and signed."""

    input_root: bytes
    roots: tuple[bytes, ...]
    """Of the states at the segments' ends."""
    said: Sequence[Said]
    """By segment."""
    signatures: tuple[tuple[bytes, ...], ...]
    """By member, of its transcript of each segment."""
    draft: Draft | None
    """The claim; None but for the leader."""


class Lie(NamedTuple):
    """A step that a member's own stage refutes, counted from the task's first."""

    member: int
    step: int


@dataclass(frozen=True)
class TrainCrew(JobOrder[Trained]):
    """Trains this member's stage of a task with the others. `folder`: of its saved progress; `received`: of
    what it receives; `attempt`: of the claim for which it signs."""

    round: int
    shard: int
    attempt: int
    invitation: Invitation
    crew: Crew
    folder: Path
    received: Path

    def do(self, job: OpenJob, context: WorkerContext) -> Trained:
        """Raises Blame, SourceMissing, OtherStages, Cancelled once the task is not wanted any more."""
        from assay.solver.crew_task import CrewTask, trained

        return trained(self, job, context, CrewTask)


@dataclass(frozen=True)
class TimeStages(JobOrder[tuple[float, ...]]):
    """Runs a step of some stages of a trained task again; returns the seconds that each takes."""

    round: int
    shard: int
    attempt: int
    input_root: bytes
    invitation: Invitation
    received: Path
    stages: tuple[int, ...]

    def do(self, job: OpenJob, context: WorkerContext) -> tuple[float, ...]:
        """Raises Retry."""
        from assay.solver.crew_dispute import stage_times

        return stage_times(self, job, context)


@dataclass(frozen=True)
class CrewDispute(JobOrder[Lie | None]):
    """Runs each member's stage of a convicted task again, and finds who has lied in which step."""

    invitation: Invitation
    claim: Claim
    said: Sequence[Said]
    """By segment."""
    received: Path
    held = False

    def do(self, job: OpenJob, context: WorkerContext) -> Lie | None:
        from assay.solver.crew_dispute import found_lie

        return found_lie(self, job, context)


@dataclass(frozen=True)
class CrewMove(JobOrder[Move | None]):
    """Computes an account's move in a game about a member's step; None if there is no sound one."""

    invitation: Invitation
    me: Address
    view: GameView
    claim: Claim
    received: Path
    held = False

    def do(self, job: OpenJob, context: WorkerContext) -> Move | None:
        from assay.solver.crew_dispute import crew_move

        return crew_move(self, job, context)

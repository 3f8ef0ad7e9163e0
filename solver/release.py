"""Computes the cost of releasing a shard, and records shards that are not to be taken again.

Contract: `cost_of` is pure and gives what ``Tasks.release`` would do now (rules 4.2, 4.3.3). `Released` is a
record in the node's folder that is read at each poll, so that a running node sees what its operator released
from another terminal. A committed claim answers for itself, whoever holds the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.disk import record
from assay.node.rounds import closable, moving, standing
from assay.protocol.demands import DemandView
from assay.protocol.game_state import GameView
from assay.protocol.params import GRACE_MOVES
from assay.protocol.types import Address, ClaimView, JobId, JobView, Kind, Seconds, Wei
from assay.protocol.words import show_amount
from assay.solver.observation import Observation, due, holds, round_open

RELEASED_FILE = "released.json"
"""Name of the record in a node's folder."""
_KIND = "assay/released/1"
AWAKE_S = 30
"""Polls of a node that is awake are at most this far apart: its rest, and a block of a slow chain."""


@dataclass(frozen=True)
class Cost:
    """Effects of releasing a shard."""

    penalty: Wei
    """Amount of solver stake that is burnt."""
    freed: Wei
    """Locked penalty that becomes free."""
    why: str
    """Explanation of the penalty, or of its absence."""
    answering: int
    """Number of own claims of the shard that keep their stake locked until they settle."""


def cost_of(
    job: JobView,
    shard: int,
    me: Address,
    claims: Sequence[ClaimView],
    games: Iterable[GameView],
    demands: Iterable[DemandView],
    now: Seconds,
) -> Cost:
    """Cost to its holder `me` of releasing this shard at chain time `now`."""
    penalty, why = job.terms.miss_penalty, _excuse(job, shard, claims, games, demands, now)
    mine = [v for v in moving(claims) if v.claim.claimant == me and v.claim.kind == Kind.TASK]
    answering = sum(view.claim.shard == shard for view in mine)
    if why:
        return Cost(Wei(0), penalty, f"{why}: it costs nothing", answering)
    place = f"task {job.progress.round}/{shard} is owed and not committed"
    lost = f"{show_amount(penalty)} of the solver stake are burnt, and what was trained of it is not paid"
    return Cost(penalty, Wei(0), f"{place}: {lost}", answering)


def _excuse(
    job: JobView,
    shard: int,
    claims: Sequence[ClaimView],
    games: Iterable[GameView],
    demands: Iterable[DemandView],
    now: Seconds,
) -> str:
    """Reason why the shard owes the present round no task now; empty if it owes one."""
    progress, terms = job.progress, job.terms
    if progress.closed or progress.round >= progress.final_round:
        return "the job begins no further round"
    if standing(claims, Kind.TASK, progress.round, shard) is not None:
        return f"its task of round {progress.round} is committed"
    if progress.round - progress.settled_rounds >= terms.max_unsettled:
        return f"no task is owed before round {progress.settled_rounds} is settled"
    if closable(job, claims, now):
        return f"round {progress.round} is closed without further tasks"
    disputed = any(not view.decided and not view.game.ballot for view in games)
    disputed = disputed or any(not demand.outcome for demand in demands)
    if disputed and now <= progress.round_start + GRACE_MOVES * terms.move_time:
        return "while a claim of the job is in dispute nothing is owed"
    return ""


class Missed:
    """Finds shards that this node lost by being too slow, not by being asleep or stopped."""

    def __init__(self) -> None:
        self._before: Observation | None = None
        self._awake: dict[JobId, Seconds] = {}
        """Chain time since which each job was polled without a gap in which the node may have slept."""

    def look(self, observation: Observation) -> list[tuple[JobView, int]]:
        """Shards whose task was not committed in time though the node polled for half of that time."""
        before, now = self._before, observation.now
        self._before, jobs = observation, {job.view.job_id: job for job in observation.open_jobs}
        if before is None:
            self._awake = dict.fromkeys(jobs, now)
            return []
        gap = now - before.now
        known = {job_id: self._awake.get(job_id, now) for job_id in jobs}
        steady = {
            job_id for job_id, job in jobs.items() if gap <= max(job.view.terms.task_time // 4, AWAKE_S)
        }
        self._awake = {job_id: since if job_id in steady else now for job_id, since in known.items()}
        found = []
        for job in before.open_jobs:
            job_id, terms, round_ = job.view.job_id, job.view.terms, job.view.progress.round
            if job_id not in jobs or not round_open(job, now):
                continue
            gone = set(holds(before, job)).difference(holds(observation, jobs[job_id]))
            for k in gone.difference(k for of, k in observation.limits.release if of == job_id):
                late = now > due(job, k) and not job.standing(Kind.TASK, round_, k)
                if late and self._awake[job_id] <= due(job, k) - terms.task_time // 2:
                    found.append((job.view, k))
        return found


class Released:
    """Shards that an account has released, or lost by being too slow, and does not take again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> frozenset[tuple[JobId, int]]:
        """All recorded shards. Raises DamagedRecord."""
        body = record.read(self._path, _KIND, hint=f"move {self._path} away: the shards may be taken again")
        return frozenset((JobId(bytes.fromhex(job)), shard) for job, shard in body or ())

    def add(self, job_id: JobId, shards: Iterable[int]) -> None:
        """Adds shards. Raises DamagedRecord."""
        self._change(lambda kept: kept | {(job_id, shard) for shard in shards})

    def forget(self, job_id: JobId) -> None:
        """Removes all shards of this job. Raises DamagedRecord."""
        self._change(lambda kept: frozenset(pair for pair in kept if pair[0] != job_id))

    def give_up(self, job: JobView, shard: int) -> str:
        """Adds every shard of a job of which one was lost by being too slow, and says so.

        The next task would be lost too, with another penalty. Raises DamagedRecord.
        """
        terms, name = job.terms, job.job_id.hex()[:16]
        self.add(job.job_id, range(terms.shards))
        return (
            f"task {job.progress.round}/{shard} of job {name} was not committed within {terms.task_time} s:"
            f" the shard and {show_amount(terms.miss_penalty)} of stake are lost. No shard of this job is"
            f" taken again; `assay solver release --again {name}` takes that back"
        )

    def _change(self, change: Callable[[frozenset[tuple[JobId, int]]], frozenset[tuple[JobId, int]]]) -> None:
        """Replaces the record, alone: a node and its operator's command may change it at once."""
        with record.alone(self._path.parent):
            shards = change(self.read())
            record.write(self._path, _KIND, sorted([job.hex(), shard] for job, shard in shards))

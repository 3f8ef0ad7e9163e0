"""Computes the cost of releasing a shard, and records shards that are not to be taken again.

Contract: `cost_of` is pure and gives what ``Tasks.release`` would do now (rules 4.2, 4.3.3). `Released` is a
record in the node's folder that is read at each poll, so that a running node sees what its operator released
from another terminal. A committed claim answers for itself, whoever holds the shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.disk import record
from assay.node.rounds import closable, moving, standing
from assay.protocol.demands import DemandView
from assay.protocol.game_state import GameView
from assay.protocol.params import GRACE_MOVES
from assay.protocol.types import Address, ClaimView, JobId, JobView, Kind, Seconds, Wei
from assay.protocol.words import show_amount

RELEASED_FILE = "released.json"
"""Name of the record in a node's folder."""
_KIND = "assay/released/1"


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


class Released:
    """Shards that an account has released and does not take again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> frozenset[tuple[JobId, int]]:
        """All recorded shards. Raises DamagedRecord."""
        body = record.read(self._path, _KIND, hint=f"move {self._path} away: the shards may be taken again")
        return frozenset((JobId(bytes.fromhex(job)), shard) for job, shard in body or ())

    def add(self, job_id: JobId, shards: Iterable[int]) -> None:
        """Adds shards. Raises DamagedRecord."""
        self._write(self.read() | {(job_id, shard) for shard in shards})

    def forget(self, job_id: JobId) -> None:
        """Removes all shards of this job. Raises DamagedRecord."""
        self._write(frozenset(pair for pair in self.read() if pair[0] != job_id))

    def _write(self, shards: frozenset[tuple[JobId, int]]) -> None:
        record.write(self._path, _KIND, sorted([job.hex(), shard] for job, shard in shards))

"""What a solver sees: the market, and its own work.

Contract: an `Observation` is one consistent look at everything that ``solver.policy`` decides by. What one
job's files or terms break ends nobody's look at the others.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TypedDict, Unpack

from assay.node import apart, upkeep
from assay.node.artifacts import ResourceLimits
from assay.node.role import Node, Options
from assay.node.rounds import Claims
from assay.node.service import intent
from assay.node.states import SourceMissing
from assay.protocol.demands import DemandView
from assay.protocol.game_state import GameView
from assay.protocol.ports import Blocks, Clock, Market
from assay.protocol.types import ClaimId, Holder, JobId, JobView, Kind, Role, Seconds, Wei
from assay.solver import reasons
from assay.solver.acceptance import unacceptable
from assay.solver.convictions import Convictions
from assay.solver.observation import JobObservation, Limits, Observation
from assay.solver.progress import TaskProgress
from assay.solver.release import RELEASED_FILE, Released
from assay.solver.room import DiskBudget
from assay.solver.trainer import TaskTrainer

UNSEEN = "what is trained of it cannot be read; this is tried again"


class _Read(TypedDict):
    """What the market says of a job (``observation.JobObservation``)."""

    holders: tuple[Holder, ...]
    prices: tuple[Wei, ...]
    claims: Claims
    games: tuple[GameView, ...]
    demands: tuple[DemandView, ...]
    room: Wei


def _unsaid(job_id: JobId, error: Exception, claim_id: ClaimId | None = None) -> None:
    """What a job breaks beside long work is said where it is decided by."""


class SeeingSolver(Node):
    """One solver account, as far as it looks."""

    def __init__(
        self,
        market: Market,
        blocks: Blocks,
        clock: Clock,
        folder: Path,
        limits: Limits,
        resource_limits: ResourceLimits,
        *,
        budget: DiskBudget | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__("solver", market, blocks, clock, resource_limits, **options)
        self.limits, self.budget = limits, budget
        self._progress = TaskProgress(folder / "tasks")
        self._convictions = Convictions(folder / "convictions.json")
        self._released = Released(folder / RELEASED_FILE)
        self._shops: dict[JobId, TaskTrainer] = {}
        self._seen: Observation | None = None
        self._read_at = Seconds(0), 0
        """The chain's time and block of the last look that was read for a decision."""
        self._commits: dict[str, tuple[JobId, tuple[Kind, int, int]]] = {}
        """Of claims that are being committed, by the action's subject: whose job, and which place."""

    def read(self) -> None:
        with self.market.snapshot(time.monotonic()):
            self.market.stake(self.market.me, Role.SOLVER)
            apart.seen(upkeep.watched(self.market), self._read, _unsaid)
            self._read_at = self.clock.now(), self.clock.block()

    def _read(self, job: JobView) -> _Read:
        """All that the market says of a job, but for its claims the same to everybody."""
        market, job_id = self.market, job.job_id
        shards = range(job.terms.shards if self._asks_for_shards(job) else 0)
        return _Read(
            holders=tuple(market.holder(job_id, k) for k in shards),
            prices=tuple(market.price(job_id, k) for k in shards),
            claims=Claims(market.claims(job_id)),
            games=tuple(market.games(job_id)),
            demands=tuple(market.demands(job_id)),
            room=market.room(market.me, Role.SOLVER, job.terms.client),
        )

    def _asks_for_shards(self, job: JobView) -> bool:
        """Whether holders and prices can matter: where something is ours, or a shard may be taken."""
        refused = self.refusal(job.job_id) or unacceptable(job.terms, self.limits.terms)
        if not refused and not reasons.too_cheap(job.terms, self.limits):
            return True
        me, market = self.market.me, self.market
        return market.holds_shard(job.job_id) or any(
            view.claim.claimant == me for view in market.claims(job.job_id)
        )

    def see(self) -> Observation:
        """One consistent look at everything that decisions depend on."""
        me = self.market.me
        stake = self.market.stake(me, Role.SOLVER)
        jobs = apart.seen(upkeep.watched(self.market), self._job_observation, self.set_aside)
        unlocked = Wei(max(stake.active - stake.locked, 0))
        limits = replace(
            self.limits,
            retire=self.limits.retire or bool(self._convictions.alarm),
            release=self.limits.release | self._released.read(),
        )
        looks = self.seen_since_s is None
        now, block = (self.clock.now(), self.clock.block()) if looks else self._read_at
        return Observation(me, now, block, unlocked, jobs, limits, Wei(stake.active))

    def _job_observation(self, job: JobView) -> JobObservation:
        read, shop = self._read(job), self._shops.get(job.job_id)
        trained = self._trained(
            job, [k for k, holder in enumerate(read["holders"]) if holder.solver == self.market.me]
        )
        return JobObservation(
            **read,
            view=job,
            examined=shop is not None,
            outer_share=Fraction(0) if shop is None else shop.work.outer_share,
            refusal=self.refusal(job.job_id) or ("" if trained is not None else UNSEEN),
            trained=trained or {},
            pending=self._pending(job.job_id),
        )

    def _trained(self, job: JobView, shards: list[int]) -> dict[tuple[int, int], int] | None:
        """Segments that are trained, by round and shard, as far as it is known; None where looking fails, so
        that one job's files or terms end nobody's look at the others."""
        shop, progress = self._shops.get(job.job_id), job.progress
        if shop is None or progress.closed or progress.round >= progress.final_round:
            return {}
        done: dict[tuple[int, int], int] = {}

        def count() -> None:
            for k in shards:
                with suppress(SourceMissing):
                    done[progress.round, k] = shop.segments_done(progress.round, k, progress.rewinds)
                with suppress(SourceMissing):
                    done[progress.round + 1, k] = shop.segments_ahead(progress.round + 1, k)

        return done if self.attempt(intent("what is trained", job.job_id), job.job_id, count) else None

    def _pending(self, job_id: JobId) -> frozenset[tuple[Kind, int, int]]:
        """Places of this job's claims of ours that are being committed, or stored before."""
        self._commits = {what: place for what, place in self._commits.items() if self.is_sent(what)}
        shop = self._shops.get(job_id)
        stored = () if shop is None else shop.being_stored()
        sent = (place for job, place in self._commits.values() if job == job_id)
        return frozenset((*sent, *((Kind.TASK, *place) for place in stored)))

"""Reads everything the market has about a job that a solver's decision needs.

Contract: one consistent read, within the market's snapshot. Holders and prices are only read if they can
matter: if something in the job is ours, or a shard may be taken.
"""

from __future__ import annotations

from typing import TypedDict

from assay.node.rounds import Claims
from assay.protocol.demands import DemandView
from assay.protocol.game_state import GameView
from assay.protocol.ports import MarketView
from assay.protocol.types import Holder, JobView, Role, Wei
from assay.solver.acceptance import unacceptable
from assay.solver.observation import Limits


class Read(TypedDict):
    """The market's data on a job (``observation.JobObservation``)."""

    holders: tuple[Holder, ...]
    prices: tuple[Wei, ...]
    claims: Claims
    games: tuple[GameView, ...]
    demands: tuple[DemandView, ...]
    room: Wei


def read_job(market: MarketView, job: JobView, limits: Limits, refused: str) -> Read:
    """Reads the market's data on a job.

    `refused`: reason why the job was abandoned; empty if it was not.
    """
    job_id = job.job_id
    shards = range(job.terms.shards if _matter(market, job, limits, refused) else 0)
    return Read(
        holders=tuple(market.holder(job_id, k) for k in shards),
        prices=tuple(market.price(job_id, k) for k in shards),
        claims=Claims(market.claims(job_id)),
        games=tuple(market.games(job_id)),
        demands=tuple(market.demands(job_id)),
        room=market.room(market.me, Role.SOLVER, job.terms.client),
    )


def _matter(market: MarketView, job: JobView, limits: Limits, refused: str) -> bool:
    """True if holders and prices can affect the decision."""
    alone = refused or unacceptable(job.terms, limits.terms)
    if not alone:
        return True
    return market.holds_shard(job.job_id) or any(
        view.claim.claimant == market.me for view in market.claims(job.job_id)
    )

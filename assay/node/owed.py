"""What an account still owes and holds in a market: what has to be over before its node may be stopped.

Contract: pure but for `owed_by`, which reads the market. Stake that is locked counts whether or not it is
seen what for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.node.rewards import waits_for
from assay.node.rounds import CHALLENGEABLE
from assay.protocol.demands import DemandView
from assay.protocol.game_state import GameView, WaitingReward
from assay.protocol.ports import MarketView
from assay.protocol.types import Address, ClaimView, Holder, Role, Wei
from assay.protocol.words import show_amount

NOTHING = Wei(0)


class JobParts(NamedTuple):
    """What the market says of one job."""

    claims: Sequence[ClaimView]
    games: Sequence[GameView]
    holders: Sequence[Holder] = ()
    demands: Sequence[DemandView] = ()
    rewards: Sequence[WaitingReward] = ()


@dataclass(frozen=True)
class Owed:
    """Counts, and stake."""

    shards: int = 0
    """Held."""
    claims: int = 0
    """Its own, not settled yet."""
    seats: int = 0
    """Votes to cast, and votes that answer for a claim or may be disputed."""
    games: int = 0
    demands: int = 0
    rewards: int = 0
    """In which it may have a part, and that wait."""
    locked: Wei = NOTHING

    def __bool__(self) -> bool:
        return self != Owed()

    def __str__(self) -> str:
        counts = ("shards", "claims", "seats", "games", "demands", "rewards")
        each = [(getattr(self, name), name) for name in counts]
        parts = [f"{count} {name if count != 1 else name[:-1]}" for count, name in each if count]
        if self.locked:
            parts.append(f"{show_amount(self.locked)} of stake locked")
        return ", ".join(parts) or "nothing"


def owed(me: Address, jobs: Iterable[JobParts], locked: Wei = NOTHING) -> Owed:
    """What `me` owes in these jobs. `locked`: of its stake."""
    found = list(jobs)
    mine = [view for job in found for view in job.claims if _answers(view, me)]
    claims = {view.claim_id for view in mine}
    return Owed(
        shards=sum(holder.solver == me for job in found for holder in job.holders),
        claims=len(mine),
        seats=sum(_sits(view, me) for job in found for view in job.claims),
        games=sum(_plays(view, me) for job in found for view in job.games),
        demands=sum(
            not d.outcome and (d.demander == me or d.claim_id in claims) for job in found for d in job.demands
        ),
        rewards=sum(waits_for(me, [reward]) for job in found for reward in job.rewards),
        locked=locked,
    )


def _answers(view: ClaimView, me: Address) -> bool:
    return view.claim.claimant == me and view.status.phase in CHALLENGEABLE


def _sits(view: ClaimView, me: Address) -> bool:
    live = view.status.phase in CHALLENGEABLE or view.fallen
    return live and any(vote.verifier == me and not vote.gone for vote in view.votes)


def _plays(view: GameView, me: Address) -> bool:
    return not view.decided and me in (view.game.challenger, view.game.defender)


def owed_by(market: MarketView, me: Address, role: Role | None) -> Owed:
    """What an account owes by what the market says now. `role`: whose stake; None: of a whistleblower."""
    locked = NOTHING if role is None else market.stake(me, role).locked
    parts = []
    for job in market.jobs():
        shards = range(job.terms.shards if role == Role.SOLVER and (locked or not job.progress.closed) else 0)
        holders = [market.holder(job.job_id, k) for k in shards]
        seen = market.claims(job.job_id), market.games(job.job_id)
        rest = market.demands(job.job_id), market.rewards(job.job_id)
        parts.append(JobParts(*seen, holders, *rest))
    return owed(me, parts, locked)


def at_risk(market: MarketView, me: Address) -> Wei:
    """What an account has in locked stake and in bonds of its open games: the most that it may lose now."""
    games = [view.game for view in market.games() if not view.decided and view.game.challenger == me]
    bonds = sum(market.job(game.accused.job_id).terms.challenge_bond for game in games)
    return Wei(bonds + sum(market.stake(me, role).locked for role in Role))


def resting(leave: str, left: Owed, waits: str = "") -> str:
    """What a node says that leaves and has nothing to do at this moment. `waits`: what for."""
    if not left:
        return f"{leave}: nothing is owed, it can be stopped"
    return f"{leave}: still owed: {left}" + (f"; {waits}" if waits else "")

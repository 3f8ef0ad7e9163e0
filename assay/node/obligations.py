"""Summarises an account's open obligations: what must end before its node may be stopped.

Contract: pure, except `obligations_of`, which reads the market. Locked stake counts even if no obligation
explains it.
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
    """The market's views of one job."""

    claims: Sequence[ClaimView]
    games: Sequence[GameView]
    holders: Sequence[Holder] = ()
    demands: Sequence[DemandView] = ()
    rewards: Sequence[WaitingReward] = ()


@dataclass(frozen=True)
class Obligations:
    """Counts of open obligations, and locked stake."""

    shards: int = 0
    """Shards held."""
    claims: int = 0
    """Own claims that are not settled yet."""
    seats: int = 0
    """Votes to cast, and votes that lock stake or may be disputed."""
    games: int = 0
    demands: int = 0
    rewards: int = 0
    """Undecided rewards of which it may get a part."""
    locked: Wei = NOTHING

    def __bool__(self) -> bool:
        return self != Obligations()

    def __str__(self) -> str:
        counts = ("shards", "claims", "seats", "games", "demands", "rewards")
        each = [(getattr(self, name), name) for name in counts]
        parts = [f"{count} {name if count != 1 else name[:-1]}" for count, name in each if count]
        if self.locked:
            parts.append(f"{show_amount(self.locked)} of stake locked")
        return ", ".join(parts) or "nothing"


def owed(me: Address, jobs: Iterable[JobParts], locked: Wei = NOTHING) -> Obligations:
    """Counts the obligations of `me` in these jobs. `locked`: its locked stake."""
    found = list(jobs)
    mine = [view for job in found for view in job.claims if _answers(view, me)]
    claims = {view.claim_id for view in mine}
    return Obligations(
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


def obligations_of(market: MarketView, me: Address, role: Role | None) -> Obligations:
    """Reads an account's obligations from the market. `role`: whose stake counts; None for a
    whistleblower."""
    locked = NOTHING if role is None else market.stake(me, role).locked
    parts = []
    for job in market.jobs():
        shards = range(job.terms.shards if role == Role.SOLVER and (locked or not job.progress.closed) else 0)
        holders = [market.holder(job.job_id, k) for k in shards]
        seen = market.claims(job.job_id), market.games(job.job_id)
        rest = market.demands(job.job_id), market.rewards(job.job_id)
        parts.append(JobParts(*seen, holders, *rest))
    return owed(me, parts, locked)


def open_games(market: MarketView, me: Address) -> int:
    """Number of games of all jobs that the account plays."""
    return sum(_plays(view, me) for view in market.games())


def at_risk(market: MarketView, me: Address) -> Wei:
    """Locked stake plus the bonds of the account's open games: the most it can lose now."""
    games = [view.game for view in market.games() if not view.decided and view.game.challenger == me]
    bonds = sum(market.job(game.accused.job_id).terms.challenge_bond for game in games)
    return Wei(bonds + sum(market.stake(me, role).locked for role in Role))


def resting(leave: str, left: Obligations, waits: str = "") -> str:
    """Status line of an idle node that is leaving. `waits`: what it waits for."""
    if not left:
        return f"{leave}: nothing is owed, it can be stopped"
    return f"{leave}: still owed: {left}" + (f"; {waits}" if waits else "")

"""Lists an account's unpaid earnings: amount, earliest payment, and what each waits for.

Contract: pure, as of one block. Amounts assume that nobody disputes; until they settle nothing is certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from assay.node.upkeep import disputable_until, window_end
from assay.protocol.ports import MarketView
from assay.protocol.types import Address, ClaimId, ClaimView, JobId, JobView, Phase, Vote, Wei
from assay.protocol.words import show_place

WAITS = {
    Phase.COMMITTED: "its verifiers are not drawn yet",
    Phase.SEEDED: "its verifiers vote",
    Phase.ACCEPTED: "the challenge window ends then",
    Phase.CONVICTED: "the claim has fallen; its votes can be disputed until then",
}


@dataclass(frozen=True)
class Pending:
    """A future payment."""

    job_id: JobId
    claim_id: ClaimId
    place: str
    amount: Wei
    due: int | None
    """Chain time from which it can be settled; None if not known yet."""
    why: str


def pending(market: MarketView, account: Address, role: str) -> list[Pending]:
    """Payments that a solver's claims or a verifier's votes will bring, oldest first; empty for other
    roles."""
    found: list[Pending] = []
    with market.snapshot():
        for job in market.jobs():
            if job.progress.closed:
                continue
            for view in market.claims(job.job_id):
                if view.status.phase in WAITS and not view.stale and not view.left_out:
                    found += _of_claim(job, view, account, role)
    return found


def _of_claim(job: JobView, view: ClaimView, account: Address, role: str) -> Iterator[Pending]:
    claim, status, terms = view.claim, view.status, job.terms
    fallen = status.phase == Phase.CONVICTED
    if role == "solver" and claim.claimant == account and not fallen:
        amount = claim.price
    elif role == "verifier" and any(v.verifier == account and _pays(v, fallen) for v in view.votes):
        amount = terms.verifier_fee
    else:
        return
    due = int(window_end(view, terms)) if status.phase == Phase.ACCEPTED else None
    due = int(disputable_until(view, terms)) if fallen else due
    why = WAITS[status.phase]
    if status.open_games:
        due, why = None, f"{status.open_games} game(s) on it are being played"
    elif due is not None and not fallen and claim.round > job.progress.settled_rounds:
        why = f"it ends then, and round {job.progress.settled_rounds} has to be settled first"
    place = show_place(claim.kind, claim.round, claim.shard)
    yield Pending(job.job_id, view.claim_id, place, Wei(amount), due, why)


def _pays(vote: Vote, fallen: bool) -> bool:
    """True if the vote will be paid: on a fallen claim every standing vote is, otherwise every valid one."""
    return vote.shown and not vote.gone and (vote.valid or fallen)

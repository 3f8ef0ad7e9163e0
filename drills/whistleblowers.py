"""Whistleblowers that accuse innocent nodes on purpose, for devnets, drills and tests.

Each is the honest one with a faulty replay of the accused's task, so that it plays a junk challenge, through
all its moves unless its class differs. It reports the event ``fault-planted``. No honest node is ever made
from these.
"""

from __future__ import annotations

from typing import Any

from assay.node.findings import sampled
from assay.node.orders import JobSpec
from assay.node.upkeep import AuditVote, Pursue, window_end
from assay.protocol.loops import locate
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, JobId, Kind, Phase
from assay.whistleblower import policy
from assay.whistleblower.service import WhistleblowerService
from drills.orders import JunkSpec, spec_of

LATE_S = 15
"""Seconds before the end of a window at which a late challenge starts; it takes some blocks."""
LAST_S = 6
"""Seconds before its deadline at which a slow challenger moves."""


class JunkChallenger(WhistleblowerService):
    """Takes a right weight in the first step of a round's task for wrong. `accused`: the shard, or the task's
    solver."""

    def __init__(self, *args: Any, round: int, accused: int | Address, **options: Any) -> None:
        super().__init__(*args, **options)
        self.round, self.accused = round, accused
        self._planted: dict[tuple[JobId, int, int], int] = {}

    def accuses(self, claim: Claim) -> bool:
        """True if it accuses this task."""
        whose = claim.shard if isinstance(self.accused, int) else claim.claimant
        return claim.kind == Kind.TASK and claim.round == self.round and whose == self.accused

    def spec(self, job_id: JobId) -> JobSpec:
        planted = tuple(
            (round_, shard, step) for (of, round_, shard), step in self._planted.items() if of == job_id
        )
        return spec_of(JunkSpec, super().spec(job_id), planted=planted)

    def plant(self, view: ClaimView, step: int) -> None:
        """Makes its replay of this claim's task wrong at a step, counted from the round's first."""
        claim = view.claim
        place = (claim.job_id, claim.round, claim.shard)
        if self.accuses(claim) and place not in self._planted:
            self._planted[place] = step
            self.report.emit(
                "fault-planted", plan=f"accuses task {claim.round}/{claim.shard} of {claim.claimant}"
            )

    async def _audit_claim(self, action: policy.AuditClaim) -> None:
        self.plant(self.market.claim(action.claim_id), 0)
        await super()._audit_claim(action)


class SilentChallenger(JunkChallenger):
    """Opens its game and makes no move."""

    async def play(self, action: Any) -> None:
        """Does nothing."""


class LateChallenger(WhistleblowerService):
    """Honest, but announces its findings only in the last seconds of the claim's window."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._told: set[ClaimId] = set()

    async def _pursue(self, action: Pursue) -> None:
        view = self.market.claim(action.claim_id)
        if view.status.phase == Phase.ACCEPTED:
            left = window_end(view, self.market.job(action.job_id).terms) - self.clock.now()
            if left <= LATE_S:
                if action.claim_id not in self._told:
                    self._told.add(action.claim_id)
                    self.report.emit("late", job=action.job_id.hex(), claim=action.claim_id.hex(), left=left)
                await super()._pursue(action)


class SlowChallenger(JunkChallenger):
    """Makes each move in its last seconds."""

    async def play(self, action: Any) -> None:
        game = self.market.game(action.game_id).game
        if self.clock.now() >= game.deadline - LAST_S:
            await super().play(action)


class VoteChallenger(JunkChallenger):
    """Takes the accused task for right, and every verifier's trace of it for wrong."""

    async def _audit_claim(self, action: policy.AuditClaim) -> None:
        await WhistleblowerService._audit_claim(self, action)

    async def _audit_vote(self, action: AuditVote) -> None:
        view, terms = self.market.claim(action.claim_id), self.market.job(action.job_id).terms
        segment = sampled(terms, view, action.verifier)[0]
        at = locate(terms.loops_of(Kind.TASK), segment, view.claim.shard)
        last = at.first_step(0) + at.loop.segment_steps - 1
        self.plant(view, last)  # a vote shows the trace of its segment's last step
        await super()._audit_vote(action)

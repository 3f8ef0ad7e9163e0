"""Whistleblowers that accuse the innocent on purpose, for devnets, drills and tests.

Each is the honest one with a faulty replay of the accused's task, so that it plays a junk challenge, through
all its moves unless its manner is another. It says so with the event ``fault-planted``. No honest node is
ever made from these.
"""

from __future__ import annotations

from typing import Any

from assay.node.findings import sampled
from assay.node.orders import JobSpec
from assay.node.upkeep import window_end
from assay.protocol.loops import locate
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, JobId, Kind, Phase
from assay.whistleblower import policy
from assay.whistleblower.service import WhistleblowerService
from drills.orders import JunkSpec, spec_of

LATE_S = 15
"""Seconds before the end of a window at which a late one challenges: it takes some blocks."""
LAST_S = 6
"""Seconds before its deadline at which a slow challenger moves."""


class JunkChallenger(WhistleblowerService):
    """Finds in the first step of a round's task a wrong weight that is right. `accused`: the shard, or whose
    task it is."""

    def __init__(self, *args: Any, round: int, accused: int | Address, **options: Any) -> None:
        super().__init__(*args, **options)
        self.round, self.accused = round, accused
        self._planted: dict[tuple[JobId, int, int], int] = {}

    def accuses(self, claim: Claim) -> bool:
        """Whether this is a task that it accuses."""
        whose = claim.shard if isinstance(self.accused, int) else claim.claimant
        return claim.kind == Kind.TASK and claim.round == self.round and whose == self.accused

    def spec(self, job_id: JobId) -> JobSpec:
        planted = tuple(
            (round_, shard, step) for (of, round_, shard), step in self._planted.items() if of == job_id
        )
        return spec_of(JunkSpec, super().spec(job_id), planted=planted)

    def plant(self, view: ClaimView, step: int) -> None:
        """From now on its replay of this claim's task is wrong at a step, counted from the round's first."""
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
    """Opens its game, and makes no move in it."""

    async def play(self, action: Any) -> None:
        """Nothing."""


class LateChallenger(WhistleblowerService):
    """Honest, but it keeps what it has found to itself until the last seconds of the claim's window."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._told: set[ClaimId] = set()

    async def _pursue(self, action: policy.Pursue) -> None:
        view = self.market.claim(action.claim_id)
        if view.status.phase == Phase.ACCEPTED:
            left = window_end(view, self.market.job(action.job_id).terms) - self.clock.now()
            if left <= LATE_S:
                if action.claim_id not in self._told:
                    self._told.add(action.claim_id)
                    self.report.emit("late", job=action.job_id.hex(), claim=action.claim_id.hex(), left=left)
                await super()._pursue(action)


class SlowChallenger(JunkChallenger):
    """Makes each of its moves in the last seconds that it has."""

    async def play(self, action: Any) -> None:
        game = self.market.game(action.game_id).game
        if self.clock.now() >= game.deadline - LAST_S:
            await super().play(action)


class VoteChallenger(JunkChallenger):
    """Finds the accused task right, and wrong every trace that verifiers have shown of it."""

    async def _audit_claim(self, action: policy.AuditClaim) -> None:
        await WhistleblowerService._audit_claim(self, action)

    async def _audit_vote(self, action: policy.AuditVote) -> None:
        view, terms = self.market.claim(action.claim_id), self.market.job(action.job_id).terms
        segment = sampled(terms, view, action.verifier)[0]
        at = locate(terms.loops_of(Kind.TASK), segment, view.claim.shard)
        last = at.first_step(0) + at.loop.segment_steps - 1
        self.plant(view, last)  # a vote shows the trace of its segment's last step
        await super()._audit_vote(action)

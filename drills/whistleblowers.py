"""Whistleblowers that accuse the innocent on purpose, for devnets, drills and tests.

Each is the honest one with a faulty replay of the accused's task, so that it plays a junk challenge, through
all its moves unless its manner is another. It says so with the event ``fault-planted``. No honest node is
ever made from these.
"""

from __future__ import annotations

from typing import Any

from assay.node.audit import sampled
from assay.node.upkeep import window_end
from assay.program.fault import NodeFault
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, Kind, Phase
from assay.whistleblower import policy
from assay.whistleblower.service import WhistleblowerService

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

    def accuses(self, claim: Claim) -> bool:
        """Whether this is a task that it accuses."""
        whose = claim.shard if isinstance(self.accused, int) else claim.claimant
        return claim.kind == Kind.TASK and claim.round == self.round and whose == self.accused

    def plant(self, view: ClaimView, step: int) -> None:
        """From now on its replay of this claim's task is wrong at a step, counted from the round's first."""
        claim, work = view.claim, self.state_provider(view.claim.job_id).work
        place = (claim.round, claim.shard)
        if self.accuses(claim) and place not in work.faults:
            node = work.files.inner.outputs[0]
            work.faults[place] = NodeFault(
                claim.round * work.terms.main.of(claim.shard).steps + step, node, 0
            )
            self.emit("fault-planted", plan=f"accuses task {claim.round}/{claim.shard} of {claim.claimant}")

    def _audit_claim(self, action: policy.AuditClaim) -> None:
        self.plant(self.market.claim(action.claim_id), 0)
        super()._audit_claim(action)


class SilentChallenger(JunkChallenger):
    """Opens its game, and makes no move in it."""

    def _play(self, action: Any) -> None:
        """Nothing."""


class LateChallenger(WhistleblowerService):
    """Honest, but it keeps what it has found to itself until the last seconds of the claim's window."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._told: set[ClaimId] = set()

    def _pursue(self, action: policy.Pursue) -> None:
        view = self.market.claim(action.claim_id)
        if view.status.phase == Phase.ACCEPTED:
            left = window_end(view, self.market.job(action.job_id).terms) - self.clock.now()
            if left <= LATE_S:
                if action.claim_id not in self._told:
                    self._told.add(action.claim_id)
                    self.emit("late", job=action.job_id.hex(), claim=action.claim_id.hex(), left=left)
                super()._pursue(action)


class SlowChallenger(JunkChallenger):
    """Makes each of its moves in the last seconds that it has."""

    def _play(self, action: Any) -> None:
        game = self.market.game(action.game_id).game
        if self.clock.now() >= game.deadline - LAST_S:
            super()._play(action)


class VoteChallenger(JunkChallenger):
    """Finds the accused task right, and wrong every trace that verifiers have shown of it."""

    def _audit_claim(self, action: policy.AuditClaim) -> None:
        WhistleblowerService._audit_claim(self, action)

    def _audit_vote(self, action: policy.AuditVote) -> None:
        view = self.market.claim(action.claim_id)
        state_provider = self.state_provider(action.job_id)
        segment = sampled(state_provider, view, action.verifier)[0]
        work = state_provider.work
        first = work.located(Kind.TASK, segment, view.claim.shard).first_step(0)
        last = first + work.segment_steps(Kind.TASK, segment, view.claim.shard) - 1
        self.plant(view, last)  # a vote shows the trace of its segment's last step
        super()._audit_vote(action)

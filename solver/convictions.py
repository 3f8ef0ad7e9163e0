"""What a solver does about its own convictions: at the first it believes nothing it has kept, at the next it
stops.

Contract: every conviction is heeded once, whatever restarts: what was kept on disk and in memory is put aside
and computed again. A claim that has fallen is not committed a second time, unless it fell by silence alone (a
clock that ran out, a demand that was not met), which says nothing against it. From then on, and after a
conviction of work that was committed when everything had begun anew, nothing is staked until a person has
looked. What is remembered is a record on disk; a damaged one stops the node.
Does not guarantee that a first conviction never happens: memory or processor may fail before any check.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from assay.disk import record
from assay.protocol.errors import Ask
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, Phase, Seconds
from assay.solver.observation import JobObservation, Observation

_KIND = "assay/convictions/1"
_NEXT = (
    "run `assay solver bench`, and a memory and disk test: this machine gives other bits than the program;"
    " once it is mended, move {path} away and start the node again"
)


class WouldFallAgain(Ask):
    """What would be committed was convicted before, or the machine that computed it was convicted twice."""

    code = "would-be-convicted"


class Convictions:
    """This account's, over all restarts."""

    def __init__(self, path: Path) -> None:
        """Raises DamagedRecord."""
        self._path = path
        self._heeded: tuple[ClaimId, ...] = ()
        self._at = Seconds(0)
        self.alarm = ""
        """Why nothing is staked until a person has looked; empty if nothing is wrong."""
        body = record.read(path, _KIND, hint=f"look why this node was convicted, then move {path} away")
        if body is not None:
            self._heeded = tuple(ClaimId(bytes.fromhex(claim)) for claim in body["heeded"])
            self._at = Seconds(body["at"])
            self.alarm = body["alarm"]

    @property
    def question(self) -> str:
        """The alarm with its next step; empty if nothing is wrong."""
        return f"{self.alarm}; {self._next}" if self.alarm else ""

    @property
    def _next(self) -> str:
        return _NEXT.format(path=self._path)

    def _save(self) -> None:
        heeded = [claim.hex() for claim in self._heeded]
        record.write(self._path, _KIND, {"heeded": heeded, "at": self._at, "alarm": self.alarm})

    def news(self, observation: Observation) -> list[ClaimView]:
        """Convicted claims of ours that were not heeded yet."""
        found = (view for job in observation.jobs for view in fallen(job.claims, observation.me))
        return [view for view in found if view.claim_id not in self._heeded]

    def heed(self, news: Sequence[ClaimView], now: Seconds) -> None:
        """Remember that these were heeded. To be called when all that was kept has been put aside."""
        again = next((view for view in news if self._heeded and view.claim.committed_at > self._at), None)
        if again is not None and not self.alarm:
            self.alarm = (
                f"claim 0x{again.claim_id.hex()} was convicted although everything had been computed anew"
                " after an earlier conviction"
            )
        self._heeded = (*self._heeded, *(view.claim_id for view in news))
        self._at = now
        self._save()

    def check(self, job: JobObservation, me: Address, claim: Claim, roots: Sequence[bytes]) -> None:
        """Raises WouldFallAgain where committing this would be to lose its stake."""
        place = (claim.kind, claim.round, claim.shard)
        for view in shown_wrong(job, me):
            was = view.claim
            if (was.kind, was.round, was.shard) == place and tuple(view.roots) == tuple(roots):
                self.alarm = self.alarm or (
                    f"the {claim.kind.name.lower()} claim of round {claim.round}, shard {claim.shard} was"
                    f" computed anew and comes out as claim 0x{view.claim_id.hex()}, which was convicted"
                )
                self._save()
        self.refuse()

    @property
    def heeded(self) -> int:
        """How many convictions were heeded so far."""
        return len(self._heeded)

    def refuse(self) -> None:
        """Raises WouldFallAgain where nothing may be committed until a person has looked."""
        if self.alarm:
            raise WouldFallAgain(f"{self.alarm}; nothing was committed, nor will be", hint=self._next)


def fallen(claims: Iterable[ClaimView], me: Address) -> list[ClaimView]:
    """Claims of this account that were convicted."""
    return [v for v in claims if v.claim.claimant == me and v.status.phase == Phase.CONVICTED]


def shown_wrong(job: JobObservation, me: Address) -> list[ClaimView]:
    """Those that did not fall by silence alone."""
    lost = [game for game in job.games if game.decided and game.challenger_won and not game.game.ballot]
    withheld = {demand.claim_id for demand in job.demands if demand.outcome == "withheld"}

    def silent(claim_id: ClaimId) -> bool:
        reasons = {game.reason for game in lost if game.game.claim_id == claim_id}
        return reasons == {"timeout"} or (not reasons and claim_id in withheld)

    return [view for view in fallen(job.claims, me) if not silent(view.claim_id)]

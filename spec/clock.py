"""A job's holders of shards, present round, rewinds and closed rounds.

Contract: values are never changed in place. ``spec.market_state`` derives the rest from the claims.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from assay.protocol.params import GRACE_MOVES
from assay.protocol.types import ZERO_ADDRESS, Address, Claim, Seconds, Terms, Wei
from spec.ledger import NOTHING
from spec.settlement import is_stale, position

NEVER = Seconds(0)


@dataclass(frozen=True)
class Shard:
    """A shard's holder (ZERO_ADDRESS: none), and since when it has been held or open."""

    opened_at: Seconds
    solver: Address = ZERO_ADDRESS
    price: Wei = NOTHING
    since: Seconds = NEVER


@dataclass(frozen=True)
class Rewind:
    """One conviction's effect on a job: everything committed before it at a later position is stale."""

    position: int
    convict: Address
    left: Wei
    """Compensation set aside for the claims that it overtook."""


@dataclass(frozen=True)
class Closing:
    """A round whose tasks its first outer claim fixed, after so many rewinds, without those not accepted by
    then."""

    round: int
    rewinds: int


@dataclass(frozen=True)
class Job:
    """A job's clock. No round after `last_round` begins. `accepted_at`: time of the last acceptance, or of
    the first slice."""

    terms: Terms
    last_round: int
    round_start: Seconds
    shards: tuple[Shard, ...]
    last_shard_claim: Seconds = NEVER
    round: int = 0
    settled_rounds: int = 0
    halted: bool = False
    closed: bool = False
    rewinds: tuple[Rewind, ...] = ()
    closings: tuple[Closing, ...] = ()
    accepted_at: Seconds = NEVER
    quiet_since: Seconds = NEVER
    """When the last game or demand on one of its claims ended."""

    @property
    def rewinds_so_far(self) -> int:
        """Number of rewinds so far."""
        return len(self.rewinds)

    @property
    def begun(self) -> bool:
        """True if the present round is one of the job's."""
        return not self.closed and self.round <= self.last_round

    @property
    def pipeline_full(self) -> bool:
        """True if no task can be committed before a round is settled (rule 4.3)."""
        return self.round - self.settled_rounds >= self.terms.max_unsettled

    @property
    def grace_end(self) -> Seconds:
        """End of the time in which the present round waits for disputes before it fines (rule 4.3.3)."""
        return Seconds(self.round_start + GRACE_MOVES * self.terms.move_time)

    @property
    def stragglers_end(self) -> Seconds:
        """End of the stragglers' time in the present round (rule 4.3.1)."""
        return Seconds(self.round_start + self.terms.task_time + self.terms.straggler_time)

    @property
    def waits_until(self) -> Seconds:
        """End of the time in which the present round waits for all of its tasks, if it has enough (rule
        4.3.1)."""
        late = self.accepted_at > self.stragglers_end
        return Seconds(self.accepted_at + self.terms.vote_time) if late else self.stragglers_end

    def is_stale(self, claim: Claim) -> bool:
        """True if a rewind has overtaken the claim (rule 5.2)."""
        at = position(claim.kind, claim.round)
        return is_stale(at, claim.rewinds, [rewind.position for rewind in self.rewinds])

    def with_shard(self, index: int, shard: Shard) -> Job:
        """The job with one shard replaced."""
        return replace(self, shards=(*self.shards[:index], shard, *self.shards[index + 1 :]))

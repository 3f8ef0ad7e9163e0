"""A claim with its status and votes.

Contract: values are never changed in place. ``spec.market_state`` says whether a claim stands in its job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from assay.protocol.game_state import Found
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimStatus,
    Kind,
    Phase,
    Seconds,
    Terms,
    Vote,
    Wei,
)
from spec.ledger import NOTHING

LIVE = (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)
"""Phases of a claim that has not ended."""


class Said(IntEnum):
    """A drawn verifier's vote."""

    NOTHING = 0
    VALID = 1
    INVALID = 2


@dataclass(frozen=True)
class Ballot:
    """One seat. `gone`: the seat has ended and nothing is locked for it: abstained, fined, convicted or
    freed."""

    verifier: Address
    said: Said = Said.NOTHING
    traces_root: bytes = ZERO_DIGEST
    gone: bool = False

    @property
    def silent(self) -> bool:
        """True if the verifier has not voted and the seat has not ended."""
        return not self.gone and self.said == Said.NOTHING

    @property
    def stands(self) -> bool:
        """True if the verifier has voted, and its stake is still locked for the vote."""
        return not self.gone and self.said != Said.NOTHING

    @property
    def valid(self) -> bool:
        """True if the vote is valid and stands."""
        return not self.gone and self.said == Said.VALID

    @property
    def vote(self) -> Vote:
        """The vote as ``ITasks.votes`` returns it."""
        return Vote(self.verifier, self.said != Said.NOTHING, self.valid, self.gone, self.traces_root)


@dataclass(frozen=True)
class ClaimState:
    """A claim with its status and votes: `ballots` by verifier, `drawn` in the order of the seats."""

    claim: Claim
    status: ClaimStatus
    drawn: tuple[Address, ...] = ()
    reward: Wei = NOTHING
    """Reward of a convicted claim that waits for its true finding (rule 5.4)."""
    winner: Address = ZERO_ADDRESS
    """Account that convicted it, while its reward waits."""
    kept: tuple[Found, ...] = ()
    """Findings whose games have ended since, in that order."""
    gone: bool = False
    """While its reward waits: whether the job had continued without the claim when it fell."""
    overtaken: bool = False
    """Of a convicted claim, until `freeSeats`: whether a rewind had overtaken it before."""
    overtaker: int | None = None
    """Number of that rewind, if it set compensation aside for the claim."""
    ballots: Mapping[Address, Ballot] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """True if the claim has not ended."""
        return self.status.phase in LIVE

    @property
    def pending(self) -> bool:
        """True if the claim has yet to be accepted."""
        return self.status.phase in (Phase.COMMITTED, Phase.SEEDED)

    def seats(self) -> list[Ballot]:
        """Ballots in the order of the seats."""
        return [self.ballots[verifier] for verifier in self.drawn]

    def held(self) -> list[Ballot]:
        """Ballots whose seats have not ended."""
        return [ballot for ballot in self.seats() if not ballot.gone]

    def silent(self) -> list[Ballot]:
        """Ballots of verifiers that have not voted and whose seats have not ended."""
        return [ballot for ballot in self.seats() if ballot.silent]

    def voted(self) -> list[Ballot]:
        """Ballots whose votes stand."""
        return [ballot for ballot in self.seats() if ballot.stands]

    def window_end(self, terms: Terms) -> Seconds:
        """End of an accepted claim's window; later if a seat has no valid standing vote (rule 4.7)."""
        attested = self.claim.kind == Kind.OUTER or self.status.valid == terms.verifiers
        return Seconds(self.status.since + (1 if attested else 2) * terms.challenge_window)

    def with_status(self, **changes: Any) -> ClaimState:
        """The claim with some fields of its status replaced."""
        return replace(self, status=replace(self.status, **changes))

    def with_ballot(self, ballot: Ballot) -> ClaimState:
        """The claim with one ballot replaced or added, and counted."""
        ballots = {**self.ballots, ballot.verifier: ballot}
        shown = sum(each.stands for each in ballots.values())
        valid = sum(each.valid for each in ballots.values())
        drawn = self.drawn if ballot.verifier in self.drawn else (*self.drawn, ballot.verifier)
        return replace(self, ballots=ballots, drawn=drawn).with_status(shown=shown, valid=valid)

    def without(self, ballots: Iterable[Ballot]) -> ClaimState:
        """The claim with these seats ended."""
        state = self
        for ballot in ballots:
            state = state.with_ballot(replace(ballot, gone=True))
        return state

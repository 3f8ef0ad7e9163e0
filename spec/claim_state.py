"""A claim, where it stands, and its votes.

Contract: values are never changed in place. Whether a claim stands in its job is asked of the market
(``spec.market_state``).
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
    """What a drawn verifier has voted."""

    NOTHING = 0
    VALID = 1
    INVALID = 2


@dataclass(frozen=True)
class Ballot:
    """One drawn verifier's vote. `gone`: the seat is over and nothing is locked for it: abstained, fined,
    fallen, or paid and freed."""

    verifier: Address
    said: Said = Said.NOTHING
    traces_root: bytes = ZERO_DIGEST
    gone: bool = False

    @property
    def silent(self) -> bool:
        """Whether it has neither voted nor ended."""
        return not self.gone and self.said == Said.NOTHING

    @property
    def stands(self) -> bool:
        """Whether it has voted, and its stake still answers for that."""
        return not self.gone and self.said != Said.NOTHING

    @property
    def valid(self) -> bool:
        """Whether its vote is valid and stands."""
        return not self.gone and self.said == Said.VALID

    @property
    def vote(self) -> Vote:
        """As ``ITasks.votes`` shows it."""
        return Vote(self.verifier, self.said != Said.NOTHING, self.valid, self.gone, self.traces_root)


@dataclass(frozen=True)
class ClaimState:
    """A claim, where it stands, and its votes: `ballots` by verifier, `drawn` in the order of the seats."""

    claim: Claim
    status: ClaimStatus
    drawn: tuple[Address, ...] = ()
    reward: Wei = NOTHING
    """Of a convicted claim: what waits until it is known whose finding is the truth (rule 5.4)."""
    winner: Address = ZERO_ADDRESS
    """Who convicted it, while its reward waits."""
    kept: tuple[Found, ...] = ()
    """Findings whose games are over since, in that order."""
    gone: bool = False
    """While its reward waits: whether the job went on without the claim when it fell."""
    overtaken: bool = False
    """Of a convicted claim: whether a rewind had overtaken it before, until `freeSeats`."""
    overtaker: int | None = None
    """Which rewind that was, if it set something aside for the claim."""
    ballots: Mapping[Address, Ballot] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.status.phase in LIVE

    @property
    def pending(self) -> bool:
        """Whether it waits to be accepted."""
        return self.status.phase in (Phase.COMMITTED, Phase.SEEDED)

    def seats(self) -> list[Ballot]:
        """The ballots in the order of the seats."""
        return [self.ballots[verifier] for verifier in self.drawn]

    def held(self) -> list[Ballot]:
        """Those that have not ended."""
        return [ballot for ballot in self.seats() if not ballot.gone]

    def silent(self) -> list[Ballot]:
        """Those that have neither voted nor ended."""
        return [ballot for ballot in self.seats() if ballot.silent]

    def voted(self) -> list[Ballot]:
        """Those whose votes stand."""
        return [ballot for ballot in self.seats() if ballot.stands]

    def window_end(self, terms: Terms) -> Seconds:
        """Of an accepted claim: until when it may be challenged; later where not every seat's vote stands
        valid (rule 4.7)."""
        attested = self.claim.kind == Kind.OUTER or self.status.valid == terms.verifiers
        return Seconds(self.status.since + (1 if attested else 2) * terms.challenge_window)

    def with_status(self, **changes: Any) -> ClaimState:
        """With some fields of its status replaced."""
        return replace(self, status=replace(self.status, **changes))

    def with_ballot(self, ballot: Ballot) -> ClaimState:
        """With one ballot replaced or added, and counted."""
        ballots = {**self.ballots, ballot.verifier: ballot}
        shown = sum(each.stands for each in ballots.values())
        valid = sum(each.valid for each in ballots.values())
        drawn = self.drawn if ballot.verifier in self.drawn else (*self.drawn, ballot.verifier)
        return replace(self, ballots=ballots, drawn=drawn).with_status(shown=shown, valid=valid)

    def without(self, ballots: Iterable[Ballot]) -> ClaimState:
        """With these seats over."""
        state = self
        for ballot in ballots:
            state = state.with_ballot(replace(ballot, gone=True))
        return state

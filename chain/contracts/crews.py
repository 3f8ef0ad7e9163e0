"""Calls for members of crews (docs/protocol.md, section 8).

Contract: as `chain.contracts.market`: each call sends at most one transaction per intent. Reads are at the
latest block. A member signs with `chain.contracts.consent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.unbonding import unbond_requests
from assay.chain.contracts.view import ChainView
from assay.chain.eth.contract import Contract
from assay.chain.eth.fees import Due
from assay.protocol.crew import WHOLE, Invitation, Said, Transcript
from assay.protocol.encoding import as_tuple
from assay.protocol.errors import Stop
from assay.protocol.types import Address, Claim, ClaimId, Role, Seconds, TxResult, Wei


@dataclass(frozen=True)
class Standing:
    """What a member is charged with and owed."""

    charged: Wei
    accusations: int
    """Undecided ones."""
    earned: Wei
    """Its part of what the crew has not paid out yet."""


@dataclass(frozen=True)
class CrewView:
    """A crew that was formed. `due`: time from which its stakes can be paid back; None while they are not
    unbonding."""

    address: Address
    holds: bool
    """True if it holds its shard."""
    active: Wei
    locked: Wei
    lost: Wei
    due: Seconds | None
    members: tuple[Standing, ...]

    @property
    def ended(self) -> bool:
        """True if the stakes were paid back."""
        return not self.active and self.due is None


def address_of(view: ChainView, invitation: Invitation) -> Address:
    """Where the crew of an invitation is, or will be."""
    return Address(view.contracts["Crews"].read("crewOf", as_tuple(invitation)))


def crew_view(view: ChainView, invitation: Invitation) -> CrewView | None:
    """The crew of an invitation; None if it was not formed."""
    crew = _crew(view, invitation)
    if not crew.is_deployed():
        return None
    address = Address(crew.address)
    stake = view.stake(address, Role.SOLVER)
    left = unbond_requests(view, address, Role.SOLVER)
    ended = not (stake.active or left)
    return CrewView(
        address,
        view.holder(invitation.job_id, invitation.shard).solver == address,
        stake.active,
        stake.locked,
        Wei(0) if ended else Wei(crew.read("lost")),
        left[0].due if left else None,
        tuple(_standings(view, invitation, address)),
    )


def _standings(view: ChainView, invitation: Invitation, crew: Address) -> Sequence[Standing]:
    crews, free = view.contracts["Crews"], view.free(crew)
    parts = [free * member.share // WHOLE for member in invitation.members]
    parts[0] = free - sum(parts[1:])  # what does not divide is the leader's
    books = [crews.read("charged", crew, i) for i in range(len(parts))]
    return [
        Standing(Wei(book["amount"]), int(book["games"]), Wei(part))
        for book, part in zip(books, parts, strict=True)
    ]


def _crew(view: ChainView, invitation: Invitation) -> Contract:
    return view.contracts["Crew"].at(address_of(view, invitation))


class CrewMember:
    """One account's part in the crew of an invitation."""

    def __init__(self, market: ChainMarket, invitation: Invitation) -> None:
        self._market, self._invitation = market, invitation
        self._crews, self.crew = market.contracts["Crews"], _crew(market, invitation)

    @property
    def place(self) -> int:
        """The account's number among the members. Raises Stop."""
        place = self._invitation.place(self._market.account)
        if place is None:
            raise Stop(
                f"{self._market.account} is no member of this crew, so nothing was sent",
                hint="choose the member's account with --account",
                code="not-member",
            )
        return place

    def allow(self, intent: str) -> TxResult | None:
        """Lets Crews take the stake with the account's consent; None if it may already."""
        return self._market.approve(intent, Address(self._crews.address), self._invitation.stake)

    def form(self, intent: str, consents: Sequence[bytes]) -> TxResult:
        """Leader: forms the crew. `consents`: the other members' signatures, in their order."""
        return self._market.do(intent, "Crews", "form", self._invitation, list(consents))

    def release(self, intent: str) -> TxResult:
        """Gives the shard back, once its task of the round stands or the job is over."""
        return self._do(intent, "release", self._invitation, self.place)

    def dissolve(self, intent: str) -> TxResult:
        """Begins to unbond all stakes."""
        return self._do(intent, "dissolve", self._invitation, self.place)

    def finish(self, intent: str) -> TxResult:
        """Pays all stakes back, less what is charged."""
        return self._do(intent, "finish", self._invitation)

    def pay(self, intent: str) -> TxResult:
        """Pays the crew's earnings to its members."""
        return self._do(intent, "pay", self._invitation)

    def commit(self, intent: str, claim: Claim, roots: Sequence[bytes], due: Due | None = None) -> ClaimId:
        """Leader: commits a claim of the crew, as `Market.commit`."""
        self._market.do(intent, self.crew, "commit", claim, list(roots), due=due)
        return ClaimId(self._market.logged(intent, "Tasks", "Committed")["claimId"])

    def accuse(self, intent: str, claim: Claim, transcript: Transcript, signature: bytes, said: Said) -> int:
        """Leader: accuses a member of a false step of a convicted claim; returns the game's id.

        Takes the job's challengeBond out of the account's tokens.
        """
        bond = self._market.job(claim.job_id).terms.challenge_bond
        self._market.approve(f"{intent}/approve", Address(self._crews.address), bond)
        self._market.do(intent, "Crews", "accuse", self._invitation, claim, transcript, signature, said)
        return int(self._market.logged(intent, "Crews", "Accused")["gameId"])

    def _do(self, intent: str, function: str, *arguments: object) -> TxResult:
        return self._market.do(intent, self.crew, function, *arguments)

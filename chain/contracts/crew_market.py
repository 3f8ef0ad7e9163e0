"""The market for the account of a crew, as one of its members (docs/protocol.md, rule 8.2).

Contract: as ``chain.contracts.market``, with the crew as its account. The leader's commits, moves and
announcements go through the crew's contract; other members' are refused by it. Calls that anyone may make are
the member's own. Nothing takes a shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.consent import sign_transcript, transcript_signer
from assay.chain.contracts.crew_court import CrewCourt
from assay.chain.contracts.crews import CrewMember, address_of
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.game_calls import call_of
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.rpc import Rpc
from assay.chain.eth.sender import Sender
from assay.protocol.crew import Invitation, Transcript
from assay.protocol.dispute import Move, Timeout
from assay.protocol.encoding import as_tuple
from assay.protocol.errors import Stop
from assay.protocol.game_state import Game
from assay.protocol.peer_url import peer_url
from assay.protocol.types import Address, Claim, ClaimId, JobId, Role, StakeView, TxResult, Wei

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount


class CrewMarket(ChainMarket):
    """Read and write access for a crew, by one member. `key`: the member's, which signs its transcripts."""

    def __init__(
        self,
        rpc: Rpc,
        deployment: Deployment,
        artifacts: Artifacts,
        sender: Sender,
        events_file: Path,
        *,
        invitation: Invitation,
        key: LocalAccount,
        confirmations: int = 0,
    ) -> None:
        """Raises Stop if the account is no member or the crew was not formed."""
        super().__init__(rpc, deployment, artifacts, sender, events_file, confirmations=confirmations)
        self.invitation, self._key = invitation, key
        self._member = CrewMember(self, invitation)
        self.place = self._member.place
        if not self._member.crew.is_deployed():
            raise Stop(
                "the crew of this invitation was not formed, so nothing was started",
                hint="`assay crew status` says what is missing",
                code="not-formed",
            )
        self._me = address_of(self, invitation)
        own = events_file.parent / "crew" / self._me
        own.mkdir(parents=True, exist_ok=True)
        self.court = CrewCourt(
            self,
            self._member,
            rpc,
            own / "events.db",
            deployment.first_block,
            confirmations,
        )

    def disconnect(self) -> None:
        """Closes the event files."""
        self.court.close()
        super().disconnect()

    @property
    def speaker(self) -> Address:
        """The crew for its leader, who announces where it serves; else the member's own account."""
        return self.me if self.place == 0 else self.account

    def stake(self, account: Address, role: Role) -> StakeView:
        """An account's stake; of the crew what may be locked: one member's, less what is lost."""
        found = super().stake(account, role)
        if account != self.me or role != Role.SOLVER:
            return found
        every = len(self.invitation.members) * self.invitation.stake
        lost = every - found.active - found.unbonding
        return replace(found, active=Wei(max(min(self.invitation.stake - lost, found.active), 0)))

    def set_endpoint(self, intent: str, url: str) -> TxResult:
        """Announces the URL of the crew's blocks, or of this member's node."""
        if self.speaker != self.me:
            return super().set_endpoint(intent, url)
        return self.do(intent, self._member.crew, "setEndpoint", peer_url(url) if url else "")

    def take_shard(self, intent: str, job_id: JobId, shard: int, least_price: Wei = Wei(0)) -> TxResult:
        """Refused: a crew takes its shard when it is formed. Raises Stop."""
        raise Stop(
            "a crew takes no other shard; nothing was sent", hint="form another crew", code="one-shard"
        )

    def release(self, intent: str, job_id: JobId, shard: int) -> TxResult:
        """Gives the crew's shard back."""
        return self._member.release(intent)

    def commit(self, intent: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        """As `ChainMarket.commit`, by the crew."""
        return self._member.commit(intent, claim, roots, self._due(self._due_of_task, claim))

    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult:
        """Makes the crew's move in a game of the market's Court."""
        function, arguments = call_of(game_id, game, move)
        due = None if isinstance(move, Timeout) else self._due(self._due_of_move, game)
        data = self.contracts["Court"].call(function, *(as_tuple(a) for a in arguments)).data
        return self.do(intent, self._member.crew, "move", data, due=due)

    def pay(self, intent: str) -> TxResult:
        """Pays the crew's free balance to its members."""
        return self._member.pay(intent)

    def sign(self, transcript: Transcript) -> bytes:
        """The member's signature of its steps."""
        return sign_transcript(self._key, transcript, self.sender.chain_id, self._crews)

    def signer(self, transcript: Transcript, signature: bytes) -> Address | None:
        """Who has signed a transcript; None if it is no signature."""
        try:
            return transcript_signer(transcript, signature, self.sender.chain_id, self._crews)
        except ValueError:
            return None

    @property
    def _crews(self) -> Address:
        return Address(self.contracts["Crews"].address)

"""The games about the steps of one crew's members (docs/protocol.md, rule 8.6), for one member's account.

Contract: as ``chain.contracts.market``. Events of the crews' Court are followed apart from the market's, in a
file of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.chain.contracts.crews import CrewMember
from assay.chain.contracts.followed_index import FollowedIndex
from assay.chain.contracts.game_calls import call_of
from assay.chain.eth.events import EventFollower
from assay.chain.eth.fees import Due
from assay.chain.eth.rpc import Rpc
from assay.protocol.crew import Said, Transcript
from assay.protocol.dispute import Move, Timeout
from assay.protocol.game_state import Game, GameView
from assay.protocol.types import Address, Claim, ClaimId, TxResult

if TYPE_CHECKING:
    from assay.chain.contracts.market import ChainMarket

COURT = "CrewsCourt"


class CrewCourt:
    """A member's part in its crew's games. Thread-safe."""

    def __init__(
        self, market: ChainMarket, member: CrewMember, rpc: Rpc, file: Path, first_block: int, behind: int
    ) -> None:
        """`file`: of its events; `behind`: blocks to stay behind the head."""
        court = market.contracts[COURT]
        self._market, self._member, self._lock = market, member, threading.Lock()
        self._follower = EventFollower(
            rpc, {"Court": (court.address, court.abi)}, file, first_block=first_block, confirmations=behind
        )
        self._followed = FollowedIndex(self._follower)
        self._followed.read()

    @property
    def me(self) -> Address:
        """The member's account."""
        return self._market.account

    def games(self) -> Sequence[GameView]:
        """Games about the crew's members, oldest first. Raises RpcUnreachable."""
        with self._lock:
            more = True
            while more:
                self._followed.fold(self._follower.poll())
                more = self._follower.more
            crew = self._member.crew.address
            return [v for v in self._followed.index.games.values() if v.game.accused.claimant == crew]

    def accused(self, claim_id: ClaimId, member: int) -> bool:
        """True if a member was accused for a claim."""
        return bool(self._market.contracts["Crews"].read("accused", claim_id, member))

    def accuse(self, intent: str, claim: Claim, transcript: Transcript, signature: bytes, said: Said) -> int:
        """Leader: accuses a member of a false step; returns the game's id."""
        return self._member.accuse(intent, claim, transcript, signature, said)

    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult:
        """Makes the account's move."""
        function, arguments = call_of(game_id, game, move)
        stake = self._market.job(game.accused.job_id).terms.solver_stake
        due = Due(game.deadline - game.move_time, game.deadline, stake)
        late = isinstance(move, Timeout)
        return self._market.do(intent, COURT, function, *arguments, due=None if late else due)

    def close(self) -> None:
        """Closes the event file."""
        self._follower.close()

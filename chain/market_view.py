"""The market as one account's node sees it: `protocol.ports.MarketView` over a node.

Contract: every answer of one refresh is as of one block, `block`; the view moves on when it is older than
`max_age_s` and after each transaction of this node. What no block changes without an event (claims, and jobs
that have closed) is asked once, and remembered until that event, or until the block it was seen at is gone.
Does not guarantee that the node is honest: whoever stakes on it should run it or compare two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chain.abi import Abi
from chain.compile import Artifacts
from chain.contract import Contract
from chain.deploy import Deployment
from chain.errors import Registry
from chain.events import Event, EventFollower, RolledBack
from chain.market_index import MarketIndex
from chain.records import unpack
from chain.rpc import Rpc, get_block, quantity
from protocol.demands import DemandView
from protocol.errors import Stop
from protocol.types import (
    Address,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    GameView,
    Holder,
    JobId,
    JobView,
    Kind,
    Phase,
    Progress,
    Role,
    Seconds,
    StakeView,
    Vote,
    Wei,
)

INTERFACES = {
    "Vault": "IVault",
    "Stakes": "IStakes",
    "Jobs": "IJobs",
    "Tasks": "ITasks",
    "Challenges": "IChallenges",
    "Court": "ICourt",
    "Keys": "IKeys",
    "Guardian": "IGuardian",
    "Availability": "IAvailability",
    "Plants": "IPlants",
}
TOKEN_ABI: Abi = [
    {
        "type": "function",
        "name": "balanceOf",
        "inputs": [{"name": "account", "type": "address"}],
        "outputs": [{"name": "", "type": "uint256"}],
    },
    {
        "type": "function",
        "name": "allowance",
        "inputs": [{"name": "owner", "type": "address"}, {"name": "spender", "type": "address"}],
        "outputs": [{"name": "", "type": "uint256"}],
    },
    {
        "type": "function",
        "name": "approve",
        "inputs": [{"name": "spender", "type": "address"}, {"name": "amount", "type": "uint256"}],
        "outputs": [{"name": "", "type": "bool"}],
    },
]
_ESCROW = 3  # IVault.Bucket
_STANDING = (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)


class Unknown(Stop):
    """The market has no such job, claim or game."""

    code = "not-found"


def contracts(rpc: Rpc, deployment: Deployment, artifacts: Artifacts) -> dict[str, Contract]:
    """The market's contracts by name, with every custom error of the project known to each."""
    registry = Registry(artifact.abi for artifact in artifacts.values())
    found = {
        name: Contract(rpc, name, deployment.addresses[name], artifacts[interface].abi, registry)
        for name, interface in INTERFACES.items()
    }
    found["Token"] = Contract(rpc, "Token", deployment.addresses["Token"], TOKEN_ABI, registry)
    return found


class ChainView:
    """Reads. Safe to share between threads."""

    def __init__(
        self,
        rpc: Rpc,
        deployment: Deployment,
        artifacts: Artifacts,
        me: Address,
        events_file: Path,
        *,
        confirmations: int = 0,
        max_age_s: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.contracts = contracts(rpc, deployment, artifacts)
        self._me = me
        self._rpc = rpc
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.RLock()
        self._follower = EventFollower(
            rpc,
            {name: (self.contracts[name].address, self.contracts[name].abi) for name in INTERFACES},
            events_file,
            first_block=deployment.first_block,
            confirmations=confirmations,
        )
        self._index = MarketIndex()
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._kept: dict[ClaimId, tuple[int, ClaimView]] = {}
        self._closed: dict[JobId, tuple[int, JobView]] = {}
        self._block = self._follower.cursor
        self._seen_s = float("-inf")
        self._readers = 0
        self._restart_index()
        self.refresh()

    @property
    def held(self) -> Wei:
        """What the vault holds that is nobody's free balance or stake, by its events."""
        with self._lock:
            return self._index.held

    @property
    def me(self) -> Address:
        """The account of this node."""
        return self._me

    @property
    def block(self) -> int:
        """The block that all answers are of."""
        return self._block

    def refresh(self) -> None:
        """Move to the latest block. Raises RpcUnreachable."""
        with self._lock:
            self._seen_s = float("-inf")  # whoever reads after a failure here has to come back to it
            changes = self._follower.poll()
            events = [change for change in changes if isinstance(change, Event)]
            if len(events) < len(changes):
                agreed = min(c.block_number for c in changes if isinstance(c, RolledBack))
                self._kept = {k: kept for k, kept in self._kept.items() if kept[0] <= agreed}
                self._closed = {k: kept for k, kept in self._closed.items() if kept[0] <= agreed}
                self._restart_index()
            else:
                for event in events:
                    self._index.apply(event)
            for event in events:
                self._forget(event)
            self._answers.clear()
            self._block = self._follower.cursor
            self._seen_s = self._clock()

    def disconnect(self) -> None:
        """Close the event file."""
        self._follower.close()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Hold all answers at one block for the length of a `with` block (one pass of a policy).

        Other threads wait; a transaction of this node inside the block still moves the view on.
        """
        with self._pinned():
            yield

    def jobs(self) -> Sequence[JobView]:
        """All jobs, oldest first."""
        with self._pinned() as index:
            return [self.job(job_id) for job_id in index.jobs]

    def job(self, job_id: JobId) -> JobView:
        """One job. Raises Unknown."""
        with self._pinned() as index:
            terms = index.jobs.get(job_id)
            if terms is None:
                raise Unknown(f"there is no job 0x{job_id.hex()} on this market", hint="assay job ls")
            if job_id in self._closed:
                return self._closed[job_id][1]
            progress = unpack(Progress, self._read("Jobs", "progress", job_id))
            view = JobView(job_id, terms, progress, Wei(self._read("Vault", "balance", _ESCROW, job_id)))
            if progress.closed and job_id in index.closed:
                self._closed[job_id] = (self.block, view)
            return view

    def holder(self, job_id: JobId, shard: int) -> Holder:
        """Who holds a shard."""
        with self._pinned():
            return unpack(Holder, self._read("Tasks", "holder", job_id, shard))

    def price(self, job_id: JobId, shard: int) -> Wei:
        """Price at which an open shard can be taken now."""
        with self._pinned():
            return Wei(self._read("Tasks", "price", job_id, shard))

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        """Every claim ever committed for the job, oldest first."""
        with self._pinned() as index:
            return [self.claim(claim_id) for claim_id in index.claims_of.get(job_id, [])]

    def claim(self, claim_id: ClaimId) -> ClaimView:
        """One claim. Raises Unknown."""
        with self._pinned() as index:
            if claim_id in self._kept:
                return self._kept[claim_id][1]
            claim = index.claims.get(claim_id)
            if claim is None:
                raise Unknown(
                    f"there is no claim 0x{claim_id.hex()} on this market", hint="assay job show JOB"
                )
            return self._ask_claim(claim_id, claim)

    def current(self, job_id: JobId, kind: Kind, round: int, shard: int) -> ClaimView | None:
        """The standing claim of a place (None: not committed, convicted, or overtaken by a rewind)."""
        with self._pinned():
            claim_id = self._read("Tasks", "current", job_id, int(kind), round, shard)
            return self.claim(ClaimId(claim_id)) if any(claim_id) else None

    def games(self, job_id: JobId | None = None) -> Sequence[GameView]:
        """Games, oldest first."""
        with self._pinned() as index:
            return index.games_of(job_id) if job_id is not None else list(index.games.values())

    def game(self, game_id: int) -> GameView:
        """One game. Raises Unknown."""
        with self._pinned() as index:
            found = index.games.get(game_id)
            if found is None:
                raise Unknown(f"there is no game {game_id} on this market", hint="assay dispute ls")
            return found

    def demands(self, job_id: JobId | None = None) -> Sequence[DemandView]:
        """Demands to show pieces of a state, oldest first."""
        with self._pinned() as index:
            return index.demands_of(job_id) if job_id is not None else list(index.demands.values())

    def stake(self, account: Address, role: Role) -> StakeView:
        """An account's stake in one role."""
        with self._pinned():
            names = ("active", "locked", "unbonding")
            return StakeView(*(Wei(self._read("Stakes", name, account, int(role))) for name in names))

    def free(self, account: Address) -> Wei:
        """Withdrawable balance in the vault."""
        with self._pinned():
            return Wei(self._read("Vault", "free", account))

    def wallet(self, account: Address) -> Wei:
        """Token balance outside the vault."""
        with self._pinned():
            return Wei(self._read("Token", "balanceOf", account))

    def endpoints(self) -> dict[Address, str]:
        """Where nodes say they serve blocks."""
        with self._pinned() as index:
            return dict(index.endpoints)

    @contextmanager
    def _pinned(self) -> Iterator[MarketIndex]:
        """The lock, and the tables at one block: refreshed only by the outermost reader."""
        with self._lock:
            if self._readers == 0 and self._clock() - self._seen_s > self._max_age_s:
                self.refresh()
            self._readers += 1
            try:
                yield self._index
            finally:
                self._readers -= 1

    def _ask_claim(self, claim_id: ClaimId, claim: Claim) -> ClaimView:
        status = unpack(ClaimStatus, self._read("Tasks", "status", claim_id))
        votes = tuple(unpack(Vote, vote) for vote in self._read("Tasks", "votes", claim_id))
        place = (claim.job_id, int(claim.kind), claim.round, claim.shard)
        stale = status.phase in _STANDING and self._read("Tasks", "current", *place) != claim_id
        left_out = stale and not self._overtaken(claim)
        roots, traces = self._index.roots[claim_id], self._index.traces.get(claim_id, {})
        view = ClaimView(claim_id, claim, status, votes, stale, left_out, roots, dict(traces))
        if not self._voting(claim, status):
            self._kept[claim_id] = (self.block, view)
        return view

    def _voting(self, claim: Claim, status: ClaimStatus) -> bool:
        """Whether votes may still be committed (rule 4.7): the one change of a claim that no event tells."""
        if status.phase != Phase.SEEDED:
            return False
        return self._time() <= status.since + self._index.jobs[claim.job_id].vote_time

    def _time(self) -> Seconds:
        """Timestamp of the block that all answers are of; 0 while the node does not know it."""
        key = ("timestamp",)
        if key not in self._answers:
            block = get_block(self._rpc, self.block)
            self._answers[key] = 0 if block is None else quantity(block["timestamp"], "a block's time")
        return Seconds(self._answers[key])

    def _overtaken(self, claim: Claim) -> bool:
        """Whether a rewind has overtaken the claim, whatever became of its round."""
        place = (claim.job_id, int(claim.kind), claim.round, claim.epoch)
        return bool(self._read("Jobs", "overtaken", *place, False))

    def _forget(self, event: Event) -> None:
        """Drop what an event may have changed; every other change of a claim names it in an event."""
        if event.name in ("Rewound", "ShardsMissing"):
            for claim_id in self._index.claims_of.get(JobId(event.arguments["jobId"]), []):
                self._kept.pop(claim_id, None)
        elif "claimId" in event.arguments:
            self._kept.pop(ClaimId(event.arguments["claimId"]), None)

    def _read(self, contract: str, function: str, *arguments: Any) -> Any:
        """A view's answer at this block, asked once."""
        key = (contract, function, *arguments)
        if key not in self._answers:
            target = self.contracts[contract]
            self._answers[key] = target.read(function, *arguments, block=self.block, sender=self._me)
        return self._answers[key]

    def _restart_index(self) -> None:
        self._index = MarketIndex()
        for event in self._follower.history():
            self._index.apply(event)

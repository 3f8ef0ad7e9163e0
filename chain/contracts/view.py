"""Implements `protocol.ports.MarketView` for one account over a node.

Contract: every answer between two refreshes is of one block, `block`. The view moves on when it is older than
`max_age_s` (``chain.eth.freshness``) and after each transaction of this node. Data that only changes with an
event (claims, closed jobs) is cached until that event, or until its block is replaced. Other data of a job,
its claims or an account is read in one batch. Within `snapshot` free places of a batch prefetch what will be
read next (decision 0070). Not guaranteed: that the node is honest; whoever stakes on it should run it or
compare two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.bindings import INTERFACES, contracts
from assay.chain.contracts.claim_cache import ClaimCache
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.followed_index import FollowedIndex
from assay.chain.contracts.index import Gateway, MarketIndex
from assay.chain.contracts.prefetch import claims_ahead, filled, jobs_ahead, look_ahead, shard_keys
from assay.chain.contracts.records import unpack
from assay.chain.contracts.view_cache import CLOCK_KEY, Answers, Key, room_key, stake_keys, standing_keys
from assay.chain.eth.abi import MalformedData
from assay.chain.eth.contract import WrongAnswer
from assay.chain.eth.endpoints import Endpoints
from assay.chain.eth.event_reader import EventReader
from assay.chain.eth.events import AT_ONCE, Event, EventFollower, RolledBack
from assay.chain.eth.freshness import Freshness
from assay.chain.eth.rpc import Rpc
from assay.protocol.demands import DemandView
from assay.protocol.errors import Retry, Unknown
from assay.protocol.game_state import GameView, WaitingReward
from assay.protocol.types import (
    ZERO_DIGEST,
    Address,
    Bounds,
    Claim,
    ClaimId,
    ClaimView,
    ClockView,
    Conditions,
    Holder,
    JobId,
    JobView,
    Kind,
    Progress,
    Role,
    Seconds,
    StakeView,
    Wei,
)


class ChainView:
    """Read access. Thread-safe."""

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
        self._me, self._lock = me, threading.RLock()
        self._follower = EventFollower(
            rpc,
            {name: (self.contracts[name].address, self.contracts[name].abi) for name in INTERFACES},
            events_file,
            first_block=deployment.first_block,
            confirmations=confirmations,
            at_once=AT_ONCE,
        )
        if isinstance(rpc, Endpoints):
            rpc.has_seen(self._follower.cursor, events_file)
        self._followed = FollowedIndex(self._follower)
        self._answers = Answers(rpc, self.contracts, self._follower.cursor, self._follower.cursor_hash)
        self._claims = ClaimCache(self._answers, self._follower)
        self._closed: dict[JobId, tuple[int, JobView]] = {}
        self._freshness = Freshness(max_age_s, clock)
        self._readers = self._looks = 0
        self._priced = False  # whether anybody has asked for a price, as solvers do
        try:
            self._followed.read()
        except (KeyError, MalformedData) as error:
            self._read_anew(error)
        with suppress(Retry):  # whoever reads is told
            self.refresh()

    @property
    def held(self) -> Wei:
        """Tokens in the vault that are nobody's free balance or stake, by its events."""
        with self._lock:
            return self._index.held

    @property
    def me(self) -> Address:
        """Account of this node."""
        return self._me

    @property
    def speaker(self) -> Address:
        """Account whose URL this node announces."""
        return self._me

    @property
    def block(self) -> int:
        """Block of all answers."""
        return self._answers.block

    @property
    def rewinds(self) -> Sequence[int]:
        """For each reorganisation that this view has followed, the last block that stayed."""
        return self._follower.rewinds

    def refresh(self) -> None:
        """Moves to the latest block. Raises RpcUnreachable."""
        with self._lock, self._freshness.asking():  # whoever reads after a failure has to come back to it
            try:
                changed = self._follow()
            except (KeyError, MalformedData) as error:
                raise self._read_anew(error) from error
            if changed or not self._answers.are_of(self._follower.cursor, self._follower.cursor_hash):
                self._answers.move(self._follower.cursor, self._follower.cursor_hash)

    def _follow(self) -> bool:
        """Folds in new events, part by part; True if there were any."""
        changed = False
        while True:
            changes = self._follower.poll()
            self._fold(changes)
            changed |= bool(changes)
            if not self._follower.more:
                return changed

    def _fold(self, changes: Sequence[Event | RolledBack]) -> None:
        agreed = self._followed.fold(changes)
        if agreed is not None:
            self._claims.forget_since(agreed)
            self._closed = {k: kept for k, kept in self._closed.items() if kept[0] <= agreed}
        self._claims.forget([change for change in changes if isinstance(change, Event)], self._index)

    @property
    def _index(self) -> MarketIndex:
        return self._followed.index

    def _read_anew(self, error: Exception) -> WrongAnswer:
        """Drops events that contradict one another and starts over: some were hidden or invented."""
        self._follower.start_over()
        self._claims.clear()
        self._closed.clear()
        self._followed.clear()
        return WrongAnswer(
            f"the node's events contradict one another ({type(error).__name__}: {error}); all are read anew",
            hint="if that goes on, use another node, or two (--rpc-url)",
        )

    def disconnect(self) -> None:
        """Closes the event file."""
        self._follower.close()

    @contextmanager
    def snapshot(self, since_s: float | None = None) -> Iterator[None]:
        """Fixes all answers to one block for a `with` block (one pass of a policy), read no earlier than
        `since_s`, if given.

        Other threads wait; a transaction of this node inside the block still moves the view.
        """
        with self._pinned(since_s):
            self._looks += 1
            try:
                yield
            finally:
                self._looks -= 1

    def events(self) -> list[Event]:
        """All events up to `block`, in chain order."""
        with self._pinned():
            return list(self._follower.history())

    def reader(self, heeded: Callable[[str], bool]) -> EventReader:
        """An incremental reader of transactions with a log that `heeded` accepts, as JSON in lower case.

        Use it within a `snapshot`.
        """
        return EventReader(self._follower, heeded)

    def unheard(self) -> list[ClaimId]:
        """Live claims of this account, own or voted on, for which the contracts count more open games and
        demands than the node's logs have shown. The contracts outrank the logs: those since the claim are
        read again."""
        with self._pinned() as index:
            mine = index.live_claims(self._me)
            self._claims.doubt(mine)
            self._claims.ask(index, mine, iter(()))
            found = [c for c in mine if self._claims.view(c).status.open_games > index.open_games(c)]
            if found:
                self._follower.read_again(min(index.committed_in(claim_id) for claim_id in found) - 1)
        if found:
            self.refresh()
        return found

    def committed(self, claim_id: ClaimId) -> Claim | None:
        """The committed claim by its id, by the market's events; None if unknown."""
        with self._pinned() as index:
            claim = index.claims.get(claim_id)
            if claim is None:
                for event in self._follower.at(index.over.places(claim_id)[:1]):
                    claim = unpack(Claim, event.arguments["claim"])
            return claim

    def job_ids(self) -> Sequence[JobId]:
        """Ids of all jobs, oldest first."""
        with self._pinned() as index:
            return list(index.jobs)

    def claim_ids(self) -> Sequence[ClaimId]:
        """Ids of all claims, oldest first."""
        with self._pinned() as index:
            return index.claim_ids()

    def jobs(self) -> Sequence[JobView]:
        """All jobs, oldest first."""
        with self._pinned() as index:
            self._gather(key for job_id in self._not_closed() for key in standing_keys(job_id))
            return [self.job(job_id) for job_id in index.jobs]

    def job(self, job_id: JobId) -> JobView:
        """One job. Raises Unknown."""
        with self._pinned() as index:
            terms = index.jobs.get(job_id)
            if terms is None:
                raise Unknown(
                    f"there is no job 0x{job_id.hex()} on this market", hint="`assay job ls` lists the jobs"
                )
            if job_id in self._closed:
                return self._closed[job_id][1]
            self._answers.gather(standing_keys(job_id))
            progress, escrow = (self._answers.read(*key) for key in standing_keys(job_id))
            view = JobView(job_id, terms, unpack(Progress, progress), Wei(escrow))
            if view.progress.closed and job_id in index.closed:
                self._closed[job_id] = (self.block, view)
            return view

    def holder(self, job_id: JobId, shard: int) -> Holder:
        """Holder of a shard."""
        with self._pinned():
            self._ask_shards("holder", job_id, shard)
            return unpack(Holder, self._answers.read("Tasks", "holder", job_id, shard))

    def holds_shard(self, job_id: JobId) -> bool:
        """True if this account holds a shard of the job, by the market's events."""
        with self._lock:
            return self._me in self._index.holders.get(job_id, {}).values()

    def price(self, job_id: JobId, shard: int) -> Wei:
        """Current price of an open shard."""
        with self._pinned():
            self._priced = True
            self._ask_shards("price", job_id, shard)
            return Wei(self._answers.read("Tasks", "price", job_id, shard))

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        """Every claim ever committed for the job, oldest first."""
        with self._pinned() as index:
            claim_ids = index.claims_of_job(job_id)
            self._claims.ask(index, claim_ids, self._claims_ahead(job_id))
            return [self._claims.view(claim_id) for claim_id in claim_ids]

    def ended(self, job_id: JobId) -> bool:
        """True if the job is closed and all its claims have ended, by the market's events."""
        with self._pinned() as index:
            return job_id in index.over

    def claim(self, claim_id: ClaimId) -> ClaimView:
        """One claim. Raises Unknown."""
        with self._pinned() as index:
            job_id = index.job_of(claim_id)
            if job_id is None:
                raise Unknown(
                    f"there is no claim 0x{claim_id.hex()} on this market",
                    hint="`assay job show JOB` lists the claims",
                )
            self._claims.ask(index, [claim_id], self._claims_ahead(job_id))
            return self._claims.view(claim_id)

    def current(self, job_id: JobId, kind: Kind, round: int, shard: int) -> ClaimView | None:
        """The standing claim of a place (None: not committed, convicted, or overtaken by a rewind)."""
        with self._pinned():
            claim_id = self._answers.read("Tasks", "current", job_id, int(kind), round, shard)
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
                raise Unknown(
                    f"there is no game {game_id} on this market", hint="`assay dispute ls` lists the games"
                )
            return found

    def demands(self, job_id: JobId | None = None) -> Sequence[DemandView]:
        """Demands for pieces of a state, oldest first."""
        with self._pinned() as index:
            return index.demands_of(job_id) if job_id is not None else list(index.demands.values())

    def rewards(self, job_id: JobId) -> Sequence[WaitingReward]:
        """Rewards of a job's fallen claims for which it is undecided whose finding is right."""
        with self._pinned() as index:
            return index.rewards_of(job_id)

    def stake(self, account: Address, role: Role) -> StakeView:
        """An account's stake in one role."""
        with self._pinned():
            keys = [key for either in Role for key in stake_keys(account, either)]
            if account == self._me and role == Role.SOLVER:  # which asks for each job's room next
                keys += [room_key(account, role, client) for client in self._clients()]
            self._gather(keys)
            return StakeView(*(Wei(self._answers.read(*key)) for key in stake_keys(account, role)))

    def room(self, account: Address, role: Role, client: Address) -> Wei:
        """Stake that an account can still lock for a client's jobs: unlocked and within its owner's caps."""
        with self._pinned():
            self._answers.gather(room_key(account, role, each) for each in {*self._clients(), client})
            return Wei(self._answers.read(*room_key(account, role, client)))

    def _clients(self) -> set[Address]:
        return {self._index.jobs[job_id].client for job_id in self._not_closed()}

    def _not_closed(self) -> list[JobId]:
        """Jobs that are not known to be closed."""
        return [job_id for job_id in self._index.jobs if job_id not in self._closed]

    def free(self, account: Address) -> Wei:
        """Withdrawable balance in the vault."""
        with self._pinned():
            return Wei(self._answers.read("Vault", "free", account))

    def wallet(self, account: Address) -> Wei:
        """Token balance outside the vault."""
        with self._pinned():
            return Wei(self._answers.read("Token", "balanceOf", account))

    def classes(self) -> dict[bytes, Conditions]:
        """All registered classes of conditions, by id."""
        with self._pinned() as index:
            return dict(index.classes)

    def subscription(self, account: Address) -> bytes:
        """Id of the class that the account subscribes to; zeros if none."""
        with self._pinned() as index:
            return index.subscriptions.get(account, ZERO_DIGEST)

    def class_weight(self, class_id: bytes) -> Wei:
        """Verifier stake that counts in this class's draws now."""
        with self._pinned():
            return Wei(self._answers.read("Stakes", "classWeight", class_id))

    def held_for(self, bucket: int, key: bytes) -> int:
        """Tokens in an entry of a vault bucket (``IVault.Bucket``)."""
        with self._pinned():
            return int(self._answers.read("Vault", "balance", bucket, key))

    def weight_epoch(self) -> int:
        """Blocks of an epoch; an account that leaves a class may be drawn until the second epoch from then
        begins."""
        with self._pinned():
            return int(self._answers.read("Stakes", "WEIGHT_EPOCH"))

    def clock(self) -> ClockView:
        """The market's clock: which deadlines have passed."""
        with self._pinned():
            time_s, ticked, due = self._answers.read(*CLOCK_KEY).values()
            return ClockView(Seconds(time_s), Seconds(ticked), due, self._answers.block)

    def bounds(self) -> Bounds:
        """Bounds on the classes and jobs of this market."""
        with self._pinned():
            return unpack(Bounds, self._answers.read("Classes", "bounds"))

    def stakers(self) -> list[Address]:
        """Accounts that have ever staked."""
        with self._pinned() as index:
            return list(index.staked)

    def endpoints(self) -> dict[Address, str]:
        """Announced block-serving URL of each node."""
        with self._pinned() as index:
            return dict(index.endpoints)

    def announced(self, account: Address) -> str | None:
        """One account's announced URL, by the events read so far. Takes no lock."""
        return self._index.endpoints.get(account)

    def unusable(self) -> dict[Address, str]:
        """Announced endpoints that are no valid base URL."""
        with self._pinned() as index:
            return dict(index.unusable)

    def gateways(self) -> list[Gateway]:
        """Announced block-serving URLs with each account's stake."""
        with self._pinned() as index:
            return index.gateways()

    def publisher(self, digest: bytes) -> str | None:
        """URL of the first account that published the manifest with this digest, by the events read so far.

        Takes no lock, so that a fetch never waits for a thread that holds a snapshot.
        """
        index = self._index
        account = index.publishers.get(digest)
        return None if account is None else index.endpoints.get(account)

    @contextmanager
    def _pinned(self, since_s: float | None = None) -> Iterator[MarketIndex]:
        """Locks the view and yields the index; only the outermost reader refreshes it."""
        with self._lock:
            if self._readers == 0 and self._freshness.stale(since_s):
                self.refresh()
            self._readers += 1
            try:
                yield self._index
            except MalformedData as error:
                raise WrongAnswer(error.message, hint="use another node") from error
            finally:
                self._readers -= 1

    def _gather(self, keys: Iterable[Key]) -> None:
        """Reads unknown keys; within a snapshot also those of a whole poll."""
        ahead = look_ahead(self._index, self._me, self._not_closed(), self._priced) if self._looks else ()
        self._answers.gather(filled(self._answers, keys, ahead))

    def _claims_ahead(self, job_id: JobId) -> Iterator[ClaimId]:
        """Within a snapshot, claims that will be read after one of this job."""
        return claims_ahead(self._index, job_id) if self._looks else iter(())

    def _ask_shards(self, what: str, job_id: JobId, shard: int) -> None:
        """Reads a job's holders and prices unless cached, with as many of later open jobs as fit the
        batch."""
        index = self._index
        if ("Tasks", what, job_id, shard) not in self._answers and job_id in index.jobs:
            alone = not self._looks or job_id in index.closed
            ahead = () if alone else shard_keys(index, jobs_ahead(index, job_id))
            self._answers.gather(filled(self._answers, shard_keys(index, [job_id]), ahead))

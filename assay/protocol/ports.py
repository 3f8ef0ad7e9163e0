"""Defines the interfaces (ports) through which roles use the chain, the block store and the clock.

Adapters live in ``chain`` and ``blocks``; ``app`` and ``cli`` wire them; tests use fakes. A call that can
fail raises a ``protocol.errors.AssayError`` whose class says what to do (Retry, Stop, Ask). Writing calls are
idempotent by `intent`: the same intent is sent at most once, also after a crash or restart, and the call
returns the first outcome. They return once the transaction is mined.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any, BinaryIO, Literal, Protocol, runtime_checkable

from assay.protocol.cid import RAW
from assay.protocol.demands import Asked, Chunk, DemandView, StateLeaf, VoteProof
from assay.protocol.dispute import Move
from assay.protocol.errors import AssayError
from assay.protocol.game_state import Found, Game, GameView, WaitingReward
from assay.protocol.types import (
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
    Role,
    Seconds,
    StakeView,
    Terms,
    TxResult,
    Wei,
)


class Blocks(Protocol):
    """A content-addressed block store."""

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Stores one block and returns its CID. Raises BlockTooLarge."""
        ...

    def get(self, cid: str) -> bytes:
        """Reads one block, verified, from the local store or a peer. Raises BlockNotFound, CorruptBlock,
        BadCid."""
        ...

    def has(self, cid: str) -> bool:
        """True if the block is in the local store. Raises BadCid."""
        ...

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Stores a file as UnixFS and returns its root CID."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Defers durability: blocks stored within the `with` block are durable only at its end."""
        ...

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """Reads a whole file, verified.

        Raises BlockTooLarge beyond max_bytes, BadFile for a CID of something else, and what `get` raises.
        """
        ...

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """Byte ranges of a file's unavailable blocks: the first `most` in a random order.

        [0, max_bytes) where the file's tree itself is unavailable or refused.
        """
        ...

    def pin(self, cid: str) -> None:
        """Protects a whole DAG from garbage collection. Raises what `get` raises."""
        ...


@runtime_checkable
class LocalBlocks(Protocol):
    """A block store that knows whether all blocks of a file are local."""

    def holds(self, cid: str) -> bool:
        """True if all blocks of the file are in the local store. Raises BadCid."""
        ...


@runtime_checkable
class TimeLimited(Protocol):
    """A block store whose fetches share a time limit."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Limits the total time of all fetches within the `with` blocks, any number of them one after the
        other.

        Beyond `seconds` a fetch raises Deferred; blocks received so far are kept.
        """
        ...


class Clock(Protocol):
    """The chain's time, and interruptible waiting."""

    def now(self) -> Seconds:
        """Timestamp of the latest block."""
        ...

    def block(self) -> int:
        """Number of the latest block."""
        ...

    def wait(self, seconds: float) -> bool:
        """Waits; False if the service was told to stop meanwhile."""
        ...


BatchedCall = Literal["record_seed", "tally", "settle", "void", "free_seats", "vote", "abstain"]
"""Methods that may be batched: calls of one contract, of which a node may owe many at once."""


@dataclass(frozen=True)
class Write:
    """A deferred writing call of the Market port: method, intent and arguments."""

    intent: str
    method: BatchedCall
    arguments: tuple[Any, ...]


class AccountsView(Protocol):
    """What can be read from the contracts about accounts: this one, stakes, balances, classes, endpoints."""

    @property
    def me(self) -> Address: ...

    def stake(self, account: Address, role: Role) -> StakeView: ...

    def room(self, account: Address, role: Role, client: Address) -> Wei:
        """Stake that an account can still lock for a client's jobs: unlocked and within its owner's caps."""
        ...

    def free(self, account: Address) -> Wei:
        """Withdrawable balance in the vault, in Wei."""
        ...

    def wallet(self, account: Address) -> Wei:
        """Token balance outside the vault."""
        ...

    def classes(self) -> dict[bytes, Conditions]:
        """All registered classes of conditions, by id."""
        ...

    def subscription(self, account: Address) -> bytes:
        """Id of the class that the account subscribes to; zeros if none."""
        ...

    def class_weight(self, class_id: bytes) -> Wei:
        """Verifier stake that counts in this class's draws now."""
        ...

    def stakers(self) -> Sequence[Address]:
        """Accounts that have ever staked, which include every claimant and verifier."""
        ...

    def endpoints(self) -> dict[Address, str]:
        """Announced block-serving URL of each node."""
        ...


class MarketView(AccountsView, Protocol):
    """Read access to the contracts and their events, as one consistent snapshot at the latest block.

    Lists of an unknown job are empty. An unknown job, claim or game raises `Unknown`, a Retry: a node asks by
    ids that it has read, so a reorganisation removed it and may bring it back. An endpoint that lags raises
    another error (docs/decisions/0070).
    """

    def snapshot(self, since_s: float | None = None) -> AbstractContextManager[None]:
        """Fixes all reads within the `with` block to one block, unless a transaction is sent in it.

        The block was read at `since_s` (`time.monotonic`) or later; if omitted, a moment ago.
        """
        ...

    def jobs(self) -> Sequence[JobView]:
        """All jobs, oldest first."""
        ...

    def job(self, job_id: JobId) -> JobView:
        """One job. Raises Unknown."""
        ...

    def holder(self, job_id: JobId, shard: int) -> Holder:
        """Holder of a shard; the zero address if it has none or there is no such job."""
        ...

    def holds_shard(self, job_id: JobId) -> bool:
        """True if this account holds a shard of the job, by the market's events."""
        ...

    def price(self, job_id: JobId, shard: int) -> Wei:
        """Current price of an open shard. Raises Reverted if there is no such job."""
        ...

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        """Every claim ever committed for the job, oldest first."""
        ...

    def ended(self, job_id: JobId) -> bool:
        """True if the job is closed and all its claims have ended, by the market's events: none locks a
        stake."""
        ...

    def claim(self, claim_id: ClaimId) -> ClaimView:
        """One claim. Raises Unknown."""
        ...

    def current(self, job_id: JobId, kind: Kind, round: int, shard: int) -> ClaimView | None:
        """The standing claim of a place (None: not committed, convicted, or overtaken by a rewind)."""
        ...

    def games(self, job_id: JobId | None = None) -> Sequence[GameView]:
        """Games, oldest first."""
        ...

    def game(self, game_id: int) -> GameView:
        """One game. Raises Unknown."""
        ...

    def demands(self, job_id: JobId | None = None) -> Sequence[DemandView]:
        """Demands for pieces of a state, oldest first."""
        ...

    def rewards(self, job_id: JobId) -> Sequence[WaitingReward]:
        """Rewards of a job's fallen claims for which it is undecided whose finding is right."""
        ...

    def clock(self) -> ClockView:
        """The market's clock: which deadlines have passed."""
        ...

    def bounds(self) -> Bounds:
        """Bounds on the classes and jobs of this market."""
        ...


class Market(MarketView, Protocol):
    """Read and write access. A write that the contracts refuse raises `Reverted` with the custom error's
    name."""

    def send_all(self, writes: Sequence[Write]) -> Sequence[TxResult | AssayError]:
        """Sends writes in one transaction, or one by one if that reverts, so that a refused one does not
        block others.

        Returns the outcome of each.
        """
        ...

    def tick(self, intent: str) -> TxResult:
        """Records the present time; deadlines before it pass some blocks later."""
        ...

    def deposit(self, intent: str, amount: Wei) -> TxResult:
        """Approves (if needed) and deposits tokens into the caller's free balance."""
        ...

    def withdraw(self, intent: str, amount: Wei) -> TxResult: ...
    def stake_up(self, intent: str, role: Role, amount: Wei) -> TxResult: ...
    def start_unbond(self, intent: str, role: Role, amount: Wei) -> TxResult: ...
    def finish_unbond(self, intent: str, role: Role, index: int) -> TxResult: ...
    def register_class(self, intent: str, conditions: Conditions) -> TxResult:
        """Registers a class of conditions; no effect if it exists."""
        ...

    def subscribe(self, intent: str, class_id: bytes) -> TxResult:
        """Subscribes to one class of conditions instead of the present one (zeros: none)."""
        ...

    def set_endpoint(self, intent: str, url: str) -> TxResult: ...
    def post(self, intent: str, terms: Terms, budget: Wei) -> JobId: ...
    def top_up(self, intent: str, job_id: JobId, amount: Wei) -> TxResult: ...
    def halt(self, intent: str, job_id: JobId) -> TxResult: ...
    def close(self, intent: str, job_id: JobId) -> TxResult: ...
    def take_shard(self, intent: str, job_id: JobId, shard: int, least_price: Wei = Wei(0)) -> TxResult: ...
    def release(self, intent: str, job_id: JobId, shard: int) -> TxResult: ...
    def expire(self, intent: str, job_id: JobId, shard: int) -> TxResult: ...
    def commit(self, intent: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        """Commits a claim; `roots`: state roots at its segments' ends, input and output included.

        The contract fills in segments_root, claimant, price, committed_at and attempt. `rewinds` is the job's
        count when the claim was computed; the contract refuses any other count.
        """
        ...

    def record_seed(self, intent: str, claim: Claim) -> TxResult: ...
    def tally(self, intent: str, claim: Claim) -> TxResult: ...
    def settle(self, intent: str, claim: Claim) -> TxResult: ...
    def void(self, intent: str, claim: Claim) -> TxResult: ...
    def free_seats(self, intent: str, claim: Claim) -> TxResult: ...
    def vote(
        self, intent: str, claim_id: ClaimId, seed: bytes, valid: bool, traces: Sequence[bytes]
    ) -> TxResult:
        """Votes as a drawn verifier (rule 4.7). `seed`: the claim's, from which the voter's samples follow.
        `traces`: a keyed trace root for each sample, none if not valid."""
        ...

    def abstain(self, intent: str, claim: Claim) -> TxResult:
        """Gives up a drawn verifier's seat without a vote."""
        ...

    def class_id(self, conditions: Conditions) -> bytes:
        """Id of a class of conditions (rule 3.4); a pure function."""
        ...

    def announce(
        self,
        intent: str,
        claim_id: ClaimId,
        segment: int,
        verifier: Address,
        root: bytes,
        salt: bytes,
        leaf: bytes = b"",
        place: StateLeaf | None = None,
    ) -> TxResult:
        """Commits to a finding and to the caller's own root there.

        For a binding (`prove_binding`) `segment` is the slot, `leaf` its wrong root and `root` the input's.
        For `open_input` `segment` is INPUT_SEGMENT. For a vote `root` is zero and `verifier` is the voter;
        otherwise `verifier` is the zero address. For a vote's disproof (`prove_vote`) `leaf` is the bytes of
        its trace at `place`.
        """
        ...

    def open_game(
        self,
        intent: str,
        claim: Claim,
        segment: int,
        from_leaf: bytes,
        from_proof: Sequence[bytes],
        to_leaf: bytes,
        to_proof: Sequence[bytes],
        root: bytes,
        salt: bytes,
    ) -> int:
        """Opens a game on a segment and returns its id."""
        ...

    def open_vote_game(
        self,
        intent: str,
        claim: Claim,
        verifier: Address,
        sample: int,
        from_leaf: bytes,
        from_proof: Sequence[bytes],
        trace_root: bytes,
        trace_proof: Sequence[bytes],
        salt: bytes,
    ) -> int: ...
    def prove_vote(
        self,
        intent: str,
        claim: Claim,
        verifier: Address,
        sample: int,
        place: StateLeaf,
        committed: Chunk,
        said: VoteProof,
        salt: bytes,
    ) -> TxResult:
        """Shows that a valid vote's own trace contradicts the claim's state (rule 5.5)."""
        ...

    def open_input(self, intent: str, claim: Claim, root: bytes, salt: bytes) -> int:
        """Makes the claimant open its input state's tree; returns the new game's id."""
        ...

    def prove_binding(
        self,
        intent: str,
        claim: Claim,
        slot: int,
        leaf: bytes,
        proof: Sequence[bytes],
        source: Claim | None,
        source_leaf: bytes,
        source_proof: Sequence[bytes],
        root: bytes,
        salt: bytes,
    ) -> TxResult: ...
    def share(self, intent: str, fallen: ClaimView, settled: ClaimView, found: Sequence[Found]) -> TxResult:
        """Pays a waiting reward to those whose roots match the settled claim at the place."""
        ...

    def share_alike(self, intent: str, claim_id: ClaimId, found: Sequence[Found]) -> TxResult:
        """Pays a waiting reward where all findings agree and one of them is the winner's."""
        ...

    def share_won(self, intent: str, claim: Claim, found: Sequence[Found]) -> TxResult:
        """Pays a waiting reward to the convicting account and the winners of games, where no claim will
        settle."""
        ...

    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult:
        """Makes a move in a game whose state is `game`."""
        ...

    def demand(
        self,
        intent: str,
        claim: Claim,
        segment_end: int,
        state_root: bytes,
        proof: Sequence[bytes],
        places: Sequence[StateLeaf],
    ) -> int:
        """Demands leaves of the state at leaf `segment_end` of a claim's segments tree; returns the demand's
        id."""
        ...

    def supply(
        self, intent: str, demand_id: int, asked: Asked, claim: Claim, chunks: Sequence[Chunk]
    ) -> TxResult:
        """Answers a demand, in the order of its places."""
        ...

    def expire_demand(self, intent: str, demand_id: int, asked: Asked, claim: Claim) -> TxResult:
        """Ends a demand whose time is up: its claim is convicted if it still stands."""
        ...

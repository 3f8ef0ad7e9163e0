"""What a role needs from the market's state. Adapters live in ``chain`` and ``storage``; ``cli`` wires them;
tests use fakes.

Contract of every call that can fail: it raises a ``protocol.errors.AssayError`` whose class says what to do
(Retry, Stop, Ask). Writing calls are idempotent by `intent`: the same intent, also after a crash or restart,
is sent at most once, and the call returns the first outcome. They return once the transaction is mined.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import Any, BinaryIO, Literal, Protocol, runtime_checkable

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

RAW = 0x55
"""Multicodec of a raw block."""
DAG_PB = 0x70


class Blocks(Protocol):
    """Content-addressed blocks."""

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Store one block; its CID. Raises BlockTooLarge."""
        ...

    def get(self, cid: str) -> bytes:
        """One block, from here or from a peer, verified. Raises BlockNotFound, CorruptBlock, BadCid."""
        ...

    def has(self, cid: str) -> bool:
        """Whether the block is held here. Raises BadCid."""
        ...

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Store a file as UnixFS; its root CID."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """A `with` block within which what is stored need not be durable yet; all of it is at its end."""
        ...

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """A whole file, verified. Raises BlockTooLarge beyond max_bytes, BadFile for what is none, and what
        `get` raises."""
        ...

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """Byte ranges of a file's blocks that cannot be had: the first `most` in a random order.

        The whole of [0, max_bytes) where not even the file's shape can be had, or where it is refused.
        """
        ...

    def pin(self, cid: str) -> None:
        """Keep this DAG, all of it, from garbage collection. Raises what `get` raises."""
        ...


@runtime_checkable
class Holding(Protocol):
    """Blocks that can tell what is held here, to the last block."""

    def holds(self, cid: str) -> bool:
        """Whether all blocks of a file are held here. Raises BadCid."""
        ...


@runtime_checkable
class Hurried(Protocol):
    """Blocks whose fetches can be bounded all together."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """`with` blocks, any number of them one after the other, of which all fetches may take so many
        seconds together: then PutOff is raised, and what came is kept."""
        ...


class Clock(Protocol):
    """Time of the chain, and waiting."""

    def now(self) -> Seconds:
        """Timestamp of the latest block."""
        ...

    def block(self) -> int:
        """Number of the latest block."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait; False when the service was told to stop meanwhile."""
        ...


Together = Literal["record_seed", "tally", "settle", "void", "free_seats", "vote", "abstain"]
"""Methods that may be sent together: calls of one contract, of which a node may owe many at once."""


@dataclass(frozen=True)
class Write:
    """A writing call of the Market port, to be sent with others: its method, intent and arguments."""

    intent: str
    method: Together
    arguments: tuple[Any, ...]


class MarketView(Protocol):
    """Everything that can be read from the contracts and their events; one consistent snapshot at the latest
    block seen.

    Lists of an unknown job are empty. An unknown job, claim or game raises `Unknown`, a Retry: a node asks by
    ids that it has read, so the chain lost it in a reorganisation and may have it again. An endpoint that is
    behind is told apart (docs/decisions/0070).
    """

    @property
    def me(self) -> Address: ...
    def snapshot(self, since_s: float | None = None) -> AbstractContextManager[None]:
        """Hold all answers at one block for the length of a `with` block, unless something is sent in it; the
        block was read no earlier than `since_s` by `time.monotonic`, or, where that is not given, a moment
        ago."""
        ...

    def jobs(self) -> Sequence[JobView]:
        """All jobs, oldest first."""
        ...

    def job(self, job_id: JobId) -> JobView:
        """Raises Unknown when there is no such job."""
        ...

    def holder(self, job_id: JobId, shard: int) -> Holder:
        """Who holds a shard; the zero address where nobody does, or there is no such job."""
        ...

    def holds_shard(self, job_id: JobId) -> bool:
        """Whether this account holds a shard of the job, by the market's events."""
        ...

    def price(self, job_id: JobId, shard: int) -> Wei:
        """Price at which an open shard can be taken now. Raises Reverted when there is no such job."""
        ...

    def claims(self, job_id: JobId) -> Sequence[ClaimView]:
        """Every claim ever committed for the job, oldest first."""
        ...

    def ended(self, job_id: JobId) -> bool:
        """Whether the job is closed and all its claims have ended, by the market's events: no claim of it
        locks a stake."""
        ...

    def claim(self, claim_id: ClaimId) -> ClaimView:
        """Raises Unknown when there is no such claim."""
        ...

    def current(self, job_id: JobId, kind: Kind, round: int, shard: int) -> ClaimView | None:
        """The standing claim of a place (None: not committed, convicted, or overtaken by a rewind)."""
        ...

    def games(self, job_id: JobId | None = None) -> Sequence[GameView]:
        """Games, oldest first."""
        ...

    def game(self, game_id: int) -> GameView:
        """Raises Unknown when there is no such game."""
        ...

    def demands(self, job_id: JobId | None = None) -> Sequence[DemandView]:
        """Demands to show pieces of a state, oldest first."""
        ...

    def rewards(self, job_id: JobId) -> Sequence[WaitingReward]:
        """Rewards of a job's fallen claims that wait until it is known whose finding is the truth."""
        ...

    def stake(self, account: Address, role: Role) -> StakeView: ...
    def room(self, account: Address, role: Role, client: Address) -> Wei:
        """What an account can still lock for a client's jobs: unlocked stake, within its owner's caps."""
        ...

    def free(self, account: Address) -> Wei:
        """Withdrawable balance in the vault."""
        ...

    def wallet(self, account: Address) -> Wei:
        """Token balance outside the vault."""
        ...

    def classes(self) -> dict[bytes, Conditions]:
        """Every class of conditions that was registered, by id."""
        ...

    def subscription(self, account: Address) -> bytes:
        """Id of the class that the account has subscribed to; zeros: none."""
        ...

    def class_weight(self, class_id: bytes) -> Wei:
        """Verifier stake that counts in this class's draws now."""
        ...

    def clock(self) -> ClockView:
        """How far the market's deadlines have come."""
        ...

    def bounds(self) -> Bounds:
        """What every class and every job of this market keeps to."""
        ...

    def stakers(self) -> Sequence[Address]:
        """Every account that has ever staked, and so every claimant and verifier."""
        ...

    def endpoints(self) -> dict[Address, str]:
        """Where nodes say they serve blocks."""
        ...


class Market(MarketView, Protocol):
    """Reads and writes. A write that the contracts refuse raises `Reverted` with their error's name."""

    def send_all(self, writes: Sequence[Write]) -> Sequence[TxResult | AssayError]:
        """What became of each write: sent in one transaction where that succeeds, else one by one, so that
        one that is refused holds up no other."""
        ...

    def tick(self, intent: str) -> TxResult:
        """Keep the present time, before which deadlines have passed some blocks later."""
        ...

    def deposit(self, intent: str, amount: Wei) -> TxResult:
        """Approve (if needed) and deposit tokens into the caller's free balance."""
        ...

    def withdraw(self, intent: str, amount: Wei) -> TxResult: ...
    def stake_up(self, intent: str, role: Role, amount: Wei) -> TxResult: ...
    def start_unbond(self, intent: str, role: Role, amount: Wei) -> TxResult: ...
    def finish_unbond(self, intent: str, role: Role, index: int) -> TxResult: ...
    def register_class(self, intent: str, conditions: Conditions) -> TxResult: ...
    def subscribe(self, intent: str, class_id: bytes) -> TxResult: ...
    def set_endpoint(self, intent: str, url: str) -> TxResult: ...
    def post(self, intent: str, terms: Terms, budget: Wei) -> JobId: ...
    def top_up(self, intent: str, job_id: JobId, amount: Wei) -> TxResult: ...
    def halt(self, intent: str, job_id: JobId) -> TxResult: ...
    def close(self, intent: str, job_id: JobId) -> TxResult: ...
    def take_shard(self, intent: str, job_id: JobId, shard: int, least_price: Wei = Wei(0)) -> TxResult: ...
    def release(self, intent: str, job_id: JobId, shard: int) -> TxResult: ...
    def expire(self, intent: str, job_id: JobId, shard: int) -> TxResult: ...
    def commit(self, intent: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        """Commit a claim; `roots`: the states at its segments' ends, input and output included.

        segments_root, claimant, price, committed_at and attempt are the contract's to fill in; `rewinds` are
        those of the job when the claim was computed, and another number of them refuses it.
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
        """Of a drawn verifier (rule 4.7). `seed`: the claim's, from which the voter's samples follow.
        `traces`: a keyed trace root for each sample, none if not valid."""
        ...

    def abstain(self, intent: str, claim: Claim) -> TxResult:
        """Give a drawn verifier's seat up without a vote."""
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
        """Commit to a finding and to the caller's own root there. For a binding (`prove_binding`) `segment`
        is the slot, `leaf` what is wrong in it and `root` the input's; for `open_input` `segment` is
        INPUT_SEGMENT; for a vote `root` is zero. `verifier` is the zero address but for a vote. For a vote's
        disproof (`prove_vote`) `leaf` is the bytes that its trace has at `place`."""
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
        """The new game's id."""
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
        """Show that a valid vote's own trace gives another state than the claim has (rule 5.5)."""
        ...

    def open_input(self, intent: str, claim: Claim, root: bytes, salt: bytes) -> int:
        """Make the claimant open its input state's tree; the new game's id."""
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
        """Pay a reward that waits to those whose roots the settled claim of the place bears out."""
        ...

    def share_alike(self, intent: str, claim_id: ClaimId, found: Sequence[Found]) -> TxResult:
        """Pay it where all findings agree and one of them is the winner's."""
        ...

    def share_won(self, intent: str, claim: Claim, found: Sequence[Found]) -> TxResult:
        """Pay it to who convicted the claim and whose games were won, where no settled claim will tell."""
        ...

    def move(self, intent: str, game_id: int, game: Game, move: Move) -> TxResult:
        """Make a move of a game that stands as `game`."""
        ...

    def deliver(self, intent: str, game_id: int) -> TxResult:
        """Hand over a verdict that could not be delivered when it fell."""
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
        """Ask for leaves of the state at leaf `segment_end` of a claim's segments tree; the demand's id."""
        ...

    def supply(
        self, intent: str, demand_id: int, asked: Asked, claim: Claim, chunks: Sequence[Chunk]
    ) -> TxResult:
        """Show what a demand asks for, in the order of its places."""
        ...

    def expire_demand(self, intent: str, demand_id: int, asked: Asked, claim: Claim) -> TxResult:
        """End a demand whose time is up: its claim falls, if it still stands."""
        ...

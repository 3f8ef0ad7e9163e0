"""The market's nouns as values; they mirror ``contracts/src/interfaces/Types.sol`` field by field and in
order.

Contract: digests are 32 bytes, amounts are integers of the token's smallest unit (``Wei``), times are unix
seconds. No field has a default, but for those by which shards differ in a loop or a link: a job's author
states every consensus parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NewType

Wei = NewType("Wei", int)
Seconds = NewType("Seconds", int)
Address = NewType("Address", str)
"""0x and 40 hex digits, EIP-55 checksummed."""
JobId = NewType("JobId", bytes)
ClaimId = NewType("ClaimId", bytes)

ZERO_ADDRESS = Address("0x" + "0" * 40)
ZERO_DIGEST = bytes(32)


class Role(IntEnum):
    SOLVER = 0
    VERIFIER = 1


class Kind(IntEnum):
    TASK = 0
    OUTER = 1


class Origin(IntEnum):
    """Where the input slots that a link covers come from (rule 4.4)."""

    OWN = 0
    OUT = 1
    GENESIS = 2
    PRESENT = 3


class Phase(IntEnum):
    NONE = 0
    COMMITTED = 1
    SEEDED = 2
    ACCEPTED = 3
    SETTLED = 4
    CONVICTED = 5
    VOID = 6


@dataclass(frozen=True)
class ProgramRef:
    root: bytes
    nodes: int
    slots: int
    params: int


@dataclass(frozen=True)
class Loop:
    """A program and how a claim runs it: `steps` of it, committed to every `segment_steps`; `samples` of its
    segments are replayed by each drawn verifier. Tasks of shards from `slow_from` on divide both by
    `slow_by`."""

    root: bytes
    nodes: int
    steps: int
    segment_steps: int
    samples: int
    slow_from: int = 0
    slow_by: int = 1

    @property
    def segments(self) -> int:
        """Whole segments of it, the same for every shard."""
        return self.steps // self.segment_steps

    def is_slow(self, shard: int) -> bool:
        """Whether the task of a shard takes fewer steps of it."""
        return self.slow_by > 1 and shard >= self.slow_from

    def of(self, shard: int) -> Loop:
        """As the task of a shard runs it, or, with 0, an outer claim."""
        if not self.is_slow(shard):
            return self
        by = self.slow_by
        return replace(self, steps=self.steps // by, segment_steps=self.segment_steps // by, slow_by=1)


NO_SLOT = 2**16 - 1
"""A link's `otherwise` where what is absent is replaced by the genesis slot."""


@dataclass(frozen=True)
class Link:
    """Where `count` · `times` input slots come from (rule 4.4); the fields mean what ``Types.sol`` says. Of a
    source with `mod` parts, `stride` slots from one to the next, the reader of number u takes part
    (u div `div`) mod `mod`."""

    origin: Origin
    source: Kind
    lag: int
    count: int
    times: int
    first: int
    shift: int
    otherwise: int
    div: int = 1
    mod: int = 1
    stride: int = 0

    @property
    def slots(self) -> int:
        """How many it covers."""
        return self.count * self.times

    def first_of(self, reader: int) -> int:
        """Where in its source's slots the part begins that the reader of this number takes."""
        return self.first + reader // self.div % self.mod * self.stride

    @property
    def sources(self) -> frozenset[int]:
        """The slots of its source that any reader takes."""
        starts = (self.first + part * self.stride for part in range(self.mod))
        return frozenset(slot for start in starts for slot in range(start, start + self.count))


@dataclass(frozen=True)
class Terms:
    client: Address
    dataset_root: bytes
    genesis_root: bytes
    outer_genesis_root: bytes
    manifest: bytes
    seed: bytes
    class_id: bytes
    """Id of the `Conditions` that these terms keep, to which the drawn have subscribed."""
    records: int
    record_size: int
    slots: int
    """Of a task's state, which all of its loops share."""
    outer_slots: int
    params: int
    """Leading slots of a task's state that are model parameters; of an outer claim's, a slice's part."""
    shards: int
    min_shards: int
    slices: int
    """Outer claims of a round, each of its own part of the parameters; they close it together."""
    rounds: int
    segments: int
    """Of a task: all of its loops'."""
    outer_segments: int
    samples: int
    verifiers: int
    seed_delay: int
    max_unsettled: int
    task_time: Seconds
    straggler_time: Seconds
    outer_time: Seconds
    vote_time: Seconds
    challenge_window: Seconds
    move_time: Seconds
    price_period: Seconds
    nonce: int
    state_bytes: int
    step_bytes: int
    step_operations: int
    price_floor: Wei
    price_cap: Wei
    verifier_fee: Wei
    outer_fee: Wei
    solver_stake: Wei
    verifier_stake: Wei
    challenge_bond: Wei
    miss_penalty: Wei
    loops: tuple[Loop, ...]
    outer_loops: tuple[Loop, ...]
    links: tuple[Link, ...]
    outer_links: tuple[Link, ...]

    def loops_of(self, kind: Kind) -> tuple[Loop, ...]:
        """What a claim of this kind runs, one after the other."""
        return self.loops if kind == Kind.TASK else self.outer_loops

    def links_of(self, kind: Kind) -> tuple[Link, ...]:
        """Where its input slots come from, in order."""
        return self.links if kind == Kind.TASK else self.outer_links

    def slots_of(self, kind: Kind) -> int:
        """Of its state."""
        return self.slots if kind == Kind.TASK else self.outer_slots

    def params_of(self, kind: Kind) -> int:
        """Its leading slots that are model parameters."""
        return self.params if kind == Kind.TASK else self.params // self.slices

    def units_of(self, kind: Kind) -> int:
        """Claims of this kind that a round has at most: its shards, or its slices."""
        return self.shards if kind == Kind.TASK else self.slices

    def segments_of(self, kind: Kind) -> int:
        """Of all its loops; its segments tree has one leaf more."""
        return self.segments if kind == Kind.TASK else self.outer_segments

    def genesis_of(self, kind: Kind) -> bytes:
        """Root of the state from which round 0 starts; of the outer ones, of the tree over the slices'."""
        return self.genesis_root if kind == Kind.TASK else self.outer_genesis_root

    def program(self, kind: Kind, loop: int = 0) -> ProgramRef:
        """What a loop of such a claim is recomputed by."""
        found = self.loops_of(kind)[loop]
        return ProgramRef(found.root, found.nodes, self.slots_of(kind), self.params_of(kind))

    @property
    def main(self) -> Loop:
        """The longest loop of a task: its training, as people speak of it."""
        return max(self.loops, key=lambda loop: loop.steps)

    @property
    def steps_per_round(self) -> int:
        """Of the main loop."""
        return self.main.steps

    @property
    def segment_steps(self) -> int:
        """Of the main loop."""
        return self.main.segment_steps


@dataclass(frozen=True)
class Conditions:
    """What a drawn verifier does and risks: a job of this class has its counts, times and amounts exactly,
    pays at least its fee, asks at least its solver stake, and is no larger than the sizes from `nodes` on
    (rule 3.4)."""

    verifiers: int
    samples: int
    seed_delay: int
    vote_time: Seconds
    challenge_window: Seconds
    move_time: Seconds
    verifier_stake: Wei
    miss_penalty: Wei
    challenge_bond: Wei
    verifier_fee: Wei
    solver_stake: Wei
    nodes: int
    segments: int
    segment_steps: int
    data_bytes: int
    state_bytes: int
    step_bytes: int
    step_operations: int


@dataclass(frozen=True)
class Bounds:
    """What every class and every job of a market keeps to; fixed at deployment."""

    least_vote: Seconds
    most_vote: Seconds
    least_move: Seconds
    most_move: Seconds
    least_window: Seconds
    most_window: Seconds
    least_delay: int
    most_delay: int
    least_time: Seconds
    most_time: Seconds
    least_stake: Wei
    most_stake: Wei
    least_bond: Wei


@dataclass(frozen=True)
class Claim:
    job_id: JobId
    kind: Kind
    round: int
    shard: int
    attempt: int
    claimant: Address
    input_root: bytes
    output_root: bytes
    segments_root: bytes
    manifest: bytes
    price: Wei
    committed_at: Seconds
    rewinds: int


@dataclass(frozen=True)
class ClaimStatus:
    phase: Phase
    seed_block: int
    since: Seconds
    calls: int
    """How often verifiers were called to empty seats."""
    open_games: int
    shown: int
    valid: int
    seed: bytes


@dataclass(frozen=True)
class Vote:
    verifier: Address
    shown: bool
    valid: bool
    gone: bool
    """The seat is over and holds no stake: abstained, fined, fallen, or paid and freed."""
    traces_root: bytes


@dataclass(frozen=True)
class Progress:
    round: int
    settled_rounds: int
    rewinds: int
    halted: bool
    closed: bool
    round_start: Seconds
    due_since: Seconds
    """`round_start`, or later for what is in dispute: tasks are due taskTime after it (rule 4.3.3)."""
    final_round: int
    """The job is over when `round` reaches it: the terms' rounds, or less once it is halted."""


@dataclass(frozen=True)
class Holder:
    """Who holds a shard (ZERO_ADDRESS: nobody), at what price a task, since when."""

    solver: Address
    price: Wei
    since: Seconds


@dataclass(frozen=True)
class StakeView:
    active: Wei
    locked: Wei
    unbonding: Wei


@dataclass(frozen=True)
class ClockView:
    """How far the market's deadlines have come (rule 7.4)."""

    time: Seconds
    """Deadlines before it have passed."""
    ticked: Seconds
    """The last tick's time, which counts from `due_block` on."""
    due_block: int
    """From which block on another tick may be."""
    block: int
    """The block of which all of this is said."""

    def passed(self, deadline: int) -> bool:
        """Whether whatever was due is too late, and may be fined."""
        return self.time > deadline

    def awaits_tick(self, deadline: int, now: int) -> bool:
        """Whether the deadline is over at chain time `now`, but does not pass until somebody ticks, which may
        be done in the next block."""
        return now > deadline >= max(self.time, self.ticked) and self.block + 1 >= self.due_block


@dataclass(frozen=True)
class Chain:
    """Where a market stands: part of what a job's id is the hash of (rule 3.1)."""

    chain_id: int
    contracts: Mapping[str, Address]
    """Addresses of its contracts by name, `Jobs` at least."""


@dataclass(frozen=True)
class JobView:
    job_id: JobId
    terms: Terms
    progress: Progress
    escrow: Wei


@dataclass(frozen=True)
class ClaimView:
    """A claim with its present status and votes."""

    claim_id: ClaimId
    claim: Claim
    status: ClaimStatus
    votes: tuple[Vote, ...]
    stale: bool
    """Overtaken by a rewind, or left out by its round, and not yet voided; it still answers for the games
    that are open on it."""
    left_out: bool
    """Its round goes on without it (rule 4.3.5), and no rewind has overtaken it; by the clock alone that may
    come to be so before the view says it (``node.rounds.left_out``)."""
    roots: tuple[bytes, ...]
    """State roots at the ends of its segments, as the commit gave them: the leaves of its segments tree."""
    traces: Mapping[Address, tuple[bytes, ...]]
    """Leaves of each vote's traces tree, as the vote gave them."""

    @property
    def overtaken(self) -> bool:
        """By a rewind, and not yet voided: it answers for what is open on it, and for nothing new."""
        return self.stale and not self.left_out

    @property
    def fallen(self) -> bool:
        """Convicted, with votes that still hold stake."""
        return self.status.phase == Phase.CONVICTED and any(v.shown and not v.gone for v in self.votes)


@dataclass(frozen=True)
class TxResult:
    """What became of one transaction."""

    tx_hash: str
    block: int
    gas_used: int
    effect: str
    """The entry point that was called."""


class Business(IntEnum):
    """``IGuardian.Business``: what the pauser may stop."""

    JOBS = 0
    SHARDS = 1
    STAKES = 2


@dataclass(frozen=True)
class Consent:
    """What an operator signs (EIP-712) for the account that shall own it."""

    owner: Address
    operator: Address
    nonce: int
    expiry: Seconds

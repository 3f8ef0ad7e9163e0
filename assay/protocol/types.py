"""Value types of the market; they mirror ``contracts/src/interfaces/Types.sol`` field by field, in order.

Contract: digests are 32 bytes, amounts are integers in the token's smallest unit (``Wei``), times are unix
seconds. No field has a default except those by which shards differ in a loop or link: a job's author states
every consensus parameter.
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
    """Kind of source of the input slots that a link covers (rule 4.4)."""

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
    """A program and how a claim runs it: `steps` steps, with a committed state every `segment_steps`.

    Each drawn verifier replays `samples` of the segments. Tasks of shards from `slow_from` on divide `steps`
    and `segment_steps` by `slow_by`.
    """

    root: bytes
    nodes: int
    steps: int
    segment_steps: int
    samples: int
    slow_from: int = 0
    slow_by: int = 1

    @property
    def segments(self) -> int:
        """Number of segments, the same for every shard."""
        return self.steps // self.segment_steps

    def is_slow(self, shard: int) -> bool:
        """True if the task of this shard takes fewer steps of the loop."""
        return self.slow_by > 1 and shard >= self.slow_from

    def of(self, shard: int) -> Loop:
        """The loop as the task of this shard runs it; 0 for an outer claim."""
        if not self.is_slow(shard):
            return self
        by = self.slow_by
        return replace(self, steps=self.steps // by, segment_steps=self.segment_steps // by, slow_by=1)


NO_SLOT = 2**16 - 1
"""Value of a link's `otherwise` with which an absent source is replaced by the genesis slot."""


@dataclass(frozen=True)
class Link:
    """Source of `count` · `times` input slots (rule 4.4); the fields are those of ``Types.sol``.

    If the source has `mod` parts, `stride` slots apart, reader number u reads part (u div `div`) mod `mod`.
    """

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
        """Number of input slots that the link covers."""
        return self.count * self.times

    def first_of(self, reader: int) -> int:
        """First slot of the part that this reader takes from its source."""
        return self.first + reader // self.div % self.mod * self.stride

    @property
    def sources(self) -> frozenset[int]:
        """Slots of the source that any reader takes."""
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
    """Id of the `Conditions` that these terms meet; only their subscribers are drawn."""
    records: int
    record_size: int
    slots: int
    """Slots of a task's state; all its loops share them."""
    outer_slots: int
    params: int
    """Leading slots of a task's state that are model parameters; for an outer claim, those of a slice's
    part."""
    shards: int
    min_shards: int
    slices: int
    """Number of outer claims in a round, each for its own part of the parameters; together they close the
    round."""
    rounds: int
    segments: int
    """Segments of all loops of a task."""
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
        """Loops that a claim of this kind runs, in order."""
        return self.loops if kind == Kind.TASK else self.outer_loops

    def links_of(self, kind: Kind) -> tuple[Link, ...]:
        """Links that give the input slots of a claim of this kind, in order."""
        return self.links if kind == Kind.TASK else self.outer_links

    def slots_of(self, kind: Kind) -> int:
        """Number of slots of the state of a claim of this kind."""
        return self.slots if kind == Kind.TASK else self.outer_slots

    def params_of(self, kind: Kind) -> int:
        """Number of leading slots that are model parameters."""
        return self.params if kind == Kind.TASK else self.params // self.slices

    def units_of(self, kind: Kind) -> int:
        """Maximum number of claims of this kind in a round: its shards, or its slices."""
        return self.shards if kind == Kind.TASK else self.slices

    def segments_of(self, kind: Kind) -> int:
        """Number of segments of all its loops; the segments tree has one leaf more."""
        return self.segments if kind == Kind.TASK else self.outer_segments

    def genesis_of(self, kind: Kind) -> bytes:
        """Root of the state before round 0; for outer claims, of the tree over the slices' states."""
        return self.genesis_root if kind == Kind.TASK else self.outer_genesis_root

    def program(self, kind: Kind, loop: int = 0) -> ProgramRef:
        """Program of a loop of a claim of this kind."""
        found = self.loops_of(kind)[loop]
        return ProgramRef(found.root, found.nodes, self.slots_of(kind), self.params_of(kind))

    @property
    def main(self) -> Loop:
        """The training loop of a task: the one with the most steps."""
        return max(self.loops, key=lambda loop: loop.steps)

    @property
    def steps_per_round(self) -> int:
        """Steps of the main loop."""
        return self.main.steps

    @property
    def segment_steps(self) -> int:
        """Steps of a segment of the main loop."""
        return self.main.segment_steps


@dataclass(frozen=True)
class Conditions:
    """Duties and risks of drawn verifiers in a class (rule 3.4).

    A job of the class has its counts, times and amounts exactly, pays at least its fee, requires at least its
    solver stake, and is no larger than the sizes from `nodes` on.
    """

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
    """Limits on every class and job of a market; fixed at deployment."""

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
    clock_lag: int
    """Blocks that whoever owes something has for it at the least after a halt of the chain, however long that
    was (rule 7.4). Longer than a node takes to see that the chain goes on, and to send what is due."""
    block_time: Seconds
    """Between two blocks, at most, as terms reckon with (rule 3.1)."""


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
    """Number of replacement draws for empty seats so far."""
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
    """The seat has ended and holds no stake: abstained, fined, convicted, or paid and freed."""
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
    """`round_start`, or later while a dispute is open: tasks are due taskTime after it (rule 4.3.3)."""
    final_round: int
    """The job ends when `round` reaches it: the terms' rounds, or fewer once it is halted."""


@dataclass(frozen=True)
class Holder:
    """Holder of a shard (ZERO_ADDRESS: none), its price for each task, and since when."""

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
    """State of the market's clock (rule 7.4)."""

    time: Seconds
    """Deadlines before this time have passed."""
    ticked: Seconds
    """Time of the last tick, which takes effect at `due_block`."""
    due_block: int
    """First block in which another tick is possible."""
    block: int
    """Block at which this view was read."""

    def passed(self, deadline: int) -> bool:
        """True if the deadline has passed, so that a missed duty can be fined."""
        return self.time > deadline

    def awaits_tick(self, deadline: int, now: int) -> bool:
        """True if the deadline is over at chain time `now` but has not passed, and a tick is possible in the
        next block."""
        return now > deadline >= max(self.time, self.ticked) and self.block + 1 >= self.due_block


@dataclass(frozen=True)
class Chain:
    """Chain and contracts of a market: hashed into a job's id (rule 3.1)."""

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
    """A claim with its current status and votes."""

    claim_id: ClaimId
    claim: Claim
    status: ClaimStatus
    votes: tuple[Vote, ...]
    stale: bool
    """Overtaken by a rewind or left out by its round, and not yet voided; games open on it go on."""
    left_out: bool
    """Its round goes on without it (rule 4.3.5), and no rewind has overtaken it. By the clock alone this may
    become true before the view shows it (``node.rounds.left_out``)."""
    roots: tuple[bytes, ...]
    """State roots at its segments' ends, from the commit: the leaves of its segments tree."""
    traces: Mapping[Address, tuple[bytes, ...]]
    """Leaves of each vote's traces tree, from the vote."""

    @property
    def overtaken(self) -> bool:
        """True if a rewind overtook the claim and nobody voided it: only games already open on it go on."""
        return self.stale and not self.left_out

    @property
    def fallen(self) -> bool:
        """True if the claim is convicted and its votes still hold stake."""
        return self.status.phase == Phase.CONVICTED and any(v.shown and not v.gone for v in self.votes)


@dataclass(frozen=True)
class TxResult:
    """Outcome of one transaction."""

    tx_hash: str
    block: int
    gas_used: int
    effect: str
    """The entry point that was called."""


class Business(IntEnum):
    """``IGuardian.Business``: kinds of business that the pauser may stop."""

    JOBS = 0
    SHARDS = 1
    STAKES = 2


@dataclass(frozen=True)
class Consent:
    """Message that an operator signs (EIP-712) to accept an account as its owner."""

    owner: Address
    operator: Address
    nonce: int
    expiry: Seconds

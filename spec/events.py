"""All external events of a market, as values: one class for each entry point.

Contract: fields are the entry point's arguments, with three exceptions. `Announce` names the finding, not its
hash. `Bind` has what was signed, not the signature. `RecordSeed` has the values that the contract reads in
its header, and the hash of the claim's seed block, which the chain knows itself (32 zero bytes once its
history no longer holds it).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.protocol.demands import Asked, Chunk, StateLeaf, VoteProof
from assay.protocol.dispute import Digests, Move
from assay.protocol.game_state import Found, Game
from assay.protocol.types import (
    Address,
    Business,
    Claim,
    ClaimId,
    Conditions,
    Consent,
    JobId,
    Role,
    Seconds,
    Terms,
    Wei,
)


@dataclass(frozen=True)
class Deposit:
    """Deposits tokens into `account`'s free balance."""

    account: Address
    amount: Wei


@dataclass(frozen=True)
class Withdraw:
    """Pays out from the free balance (of the operator `account`, if given) to the account `to`."""

    to: Address
    amount: Wei
    account: Address | None = None


@dataclass(frozen=True)
class Destroy:
    """Removes burnt tokens from the token's supply."""


@dataclass(frozen=True)
class Stake:
    """Stakes. `account`, here and below: the operator for which its owner acts; None: the caller itself."""

    role: Role
    amount: Wei
    account: Address | None = None


@dataclass(frozen=True)
class StartUnbond:
    role: Role
    amount: Wei
    account: Address | None = None


@dataclass(frozen=True)
class FinishUnbond:
    role: Role
    index: int
    account: Address | None = None


@dataclass(frozen=True)
class Subscribe:
    """Subscribes to a class of conditions; zeros: to none."""

    class_id: bytes
    account: Address | None = None


@dataclass(frozen=True)
class Bind:
    """Binds an operator to its owner; `consent`: the content of the operator's signature."""

    operator: Address
    expiry: Seconds
    consent: Consent


@dataclass(frozen=True)
class Unbind:
    """Unbinds an operator after the delay."""

    operator: Address


@dataclass(frozen=True)
class Allow:
    """Owner: limits what an operator may put into jobs."""

    operator: Address
    amount: Wei


@dataclass(frozen=True)
class Cap:
    """Owner: caps what the account may lock in a role, in total and for all unnamed clients."""

    account: Address
    role: Role
    all: Wei
    others: Wei


@dataclass(frozen=True)
class CapClient:
    """Owner: caps what the account may lock for one client, which is named from now on."""

    account: Address
    role: Role
    client: Address
    most: Wei


@dataclass(frozen=True)
class RevokeConsents:
    """Revokes all consents that the caller has given so far."""


@dataclass(frozen=True)
class SetPaused:
    """Pauser: pauses or resumes one kind of new business."""

    business: Business
    paused: bool


@dataclass(frozen=True)
class HandOver:
    """Pauser: makes another account the pauser."""

    to: Address


@dataclass(frozen=True)
class Register:
    """Registers a class of conditions."""

    conditions: Conditions


@dataclass(frozen=True)
class Post:
    terms: Terms
    budget: Wei


@dataclass(frozen=True)
class TopUp:
    job_id: JobId
    amount: Wei


@dataclass(frozen=True)
class Halt:
    job_id: JobId


@dataclass(frozen=True)
class Close:
    job_id: JobId


@dataclass(frozen=True)
class TakeShard:
    job_id: JobId
    shard: int
    least_price: Wei


@dataclass(frozen=True)
class Release:
    job_id: JobId
    shard: int


@dataclass(frozen=True)
class Expire:
    job_id: JobId
    shard: int


@dataclass(frozen=True)
class Commit:
    """`roots`: the states at the ends of the claim's segments."""

    claim: Claim
    roots: Digests


@dataclass(frozen=True)
class Header:
    """Keccak-256 of a header's bytes, and the RANDAO value in them (32 zero bytes if there is none)."""

    hash: bytes
    randao: bytes


@dataclass(frozen=True)
class RecordSeed:
    """Records a claim's seed. `header`: None for an empty one."""

    claim: Claim
    block_hash: bytes
    header: Header | None


@dataclass(frozen=True)
class Vote:
    """Votes. `seed`: the claim's. `traces`: keyed trace root of each sample of a valid vote; empty for an
    invalid one."""

    claim_id: ClaimId
    seed: bytes
    valid: bool
    traces: Digests


@dataclass(frozen=True)
class Abstain:
    """Gives a seat up without a vote."""

    claim: Claim


@dataclass(frozen=True)
class Tally:
    claim: Claim


@dataclass(frozen=True)
class Settle:
    claim: Claim


@dataclass(frozen=True)
class Void:
    claim: Claim


@dataclass(frozen=True)
class FreeSeats:
    """Pays and frees the votes of a fallen claim once they can no longer be disputed."""

    claim: Claim


@dataclass(frozen=True)
class Announce:
    """Announces a finding.

    `segment`: the sample for a vote, the slot for a binding, `INPUT_SEGMENT` for an input state. `verifier`:
    zero except for a vote.
    """

    claim_id: ClaimId
    segment: int
    verifier: Address
    root: bytes
    """The announcer's root; ``MarketState.binding_root`` for a binding, ``MarketState.disproof_root`` for a
    vote's disproof, zero for a game on a vote."""
    salt: bytes


@dataclass(frozen=True)
class Open:
    claim: Claim
    segment: int
    from_leaf: bytes
    from_proof: Digests
    to_leaf: bytes
    to_proof: Digests
    root: bytes
    salt: bytes


@dataclass(frozen=True)
class OpenVote:
    claim: Claim
    verifier: Address
    sample: int
    from_leaf: bytes
    from_proof: Digests
    trace_root: bytes
    trace_proof: Digests
    salt: bytes


@dataclass(frozen=True)
class ProveVote:
    """Shows that a vote's trace gives another state than the claim.

    `committed`: the claim's leaf at `place`; `said`: the trace's.
    """

    claim: Claim
    verifier: Address
    sample: int
    place: StateLeaf
    committed: Chunk
    said: VoteProof
    salt: bytes


@dataclass(frozen=True)
class OpenInput:
    """Makes the claimant open its input state's tree. `root`: the root that it must have."""

    claim: Claim
    root: bytes
    salt: bytes


@dataclass(frozen=True)
class ProveBinding:
    """Proves that an input is not its source. `source`: None where the source is a genesis root."""

    claim: Claim
    slot: int
    leaf: bytes
    proof: Digests
    source: Claim | None
    source_leaf: bytes
    source_proof: Digests
    root: bytes
    salt: bytes


@dataclass(frozen=True)
class Share:
    """Pays a waiting reward by the settled claim of the place (rule 5.4).

    Roots: of the states at the claims' segment ends. `found`: all findings that were kept, in order.
    """

    fallen: Claim
    fallen_roots: Digests
    settled: Claim
    settled_roots: Digests
    found: tuple[Found, ...]


@dataclass(frozen=True)
class ShareAlike:
    """As `Share`, if all findings agree and one of them is the winner's."""

    claim_id: ClaimId
    found: tuple[Found, ...]


@dataclass(frozen=True)
class ShareWon:
    """As `Share`, to the account that convicted the claim and those whose own games were won (rule 5.4.1).

    For a claim that the job had continued without when it fell, or whose job is closed without a settled
    claim of its place.
    """

    claim: Claim
    found: tuple[Found, ...]


@dataclass(frozen=True)
class Play:
    """Makes a move in game `game_id`, whose present state is `game`."""

    game_id: int
    game: Game
    move: Move


@dataclass(frozen=True)
class Demand:
    """Makes the claimant show leaves of the state at leaf `segment_end` of its segments tree."""

    claim: Claim
    segment_end: int
    state_root: bytes
    proof: Digests
    places: tuple[StateLeaf, ...]


@dataclass(frozen=True)
class Supply:
    demand_id: int
    asked: Asked
    claim: Claim
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class ExpireDemand:
    demand_id: int
    asked: Asked
    claim: Claim


@dataclass(frozen=True)
class Tick:
    """Ticks the clock: deadlines before the present time pass LAG blocks later."""


Event = (
    Deposit
    | Withdraw
    | Destroy
    | Stake
    | StartUnbond
    | FinishUnbond
    | Subscribe
    | Bind
    | Unbind
    | Allow
    | Cap
    | CapClient
    | RevokeConsents
    | SetPaused
    | HandOver
    | Register
    | Post
    | TopUp
    | Halt
    | Close
    | TakeShard
    | Release
    | Expire
    | Commit
    | RecordSeed
    | Vote
    | Abstain
    | Tally
    | Settle
    | Void
    | FreeSeats
    | Announce
    | Open
    | OpenVote
    | ProveVote
    | OpenInput
    | ProveBinding
    | Share
    | ShareAlike
    | ShareWon
    | Play
    | Demand
    | Supply
    | ExpireDemand
    | Tick
)

"""Everything that can happen to a market from outside, as values: one class for each entry point.

Contract: fields are the entry point's arguments, with three differences. `Announce` names the finding instead
of its hash, `Bind` what was signed instead of the signature, and `RecordSeed` brings what the contract reads
in the header that it is given, and the hash of the claim's seed block, which the chain knows by itself
(32 zero bytes once the history no longer holds it).
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
    """Tokens into `account`'s free balance."""

    account: Address
    amount: Wei


@dataclass(frozen=True)
class Withdraw:
    """Pay out from the free balance (the operator `account`'s, if one is given) to the account `to`."""

    to: Address
    amount: Wei
    account: Address | None = None


@dataclass(frozen=True)
class Destroy:
    """Take burnt tokens out of the token's supply."""


@dataclass(frozen=True)
class Stake:
    """`account`, here and below: the operator for which its owner acts; None for oneself."""

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
    """Agree to a class of conditions; zeros: to none."""

    class_id: bytes
    account: Address | None = None


@dataclass(frozen=True)
class Bind:
    """Own an operator; `consent`: what its signature says."""

    operator: Address
    expiry: Seconds
    consent: Consent


@dataclass(frozen=True)
class Unbind:
    """Give an operator back to itself, after the delay."""

    operator: Address


@dataclass(frozen=True)
class Allow:
    """Owner: let an operator put so much into jobs, and no more."""

    operator: Address
    amount: Wei


@dataclass(frozen=True)
class Cap:
    """Owner: what the account may lock in a role, in all and for all clients without a name."""

    account: Address
    role: Role
    all: Wei
    others: Wei


@dataclass(frozen=True)
class CapClient:
    """Owner: what it may lock for one client, which has a name from now on."""

    account: Address
    role: Role
    client: Address
    most: Wei


@dataclass(frozen=True)
class RevokeConsents:
    """The caller's own consents count no more."""


@dataclass(frozen=True)
class SetPaused:
    """Pauser: stop or allow one kind of new business."""

    business: Business
    paused: bool


@dataclass(frozen=True)
class HandOver:
    """Pauser: make another account the pauser."""

    to: Address


@dataclass(frozen=True)
class Register:
    """Make a class of conditions known."""

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
    """`header`: None where an empty one is brought."""

    claim: Claim
    block_hash: bytes
    header: Header | None


@dataclass(frozen=True)
class Vote:
    """`seed`: the claim's. `traces`: of a valid vote, the keyed trace root of each sample; of an invalid one
    none."""

    claim_id: ClaimId
    seed: bytes
    valid: bool
    traces: Digests


@dataclass(frozen=True)
class Abstain:
    """Give a seat up without a vote."""

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
    """Pay and free the votes of a claim that fell, once they can no longer be disputed."""

    claim: Claim


@dataclass(frozen=True)
class Announce:
    """`segment`: the sample for a vote, the slot for a binding, `INPUT_SEGMENT` for an input state.
    `verifier`: zero but for a vote."""

    claim_id: ClaimId
    segment: int
    verifier: Address
    root: bytes
    """The announcer's own; for a binding ``MarketState.binding_root``, for a vote's disproof
    ``MarketState.disproof_root``, for a game on a vote zero."""
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
    """Show that a vote's own trace gives another state than the claim has. `committed`: the claim's leaf at
    `place`; `said`: what the trace says of it."""

    claim: Claim
    verifier: Address
    sample: int
    place: StateLeaf
    committed: Chunk
    said: VoteProof
    salt: bytes


@dataclass(frozen=True)
class OpenInput:
    """Make the claimant open its input state's tree. `root`: what it must be the root of."""

    claim: Claim
    root: bytes
    salt: bytes


@dataclass(frozen=True)
class ProveBinding:
    """`source`: None where the source is a genesis root."""

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
    """Pay a reward that waits, by what the settled claim of the place says (rule 5.4). Roots: of the states
    at the claims' segment ends. `found`: all findings that were kept, in that order."""

    fallen: Claim
    fallen_roots: Digests
    settled: Claim
    settled_roots: Digests
    found: tuple[Found, ...]


@dataclass(frozen=True)
class ShareAlike:
    """The same where all findings agree, and one of them is the winner's."""

    claim_id: ClaimId
    found: tuple[Found, ...]


@dataclass(frozen=True)
class ShareWon:
    """The same to who convicted the claim and whose own games were won (rule 5.4.1): the job went on without
    the claim when it fell, or is closed without a settled one of its place."""

    claim: Claim
    found: tuple[Found, ...]


@dataclass(frozen=True)
class Play:
    """A move of game `game_id`, which stands as `game`."""

    game_id: int
    game: Game
    move: Move


@dataclass(frozen=True)
class Demand:
    """Make the claimant show leaves of the state at leaf `segment_end` of its segments tree."""

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
    """Keep the present time, before which deadlines have passed so many blocks later."""


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

"""Value types of a dispute: the state of a game in three parts, findings, rewards and views of games.

Contract: as in ``protocol.types``; they mirror ``contracts/src/interfaces/Types.sol``. The rules of a game
are in ``spec.game``, its moves in ``protocol.dispute``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TypeVar

from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    ClaimId,
    ClaimView,
    JobId,
    Kind,
    Phase,
    ProgramRef,
    Seconds,
    Wei,
)

INPUT_SEGMENT = 2**32 - 1
"""Segment number of a dispute about a claim's input state (rule 6.2)."""


class GamePhase(IntEnum):
    """Odd phases are the challenger's move."""

    STEPS = 0
    PICK_STEP = 1
    TRACE = 2
    PICK_NODE = 3
    SPLIT_NODE = 4
    PICK_LEAF = 5
    SPLIT_LEAF = 6
    PROVE = 7
    REVEAL_LEAF = 8
    PICK_OUTPUT = 9
    SPLIT_OUTPUT = 10

    @property
    def challengers(self) -> bool:
        return bool(self % 2)


@dataclass(frozen=True)
class Accused:
    """The fields of a claim that its conviction needs."""

    job_id: JobId
    claimant: Address
    kind: Kind
    round: int
    shard: int
    price: Wei
    rewinds: int


@dataclass(frozen=True)
class Found:
    """A finding that a challenger has announced and then shown by opening a game (rule 5.4)."""

    finder: Address
    segment: int
    """First wrong segment of the claim, or INPUT_SEGMENT."""
    announced: int
    """Block number; so is `shown`."""
    shown: int
    root: bytes
    """The finder's own root: of the state at the end of the segment, or of the input state."""
    won: bool = False
    """True if the finder won its game or proof; False when the finding is shown."""


@dataclass(frozen=True)
class WaitingReward:
    """The reward of a conviction while it is undecided whose finding is right (rule 5.4)."""

    claim_id: ClaimId
    amount: Wei
    winner: Address
    """The account that convicted the claim."""
    found: tuple[Found, ...]
    """Findings whose games have ended, in that order."""
    gone: bool = False
    """True if the job went on without the claim when it fell, so that no settled claim can decide."""


NOBODY_ACCUSED = Accused(JobId(ZERO_DIGEST), ZERO_ADDRESS, Kind.TASK, 0, 0, Wei(0), 0)


@dataclass(frozen=True, kw_only=True)
class Params:
    """The immutable part of a game: the parties and the accused claim or vote."""

    accused: Accused = NOBODY_ACCUSED
    claim_id: ClaimId
    ballot: int = 0
    """0: the claim itself is in dispute. Otherwise a vote: its place among the claim's votes, from 1."""
    segment: int = 0
    found: bytes = ZERO_DIGEST
    """Keccak-256 of the challenger's `Found`; zero in a game on a vote."""
    program: ProgramRef
    dataset_root: bytes
    seed: bytes
    records: int
    record_size: int
    shard: int


@dataclass(frozen=True, kw_only=True)
class Context:
    """The part of a game that identifies the disputed steps and node."""

    key: bytes
    step: int
    steps: int
    """0: the game is about the preimage of `out_root`, the root of an input state."""
    in_root: bytes
    out_root: bytes
    trace_root: bytes
    node: int
    size: int
    node_hash: bytes


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The part of a game that moves within a tree read and change."""

    challenger: Address
    defender: Address
    phase: GamePhase
    digest: bytes
    level: int
    index: int
    leaves: int = 0
    """Leaves of the tree that is being opened; before one is opened, of the trace tree."""
    revealed: bytes
    move_time: Seconds
    deadline: Seconds


Part = TypeVar("Part", Params, Context, Cursor)


@dataclass(frozen=True, kw_only=True)
class Game(Cursor, Context, Params):
    """The whole state of one game; the chain stores only its hash.

    It inherits the fields of its three parts (dataclasses take bases from the right); the contracts' struct
    holds the parts one by one.
    """

    @property
    def params(self) -> Params:
        """The part that no move changes."""
        return self._part(Params)

    @property
    def context(self) -> Context:
        """The part that moves outside a tree change, together with the cursor."""
        return self._part(Context)

    @property
    def cursor(self) -> Cursor:
        """The part that moves within a tree need."""
        return self._part(Cursor)

    @classmethod
    def of(cls, *parts: Params | Context | Cursor) -> Game:
        """Assembles a game from its three parts."""
        return cls(**{f.name: getattr(part, f.name) for part in parts for f in fields(part)})

    def with_parts(self, *parts: Context | Cursor) -> Game:
        """Copies the game with another context or cursor, as after a move."""
        changed = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
        return replace(self, **changed)

    def _part(self, kind: type[Part]) -> Part:
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)})

    @property
    def mover(self) -> Address:
        return self.challenger if self.phase.challengers else self.defender


@dataclass(frozen=True)
class Opened:
    """A tree node that the defender opened in some move, with the descendants that the move revealed."""

    digest: bytes
    children: tuple[bytes, ...]


@dataclass(frozen=True)
class GameView:
    """A game as reconstructed from the event log: its latest state and the digests of its last move."""

    game_id: int
    game: Game
    digests: tuple[bytes, ...]
    """Digests that await a pick (empty otherwise)."""
    opened: tuple[Opened, ...]
    """Everything opened so far, in order: `game.digest` and the digests of every ``Moved`` event of
    revealTrace or split (phase PICK_NODE, PICK_LEAF or PICK_OUTPUT). The challenger's proofs need them."""
    leaf_data: bytes
    """Bytes of the disputed leaf once revealed."""
    moves: int
    decided: bool
    challenger_won: bool
    reason: str


@dataclass(frozen=True)
class Opening:
    """Whole leaves of one input of the disputed node with their proofs (``ICourt.Opening``)."""

    input: int
    first_leaf: int
    data: bytes
    siblings: tuple[bytes, ...]
    path: tuple[bytes, ...]


def moot(claim: ClaimView, game: Game) -> bool:
    """True if the claim or vote of a game has fallen by other means: then no bond is lost (rule 5.3).

    An overtaken claim can still fall while a game on it is open.
    """
    if game.ballot:
        return claim.votes[game.ballot - 1].gone
    return claim.status.phase not in (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)


def returns_bond(claim: ClaimView, game: Game) -> bool:
    """True if the challenger gets its bond back however the game ends (rule 5.3).

    That is so if the game is moot, or is about an input whose source a rewind may have removed.
    """
    about_input = not game.ballot and game.segment == INPUT_SEGMENT
    return moot(claim, game) or (about_input and claim.overtaken)

"""The nouns of a dispute as values: a game's state in its three parts, what was found, how a view tells
of it. They mirror ``contracts/src/interfaces/Types.sol`` as ``protocol.types`` does.

Contract: as there. What a game does is ``spec.game``'s, its moves are ``protocol.dispute``'s.
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
"""Stands for the segment where a claim's input state itself is disputed (rule 6.2)."""


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
    """The part of a claim that its conviction needs."""

    job_id: JobId
    claimant: Address
    kind: Kind
    round: int
    shard: int
    price: Wei
    rewinds: int


@dataclass(frozen=True)
class Found:
    """What a challenger has announced and then shown by opening a game (rule 5.4)."""

    finder: Address
    segment: int
    """Where the claim first went wrong, or INPUT_SEGMENT."""
    announced: int
    """Block; so is `shown`."""
    shown: int
    root: bytes
    """The finder's own: of the state at the end of the segment, or of the input state."""
    won: bool = False
    """Its game, or its proof; False as it is shown."""


@dataclass(frozen=True)
class WaitingReward:
    """What a conviction gives, while it is not known whose finding is the truth (rule 5.4)."""

    claim_id: ClaimId
    amount: Wei
    winner: Address
    """Who convicted the claim."""
    found: tuple[Found, ...]
    """Findings whose games are over, in that order."""
    gone: bool = False
    """The job went on without the claim when it fell, so that no settled claim will tell."""


NOBODY_ACCUSED = Accused(JobId(ZERO_DIGEST), ZERO_ADDRESS, Kind.TASK, 0, 0, Wei(0), 0)


@dataclass(frozen=True, kw_only=True)
class Params:
    """The part of a game that never changes: who is accused of what."""

    accused: Accused = NOBODY_ACCUSED
    claim_id: ClaimId
    ballot: int = 0
    """0: the claim itself is in dispute; else its vote: the place among the claim's votes, from 1."""
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
    """The part of a game that says which steps and which node are in dispute."""

    key: bytes
    step: int
    steps: int
    """0: the game is about what `out_root`, an input state's, is the root of."""
    in_root: bytes
    out_root: bytes
    trace_root: bytes
    node: int
    size: int
    node_hash: bytes


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """The part of a game that a move within a tree needs and changes."""

    challenger: Address
    defender: Address
    phase: GamePhase
    digest: bytes
    level: int
    index: int
    leaves: int = 0
    """Of the tree that is being opened; before there is one, of the trace tree."""
    revealed: bytes
    move_time: Seconds
    deadline: Seconds


Part = TypeVar("Part", Params, Context, Cursor)


@dataclass(frozen=True, kw_only=True)
class Game(Cursor, Context, Params):
    """The whole state of one game; the chain keeps only its hash. Its fields are those of its three parts
    (dataclasses take bases from the right), which the contracts' struct holds one by one."""

    @property
    def params(self) -> Params:
        """What no move changes of it."""
        return self._part(Params)

    @property
    def context(self) -> Context:
        """What a move elsewhere than within a tree changes of it, with the cursor."""
        return self._part(Context)

    @property
    def cursor(self) -> Cursor:
        """What a move within a tree needs of it."""
        return self._part(Cursor)

    @classmethod
    def of(cls, *parts: Params | Context | Cursor) -> Game:
        """The game that has these three parts."""
        return cls(**{f.name: getattr(part, f.name) for part in parts for f in fields(part)})

    def with_parts(self, *parts: Context | Cursor) -> Game:
        """The same game with another context or cursor, as a move has left them."""
        changed = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
        return replace(self, **changed)

    def _part(self, kind: type[Part]) -> Part:
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)})

    @property
    def mover(self) -> Address:
        return self.challenger if self.phase.challengers else self.defender


@dataclass(frozen=True)
class Opened:
    """A tree node that the defender opened in some move, and its descendants that the move revealed."""

    digest: bytes
    children: tuple[bytes, ...]


@dataclass(frozen=True)
class GameView:
    """A game as the event log tells it: its latest state and what its last move revealed."""

    game_id: int
    game: Game
    digests: tuple[bytes, ...]
    """Digests that await a pick (empty otherwise)."""
    opened: tuple[Opened, ...]
    """All that was opened so far, in order: `game.digest` and the digests of every ``Moved`` event of
    revealTrace or split (phase PICK_NODE, PICK_LEAF or PICK_OUTPUT); the challenger's proofs need them."""
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
    """Whether the claim or the vote that a game is about has fallen otherwise: nobody loses its bond then
    (rule 5.3). An overtaken claim can still fall while a game on it is open."""
    if game.ballot:
        return claim.votes[game.ballot - 1].gone
    return claim.status.phase not in (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)


def returns_bond(claim: ClaimView, game: Game) -> bool:
    """Whether the challenger of a game has its bond back however that ends (rule 5.3): it is moot, or about
    an input whose source a rewind may have taken."""
    about_input = not game.ballot and game.segment == INPUT_SEGMENT
    return moot(claim, game) or (about_input and claim.overtaken)

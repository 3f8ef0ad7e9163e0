"""From a finding to a game: announce it, wait a block, open it; and the replay that either side plays with.

Contract: `pursue` does at most one of these steps a call and may be repeated at any time, also after a crash:
salts and intents follow from the operator's secret, the finding and how many of its games on the same claim
were decided before. It opens no second game on what it is already disputing. A hidden input takes two: a game
until the claimant has opened a slot that is wrong, then `bind` proves that slot; the game's bond comes back
when its clock has run out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from assay.dispute.disputant import disputed_path
from assay.dispute.replay import Replay
from assay.node.audit import (
    Finding,
    HiddenInput,
    RefutedVote,
    WrongInput,
    WrongSegment,
    WrongVote,
    wrong_input,
)
from assay.node.kept_replays import NoRoom
from assay.node.service import intent
from assay.node.states import Known, StateProvider
from assay.node.upkeep import CHALLENGEABLE
from assay.protocol import trees
from assay.protocol.demands import StateLeaf
from assay.protocol.errors import Retry
from assay.protocol.game import opened_levels
from assay.protocol.game_state import INPUT_SEGMENT, Game, GamePhase, GameView
from assay.protocol.ports import Market
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Address, ClaimId, ClaimView, TxResult


@dataclass(frozen=True)
class Pursuit:
    """How far a finding got. `stage`: announced, opened, convicted, playing or moot."""

    stage: str
    game_id: int | None
    reason: str


def key_of(finding: Finding) -> tuple[ClaimId, int, Address]:
    """What the chain calls a finding: claim, segment (or slot, or sample), verifier (or zero)."""
    match finding:
        case WrongSegment(claim_id, segment):
            return claim_id, segment, ZERO_ADDRESS
        case WrongInput(claim_id, slot):
            return claim_id, slot, ZERO_ADDRESS
        case WrongVote(claim_id, verifier, sample) | RefutedVote(claim_id, verifier, sample):
            return claim_id, sample, verifier
        case HiddenInput(claim_id):
            return claim_id, INPUT_SEGMENT, ZERO_ADDRESS


def root_of(finding: Finding) -> bytes:
    """What the finder has there itself: its own root, which nobody has who has not looked; none of a vote."""
    return ZERO_DIGEST if isinstance(finding, WrongVote | RefutedVote) else finding.root


def evidence_of(finding: Finding) -> tuple[bytes, StateLeaf | None]:
    """What the announcement of a proof binds beside the root: a slot's wrong root, or the bytes that a vote's
    trace has at a place, which nobody knows who has not looked."""
    if isinstance(finding, RefutedVote):
        return finding.said.data, finding.place
    return (finding.leaf if isinstance(finding, WrongInput) else b""), None


def is_proof(finding: Finding) -> bool:
    """Whether a finding is proven at once, by no game."""
    return isinstance(finding, WrongInput | RefutedVote)


def salt_of(secret: bytes, finding: Finding, attempt: int = 0) -> bytes:
    """The same after every restart, unknown to others; another one for each attempt at the same finding."""
    claim_id, place, verifier = key_of(finding)
    kind = type(finding).__name__.encode()
    again = attempt.to_bytes(4, "big") if attempt else b""
    return sha256(
        b"assay/salt/1" + secret + kind + claim_id + place.to_bytes(4, "big") + verifier.encode() + again
    ).digest()


def replay_for(state_provider: StateProvider, game: Game) -> Replay:
    """This node's own run of the segment that a game is about. Raises Retry when its start cannot be had."""
    view = state_provider.market.claim(game.claim_id)
    claim, work = view.claim, state_provider.work
    if game.steps == 0 and game.defender != state_provider.market.me:
        state = state_provider.input_state(claim.kind, claim.round, claim.shard)
        return work.replay(claim.kind, claim.round, claim.shard, 0, state)
    segment = 0 if game.segment == INPUT_SEGMENT else game.segment
    start = state_provider.leaf(view, segment)
    if not isinstance(start, Known):
        raise Retry(
            f"the state at the start of segment {segment} cannot be had: {start}", hint="fetch it again"
        )
    with suppress(NoRoom):  # it is played all the same
        state_provider.pin(view, segment, start.state)
    return work.replay(claim.kind, claim.round, claim.shard, segment, start.state)


def _pin_nothing(view: ClaimView, segment: int) -> None:
    """For whoever plays in the process that has found it."""


class Challenger:
    """Turns one account's findings into games. `pin` has the state on the disk that a segment starts from,
    before anything is announced that is played from it."""

    def __init__(
        self, market: Market, secret: bytes, pin: Callable[[ClaimView, int], None] = _pin_nothing
    ) -> None:
        self.market, self._secret, self._pin = market, secret, pin

    def pursue(self, finding: Finding, block: int) -> Pursuit:
        """The next step for a finding, at block number `block`. Raises what the port and `pin` raise."""
        claim_id, place, verifier = key_of(finding)
        view = self.market.claim(claim_id)
        if why := _moot(view, finding):
            return Pursuit("moot", None, why)
        if (game := self.running(finding)) is not None:
            return Pursuit("playing", game.game_id, "the game is on")
        if isinstance(finding, WrongSegment | WrongVote):
            self._pin(view, finding.segment)
        attempt = 0 if is_proof(finding) else self._decided(view, finding)
        salt = salt_of(self._secret, finding, attempt)
        what = (type(finding).__name__, claim_id, place, verifier, *((attempt,) if attempt else ()))
        root, key = root_of(finding), intent("announce", *what)
        evidence = evidence_of(finding)
        announced = self.market.announce(key, claim_id, place, verifier, root, salt, *evidence)
        if block <= announced.block:
            return Pursuit("announced", None, "the finding is announced; it opens a block later")
        return self._open(view, finding, intent("open", *what), salt)

    def _games(self, view: ClaimView, finding: Finding) -> list[GameView]:
        """Our own games on the same claim (or vote), oldest first."""
        verifier = key_of(finding)[2]
        defender = view.claim.claimant if verifier == ZERO_ADDRESS else verifier
        return [
            game
            for game in self.market.games(view.claim.job_id)
            if (game.game.claim_id, game.game.defender, game.game.challenger)
            == (view.claim_id, defender, self.market.me)
        ]

    def running(self, finding: Finding) -> GameView | None:
        """Our game about a finding's claim (or vote) that is not decided yet: while it is on, `pursue` sends
        nothing. None where there is none, and of what no game decides."""
        if is_proof(finding):
            return None
        view = self.market.claim(key_of(finding)[0])
        return next((game for game in self._games(view, finding) if not game.decided), None)

    def _decided(self, view: ClaimView, finding: Finding) -> int:
        """How many of them are over: what was announced and opened then is spent."""
        return sum(game.decided for game in self._games(view, finding))

    def _open(self, view: ClaimView, finding: Finding, key: str, salt: bytes) -> Pursuit:
        claim = view.claim
        if isinstance(finding, WrongSegment):
            tree, at = trees.build(finding.roots), finding.segment
            leaves, proofs = finding.roots, (tree.proof(at), tree.proof(at + 1))
            game_id = self.market.open_game(
                key, claim, at, leaves[at], proofs[0], leaves[at + 1], proofs[1], finding.root, salt
            )
            return Pursuit("opened", game_id, f"segment {at} is disputed")
        if isinstance(finding, WrongVote):
            return self._open_vote(view, finding, key, salt)
        if isinstance(finding, RefutedVote):
            self.market.prove_vote(
                key,
                claim,
                finding.verifier,
                finding.sample,
                finding.place,
                finding.committed,
                finding.said,
                salt,
            )
            return Pursuit("convicted", None, f"{finding.verifier}'s vote contradicts its own trace")
        if isinstance(finding, HiddenInput):
            game_id = self.market.open_input(key, claim, finding.root, salt)
            return Pursuit("opened", game_id, "the input state must be opened")
        self._prove_input(view, finding, key, salt)
        return Pursuit("convicted", None, f"slot {finding.slot} of the input is not what it must be")

    def _open_vote(self, view: ClaimView, finding: WrongVote, key: str, salt: bytes) -> Pursuit:
        tree, segment = trees.build(finding.roots), finding.segment
        traces, at = trees.build(finding.traces), finding.sample
        game_id = self.market.open_vote_game(
            key,
            view.claim,
            finding.verifier,
            at,
            finding.roots[segment],
            tree.proof(segment),
            finding.traces[at],
            traces.proof(at),
            salt,
        )
        return Pursuit("opened", game_id, f"sample {at} of {finding.verifier}'s vote is disputed")

    def _prove_input(self, view: ClaimView, finding: WrongInput, key: str, salt: bytes) -> TxResult:
        return self.market.prove_binding(
            key,
            view.claim,
            finding.slot,
            finding.leaf,
            finding.proof,
            finding.source,
            finding.source_leaf,
            finding.source_proof,
            finding.root,
            salt,
        )

    def bind(self, state_provider: StateProvider, game: GameView, block: int) -> Pursuit | None:
        """The next step against the input state that a game has opened, at block number `block`.

        None while no slot is opened that is wrong. Raises SourceMissing, IncompleteHistory, and what the
        port raises.
        """
        if game.decided or not slots_shown(game.game):
            return None
        if trees.root(game.digests) != game.game.digest:
            return None  # opened falsely, which the game itself convicts
        view = self.market.claim(game.game.claim_id)
        claim = view.claim
        right = state_provider.input_tree(claim.kind, claim.round, claim.shard)
        first, shown = game.game.index, game.digests
        slot = next((first + i for i, x in enumerate(shown) if _differs(right, first + i, x)), None)
        if slot is None:
            return None
        proof = disputed_path(claim.input_root, slot, right, game.opened)
        return self.pursue(wrong_input(state_provider, view, slot, shown[slot - first], proof), block)


def _moot(view: ClaimView, finding: Finding) -> str:
    """Why a finding is of no use any more; empty if it is."""
    verifier, phase = key_of(finding)[2], view.status.phase
    if verifier != ZERO_ADDRESS:
        stands = any(v.verifier == verifier and v.shown and v.valid and not v.gone for v in view.votes)
        live = phase in CHALLENGEABLE and not view.overtaken
        return "" if stands and (live or view.fallen) else f"the vote of {verifier} is over by now"
    if phase not in CHALLENGEABLE:
        return f"the claim is {phase.name.lower()} by now"
    return "" if not view.overtaken or _still_certain(view, finding) else "a rewind has overtaken the claim"


def _still_certain(view: ClaimView, finding: Finding) -> bool:
    """Whether an overtaken claim falls by this proof all the same: what it takes may have come out in a game
    alone, and its source was there when the claim was committed (rule 4.4)."""
    if not isinstance(finding, WrongInput) or not view.status.open_games:
        return False
    return finding.source is None or finding.source.rewinds <= view.claim.rewinds


def slots_shown(game: Game) -> bool:
    """Whether a game about an input state has come to the roots of single slots."""
    at_leaves = game.phase == GamePhase.PICK_OUTPUT and opened_levels(game.level) == game.level
    return game.steps == 0 and at_leaves


def _differs(right: trees.Tree, slot: int, shown: bytes) -> bool:
    return slot < right.count and right.digest(0, slot) != shown

"""Turns a finding into a game: announces it, waits a block, opens the game.

Contract: `pursue` takes at most one of these steps per call and may be repeated at any time, also after a
crash. Salts and intents are derived from the operator's secret, the finding and the number of its earlier
decided games on the claim. It opens no second game on the same claim or vote. A hidden input takes two steps:
a game until the claimant has opened a wrong slot, then a proof of that slot. The game's bond comes back when
its clock has run out.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from assay.node.findings import Finding, HiddenInput, RefutedVote, WrongInput, WrongSegment, WrongVote
from assay.node.intents import intent
from assay.node.upkeep import CHALLENGEABLE
from assay.protocol import trees
from assay.protocol.demands import StateLeaf
from assay.protocol.game_state import INPUT_SEGMENT, GameView
from assay.protocol.ports import Market
from assay.protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Address, ClaimId, ClaimView, TxResult
from assay.protocol.words import show_state


@dataclass(frozen=True)
class Pursuit:
    """Progress of a finding. `stage`: announced, opened, convicted, playing or moot."""

    stage: str
    game_id: int | None
    reason: str


def key_of(finding: Finding) -> tuple[ClaimId, int, Address]:
    """The chain's key of a finding: claim, segment (or slot, or sample), verifier (or zero)."""
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
    """The finder's own root at the fault, which proves that it replayed; zero for a vote."""
    return ZERO_DIGEST if isinstance(finding, WrongVote | RefutedVote) else finding.root


def evidence_of(finding: Finding) -> tuple[bytes, StateLeaf | None]:
    """Evidence that the announcement of a proof binds beside the root.

    It is a slot's wrong root, or the bytes that a vote's trace has at a place: only a replay shows it.
    """
    if isinstance(finding, RefutedVote):
        return finding.said.data, finding.place
    return (finding.leaf if isinstance(finding, WrongInput) else b""), None


def is_proof(finding: Finding) -> bool:
    """True if a finding is proven at once, without a game."""
    return isinstance(finding, WrongInput | RefutedVote)


def salt_of(secret: bytes, finding: Finding, attempt: int = 0) -> bytes:
    """Salt of a finding's announcement: deterministic, secret, and different for each attempt."""
    claim_id, place, verifier = key_of(finding)
    kind = type(finding).__name__.encode()
    again = attempt.to_bytes(4, "big") if attempt else b""
    return sha256(
        b"assay/salt/1" + secret + kind + claim_id + place.to_bytes(4, "big") + verifier.encode() + again
    ).digest()


class Challenger:
    """Turns the findings of one account into games."""

    def __init__(self, market: Market, secret: bytes) -> None:
        self.market, self._secret = market, secret

    def blocked(self, finding: Finding) -> Pursuit | None:
        """Reason to send nothing for a finding now; None if there is something to send."""
        if why := _moot(self.market.claim(key_of(finding)[0]), finding):
            return Pursuit("moot", None, why)
        game = self.running(finding)
        return None if game is None else Pursuit("playing", game.game_id, "the game is on")

    def pursue(self, finding: Finding, block: int) -> Pursuit:
        """Takes the next step for a finding, at block number `block`. Raises what the port raises."""
        if (blocked := self.blocked(finding)) is not None:
            return blocked
        claim_id, place, verifier = key_of(finding)
        view = self.market.claim(claim_id)
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
        """This account's games on the same claim (or vote), oldest first."""
        verifier = key_of(finding)[2]
        defender = view.claim.claimant if verifier == ZERO_ADDRESS else verifier
        return [
            game
            for game in self.market.games(view.claim.job_id)
            if (game.game.claim_id, game.game.defender, game.game.challenger)
            == (view.claim_id, defender, self.market.me)
        ]

    def running(self, finding: Finding) -> GameView | None:
        """This account's undecided game about a finding's claim or vote, during which `pursue` sends nothing.

        None if there is none, or the finding needs no game.
        """
        if is_proof(finding):
            return None
        view = self.market.claim(key_of(finding)[0])
        return next((game for game in self._games(view, finding) if not game.decided), None)

    def _decided(self, view: ClaimView, finding: Finding) -> int:
        """Number of decided games of a finding, whose announcements are used up."""
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


def _moot(view: ClaimView, finding: Finding) -> str:
    """Reason why a finding has become useless; empty if it has not."""
    verifier, phase = key_of(finding)[2], view.status.phase
    if verifier != ZERO_ADDRESS:
        stands = any(v.verifier == verifier and v.shown and v.valid and not v.gone for v in view.votes)
        live = phase in CHALLENGEABLE and not view.overtaken
        return "" if stands and (live or view.fallen) else f"the vote of {verifier} is over by now"
    if phase not in CHALLENGEABLE:
        return f"the claim is {show_state(phase)} by now"
    return "" if not view.overtaken or _still_certain(view, finding) else "a rewind has overtaken the claim"


def _still_certain(view: ClaimView, finding: Finding) -> bool:
    """True if an overtaken claim still falls by this proof.

    The evidence may have come out only in a game, and the source existed when the claim was committed (rule
    4.4).
    """
    if not isinstance(finding, WrongInput) or not view.status.open_games:
        return False
    return finding.source is None or finding.source.rewinds <= view.claim.rewinds

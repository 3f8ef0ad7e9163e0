"""This machine's own replay of a game: which side is right, and at which level they first differ."""

from __future__ import annotations

from typing import Any

from assay.node.audit import audit_input, audit_vote
from assay.node.states import Known, StateProvider
from assay.protocol.game_state import GameView
from assay.protocol.types import ClaimView


def own_replay(state_provider: StateProvider, view: GameView, claim: ClaimView) -> dict[str, Any]:
    """`levels` with both sides' roots where they can be compared, and the side that is `right`.

    Raises SourceMissing and Retry if that cannot be decided (yet).
    """
    game = view.game
    if game.ballot:
        accused = [vote for vote in claim.votes if vote.verifier == game.defender]
        finding = audit_vote(state_provider, claim, accused[0]) if accused else None
        return _said([], finding is not None, str(finding or "the vote's traces are the true ones"))
    if not game.steps:
        finding = audit_input(state_provider, claim)
        return _said([], finding is not None, str(finding or "the claim starts from the state it must"))
    start = state_provider.leaf(claim, game.segment)
    if not isinstance(start, Known):
        return _said([], True, f"the state before segment {game.segment} is not what it must be")
    kind, work = claim.claim.kind, state_provider.work
    replay = work.replay(kind, claim.claim.round, claim.claim.shard, game.segment, start.state)
    steps = work.segment_steps(kind, game.segment, claim.claim.shard)
    mine, claimed = replay.root(steps), claim.roots[game.segment + 1]
    levels = [_level(f"end of segment {game.segment}", mine, claimed)]
    if game.steps == 1 and steps > 1:
        at = game.step - replay.first_step
        levels.append(_level(f"state before step {game.step}", replay.root(at), game.in_root))
        levels.append(_level(f"state after step {game.step}", replay.root(at + 1), game.out_root))
    words = "the segment ends in another state" if mine != claimed else "the segment ends as it was claimed"
    return _said(levels, mine != claimed, f"{words} when it is replayed here")


def _level(what: str, mine: bytes, claimed: bytes) -> dict[str, Any]:
    return {"what": what, "mine": mine.hex(), "claimed": claimed.hex(), "agrees": mine == claimed}


def _said(levels: list[dict[str, Any]], wrong: bool, words: str) -> dict[str, Any]:
    return {"levels": levels, "right": "challenger" if wrong else "defender", "words": words}

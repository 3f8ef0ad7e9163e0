"""What the dashboard's pages show, as plain data.

Contract: pure readings of a `MarketView` at one moment, in JSON's types; amounts are decimal strings of the
smallest unit, ids hex digits. Every view has all of what its page shows, so that a page that follows a chain
through a reorganisation is right again with the next view. Nothing is left out for being ugly: what is not
known is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.app.games import WHAT_IS_ASKED, side_to_move, state_of
from assay.client.following import follow
from assay.client.job_events import events_between
from assay.protocol import sampling
from assay.protocol.game_state import GameView
from assay.protocol.loops import trained_steps
from assay.protocol.ports import MarketView
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    ClaimView,
    JobId,
    JobView,
    Kind,
    Loop,
    Phase,
    Role,
    Terms,
    Vote,
)

Names = Mapping[Address, str]
Curve = Mapping[tuple[bytes, int], float]
"""Training loss by claim and leaf of its segments tree."""
LATEST = 60
"""Events of a job that are shown."""


def party(address: Address, names: Names) -> dict[str, str] | None:
    """An account as it is shown; None for nobody."""
    if address == ZERO_ADDRESS:
        return None
    return {"address": address, "name": names.get(address, "")}


def market_view(market: MarketView, now: int, names: Names) -> dict[str, Any]:
    """All jobs, newest first, and what is in dispute."""
    games = market.games()
    return {
        "now": now,
        "jobs": [_job_line(job, names) for job in reversed(market.jobs())],
        "games": [game_line(view, now, names) for view in reversed(games)],
        "accounts": len(market.endpoints()),
    }


def _job_line(job: JobView, names: Names) -> dict[str, Any]:
    progress = job.progress
    return {
        "id": job.job_id.hex(),
        "client": party(job.terms.client, names),
        "round": progress.round,
        "rounds": job.terms.rounds,
        "settled": progress.settled_rounds,
        "shards": job.terms.shards,
        "escrow": str(job.escrow),
        "rewinds": progress.rewinds,
        "state": "closed" if progress.closed else "halted" if progress.halted else "open",
    }


def game_line(view: GameView, now: int, names: Names) -> dict[str, Any]:
    """A game in one line."""
    game = view.game
    return {
        "id": view.game_id,
        "claim": game.claim_id.hex(),
        "job": game.accused.job_id.hex(),
        "segment": game.segment,
        "challenger": party(game.challenger, names),
        "defender": party(game.defender, names),
        "moves": view.moves,
        "decided": view.decided,
        "challengerWon": view.challenger_won,
        "state": state_of(view),
        "secondsLeft": None if view.decided else game.deadline - now,
    }


def _said(view: ClaimView, vote: Vote) -> str:
    """What a vote says, also once its seat is over."""
    if not vote.shown:
        return "no vote"
    return "valid" if view.traces.get(vote.verifier) else "invalid"


def segment_states(view: ClaimView, games: Sequence[GameView], loops: Sequence[Loop]) -> list[str]:
    """Of each segment of a task: convicted, disputed, replayed (by a verifier who vouched for it) or
    committed."""
    segments = sum(loop.segments for loop in loops)
    states = ["committed"] * segments
    for vote in view.votes:
        if vote.shown and vote.valid and view.status.seed != ZERO_DIGEST:
            for s in sampling.sample_segments(view.status.seed, vote.verifier, loops):
                states[s] = "replayed"
    for game in games:
        if game.game.claim_id != view.claim_id or game.game.ballot or not game.game.segment < segments:
            continue
        if not game.decided:
            states[game.game.segment] = "disputed"
        elif game.challenger_won:
            states[game.game.segment] = "convicted"
    return states


def job_view(
    market: MarketView, job_id: JobId, now: int, names: Names, curve: Curve, events: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A job: rounds, shards, money, coverage, its loss curve, its games. Raises Stop for an unknown one."""
    with market.snapshot():
        following = follow(market, job_id)
        claims, games = market.claims(job_id), market.games(job_id)
    job, terms = following.job, following.job.terms
    tasks, points = [], []
    for view in claims:
        if view.claim.kind == Kind.TASK and view.status.phase != Phase.VOID:
            states = segment_states(view, games, terms.loops)
            tasks.append(_task(view, states, games, names))
            points += _points(view, states, terms, curve)
    holders = [market.holder(job_id, shard).solver for shard in range(terms.shards)]
    return {
        **_job_line(job, names),
        "now": now,
        "paid": str(following.paid),
        "convictions": following.convictions,
        "done": following.done,
        "priceCap": str(terms.price_cap),
        "stepsPerRound": terms.steps_per_round,
        "segmentSteps": terms.segment_steps,
        "segments": terms.segments,
        "samples": terms.samples,
        "verifiers": terms.verifiers,
        "challengeWindow": terms.challenge_window,
        "stateBytes": terms.state_bytes,
        "coverage": coverage(tasks, terms),
        "holders": [party(holder, names) for holder in holders],
        "missing": [[line.round, line.shard] for line in following.tasks if line.missing],
        "outer": [phase.name.lower() for phase in following.outer],
        "slices": following.job.terms.slices,
        "slicesThere": list(following.slices),
        "tasks": tasks,
        "points": points,
        "checkpoints": _checkpoints(claims),
        "games": [game_line(game, now, names) for game in reversed(games)],
        "events": list(events)[-LATEST:][::-1],
    }


def coverage(tasks: Sequence[Mapping[str, Any]], terms: Terms) -> dict[str, Any]:
    """How much of the tasks that stand somebody drawn vouches for, and with which chance a wrong segment put
    anywhere escapes: those that have voted, and, before a draw, all seats with honest verifiers in them."""
    states = [state for task in tasks if task["standing"] for state in task["segments"]]
    replayed = states.count("replayed")
    drawn = max(1 - loop.samples / loop.segments for loop in terms.loops)
    return {
        "replayed": replayed,
        "segments": len(states),
        "escaped": 1 - replayed / len(states) if states else None,
        "escapesDraw": drawn**terms.verifiers,
    }


def _task(view: ClaimView, states: Sequence[str], games: Sequence[GameView], names: Names) -> dict[str, Any]:
    claim, status = view.claim, view.status
    own = [game for game in games if game.game.claim_id == view.claim_id]
    return {
        "claim": view.claim_id.hex(),
        "round": claim.round,
        "shard": claim.shard,
        "solver": party(claim.claimant, names),
        "price": str(claim.price),
        "phase": status.phase.name.lower(),
        "standing": status.phase != Phase.CONVICTED and not view.stale and not view.left_out,
        "segments": list(states),
        "votes": [
            {
                "verifier": party(vote.verifier, names),
                "said": _said(view, vote),
            }
            for vote in view.votes
        ],
        "games": [game.game_id for game in own],
    }


def _points(view: ClaimView, states: Sequence[str], terms: Terms, curve: Curve) -> list[dict[str, Any]]:
    """Losses at the ends of a claim's segments, with what is known of the segment that led there."""
    claim = view.claim
    return [
        {
            "step": claim.round * terms.main.of(claim.shard).steps + trained_steps(terms, i + 1, claim.shard),
            "shard": claim.shard,
            "claim": view.claim_id.hex(),
            "state": state,
            "loss": curve.get((view.claim_id, i + 1)),
        }
        for i, state in enumerate(states)
    ]


def _checkpoints(claims: Sequence[ClaimView]) -> list[dict[str, Any]]:
    """The global model after each round, by slice."""
    outer = [view for view in claims if view.claim.kind == Kind.OUTER and view.status.phase != Phase.VOID]
    return [
        {
            "round": view.claim.round,
            "slice": view.claim.shard,
            "phase": view.status.phase.name.lower(),
            "root": view.claim.output_root.hex(),
            "claim": view.claim_id.hex(),
        }
        for view in outer
    ]


def history(before: Any, now: Any, known: Sequence[dict[str, Any]], block: int) -> list[dict[str, Any]]:
    """What is known of a job's past, with what differs between two looks."""
    told = [
        {"kind": str(event.kind), "text": event.text, "block": block} for event in events_between(before, now)
    ]
    return [*known, *told][-LATEST:]


def game_view(market: MarketView, game_id: int, now: int, names: Names) -> dict[str, Any]:
    """A game as the path from its claim to what is in dispute now, with both clocks. Raises Stop."""
    view = market.game(game_id)
    game = view.game
    found = market.claim(game.claim_id)
    moving = "" if view.decided else side_to_move(view)
    left = game.deadline - now
    return {
        **game_line(view, now, names),
        "now": now,
        "round": found.claim.round,
        "shard": found.claim.shard,
        "kind": found.claim.kind.name.lower(),
        "claimant": party(found.claim.claimant, names),
        "reason": view.reason,
        "toMove": moving,
        "asked": "" if view.decided else WHAT_IS_ASKED[game.phase],
        "clocks": {
            side: {
                "runs": side == moving,
                "seconds": max(left, 0) if side == moving else int(game.move_time),
                "out": side == moving and left < 0,
            }
            for side in ("challenger", "defender")
        },
        "moveTime": int(game.move_time),
        "path": path_of(view, found),
    }


def path_of(view: GameView, claim: ClaimView) -> list[dict[str, str]]:
    """From the claim down to what is in dispute: each level with what the defender says there."""
    game, at = view.game, view.game.segment + 1
    end = claim.roots[at].hex()[:16] if game.steps and at < len(claim.roots) else ""
    start = {"what": f"segment {game.segment}", "detail": f"{end} is its claimed end"}
    path = [start if end else {"what": "input state", "detail": f"claimed as {game.out_root.hex()[:16]}"}]
    if game.steps == 1:
        ends = f"from state {game.in_root.hex()[:16]} to {game.out_root.hex()[:16]}"
        path.append({"what": f"step {game.step}", "detail": ends})
    elif game.steps:
        last = game.step + game.steps - 1
        path.append({"what": f"steps {game.step} to {last}", "detail": f"{game.steps} in dispute"})
    if game.trace_root != ZERO_DIGEST:
        detail = f"{game.trace_root.hex()[:16]}, of {game.program.nodes} instructions"
        path.append({"what": "trace of the step", "detail": detail})
    if game.node_hash != ZERO_DIGEST:
        path.append({"what": f"instruction {game.node}", "detail": f"{game.size} bytes of output"})
        if game.level == 0:
            path.append({"what": f"leaf {game.index}", "detail": f"{len(view.leaf_data)} bytes revealed"})
        elif game.digest != ZERO_DIGEST:
            path.append({"what": f"leaves from {game.index}", "detail": f"{1 << game.level} at most"})
    elif game.trace_root != ZERO_DIGEST and game.digest != ZERO_DIGEST:
        path.append({"what": f"instructions from {game.index}", "detail": f"{1 << game.level} at most"})
    return path


def accounts_view(market: MarketView, known: Sequence[Address], names: Names) -> dict[str, Any]:
    """What each account holds and has at stake."""
    lines = []
    for address in known:
        stakes = {role.name.lower(): market.stake(address, role) for role in Role}
        lines.append(
            {
                **(party(address, names) or {}),
                "free": str(market.free(address)),
                "wallet": str(market.wallet(address)),
                "stakes": {
                    role: {
                        "active": str(stake.active),
                        "locked": str(stake.locked),
                        "unbonding": str(stake.unbonding),
                    }
                    for role, stake in stakes.items()
                },
            }
        )
    return {"accounts": lines}


def known_accounts(market: MarketView, names: Names) -> list[Address]:
    """Every account that this market's public record shows, those with names first."""
    found: dict[Address, None] = dict.fromkeys(names)
    found |= dict.fromkeys((*market.endpoints(), *market.stakers()))
    for job in market.jobs():
        found[job.terms.client] = None
    for game in market.games():
        found[game.game.challenger] = None
        found[game.game.defender] = None
    found.pop(ZERO_ADDRESS, None)
    return list(found)

"""Data of the dashboard's pages.

Contract: pure readings of a `MarketView` at one moment, in JSON's types; amounts are decimal strings of the
smallest unit, ids hex digits. Every view has all data of its page, so that a page that follows a chain
through a reorganisation is right again with the next view. Unknown values are None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay.app.crew_activity import Activity, activities, share_in_words, stage_in_words
from assay.app.game_text import WHAT_IS_ASKED, side_to_move, state_of
from assay.app.node_status import details, printable
from assay.app.outlook import outlook_of, who_of
from assay.chain.contracts.job_ledger import Payment
from assay.chain.contracts.ledger import Entry
from assay.node.idle_reasons import place_of
from assay.node.rounds import Claims, missing
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
    Seconds,
    Terms,
    Vote,
)
from assay.protocol.words import attested, show_state, show_votes

if TYPE_CHECKING:  # `verifier coverage` draws no curve, and imports no PyTorch
    from assay.dashboard.curve import Curve

Names = Mapping[Address, str]
JobNames = Mapping[JobId, str]
EARNING = ("pay", "fee", "reward", "compensation", "bond", "bond back", "bond won", "slashed")
"""Reasons of ledger entries by which an account earns or loses."""


def party(address: Address, names: Names) -> dict[str, str] | None:
    """An account as it is shown; None for the zero address."""
    if address == ZERO_ADDRESS:
        return None
    return {"address": address, "name": names.get(address, "")}


def market_view(market: MarketView, now: int, names: Names, jobs: JobNames) -> dict[str, Any]:
    """All jobs, newest first, with the progress of open ones, and open disputes."""
    games = market.games()
    return {
        "now": now,
        "jobs": [
            {**_job_line(job, names, jobs), "doing": _doing(market, job, now, names)}
            for job in reversed(market.jobs())
        ],
        "games": [game_line(view, names) for view in reversed(games)],
        "accounts": len(market.endpoints()),
    }


def _doing(market: MarketView, job: JobView, now: int, names: Names) -> list[dict[str, Any]]:
    """A job's present activities, and what follows."""
    found = outlook_of(market, job, Seconds(now), who_of(names))
    return [{"now": each.now, "next": each.next, "until": each.until} for each in found]


def _job_line(job: JobView, names: Names, jobs: JobNames) -> dict[str, Any]:
    progress = job.progress
    return {
        "id": job.job_id.hex(),
        "name": jobs.get(job.job_id, ""),
        "client": party(job.terms.client, names),
        "round": progress.round,
        "rounds": job.terms.rounds,
        "settled": progress.settled_rounds,
        "shards": job.terms.shards,
        "escrow": str(job.escrow),
        "rewinds": progress.rewinds,
        "state": "closed" if progress.closed else "halted" if progress.halted else "open",
    }


def game_line(view: GameView, names: Names) -> dict[str, Any]:
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
        "until": None if view.decided else game.deadline,
    }


def _said(view: ClaimView, vote: Vote) -> str:
    """A vote, including one whose seat has ended."""
    if not vote.shown:
        return "no vote"
    return "valid" if view.traces.get(vote.verifier) else "invalid"


def segment_states(view: ClaimView, games: Sequence[GameView], loops: Sequence[Loop]) -> list[str]:
    """State of each segment of a task: convicted, disputed, attested (a verifier vouches for its own
    replay) or unchecked."""
    segments = sum(loop.segments for loop in loops)
    states = ["unchecked"] * segments
    for vote in view.votes:
        if vote.shown and vote.valid and view.status.seed != ZERO_DIGEST:
            for s in sampling.sample_segments(view.status.seed, vote.verifier, loops):
                states[s] = "attested"
    for game in games:
        if game.game.claim_id != view.claim_id or game.game.ballot or not game.game.segment < segments:
            continue
        if not game.decided:
            states[game.game.segment] = "disputed"
        elif game.challenger_won:
            states[game.game.segment] = "convicted"
    return states


def job_view(
    market: MarketView, job_id: JobId, now: int, names: Names, jobs: JobNames, curve: Curve | None
) -> dict[str, Any]:
    """A job: progress, work by rounds, coverage, loss curve, games. Raises Stop for an unknown one."""
    with market.snapshot():
        job, claims, games = market.job(job_id), Claims(market.claims(job_id)), market.games(job_id)
        doing = _doing(market, job, now, names)
    terms = job.terms
    views = [view for view in claims if view.status.phase != Phase.VOID]
    work = [_claim(view, terms, games, names) for view in views]
    tasks = [line for line in work if line["kind"] == "task"]
    return {
        **_job_line(job, names, jobs),
        "now": now,
        "doing": doing,
        "convictions": sum(view.status.phase == Phase.CONVICTED for view in claims),
        "done": job.progress.closed or job.progress.settled_rounds >= terms.rounds,
        "stepsPerRound": terms.steps_per_round,
        "segments": terms.segments,
        "samples": terms.samples,
        "verifiers": terms.verifiers,
        "challengeWindow": terms.challenge_window,
        "stateBytes": terms.state_bytes,
        "coverage": coverage(tasks, terms),
        "missing": [
            [round_, shard] for round_ in range(terms.rounds) for shard in missing(job, claims, round_)
        ],
        "work": sorted(work, key=lambda line: (line["round"], line["kind"] == "outer", line["unit"])),
        "curve": curve_view(job, claims, games, curve),
        "games": [game_line(game, names) for game in reversed(games)],
    }


def coverage(tasks: Sequence[Mapping[str, Any]], terms: Terms) -> dict[str, Any]:
    """Share of the standing tasks' segments that drawn verifiers vouch for, and the chance that a wrong one
    escapes.

    Counts verifiers that have voted and, before a draw, all seats with honest verifiers in them.
    """
    states = [state for task in tasks if task["standing"] for state in task["segments"]]
    checked = states.count("attested")
    drawn = max(1 - loop.samples / loop.segments for loop in terms.loops)
    return {
        "attested": checked,
        "segments": len(states),
        "escaped": 1 - checked / len(states) if states else None,
        "escapesDraw": drawn**terms.verifiers,
    }


def _claim(view: ClaimView, terms: Terms, games: Sequence[GameView], names: Names) -> dict[str, Any]:
    claim, status = view.claim, view.status
    return {
        "claim": view.claim_id.hex(),
        "kind": claim.kind.name.lower(),
        "place": place_of(view),
        "round": claim.round,
        "unit": claim.shard,
        "solver": party(claim.claimant, names),
        "price": str(claim.price),
        "state": show_state(status.phase, attested(view, terms)),
        "voted": show_votes(view, terms),
        "standing": status.phase != Phase.CONVICTED and not view.stale and not view.left_out,
        "segments": segment_states(view, games, terms.loops) if claim.kind == Kind.TASK else [],
        "root": claim.output_root.hex(),
        "votes": [
            {"verifier": party(vote.verifier, names), "said": _said(view, vote)} for vote in view.votes
        ],
        "games": [game.game_id for game in games if game.game.claim_id == view.claim_id],
    }


OUT = ("price", "fee", "reward", "compensation", "burnt", "bond back", "bond won", "back")
"""Payments from a job's budget, in the order shown."""
LEAST = ("convicted", "disputed", "unchecked", "attested")
"""States of a segment, least checked first."""


def curve_view(
    job: JobView, claims: Claims, games: Sequence[GameView], curve: Curve | None
) -> dict[str, Any]:
    """Losses by shard and step, held-out losses by the first step of their rounds, and the states of the
    steps.

    A stretch of steps has the least checked state of the shards in its round. Of the claims of one place the
    last one counts, unless a rewind has overtaken it: a convicted claim that is trained again is not shown.
    """
    terms = job.terms
    lines: list[list[list[Any]]] = [[] for _ in range(terms.shards)]
    stretches: list[dict[str, Any]] = []
    tested = []
    for round_ in range(terms.rounds):
        absent = set(missing(job, claims, round_))
        found = [claims.latest.get((Kind.TASK, round_, shard)) for shard in range(terms.shards)]
        gone = [view is None or view.overtaken or view.status.phase == Phase.VOID for view in found]
        views = [None if lost else view for view, lost in zip(found, gone, strict=True)]
        if not any(views):
            continue
        states = [
            ["unchecked"] * terms.segments if view is None else segment_states(view, games, terms.loops)
            for shard, view in enumerate(views)
            if shard not in absent
        ]
        begin = round_ * terms.steps_per_round
        for i in range(terms.segments):
            ends = [begin + trained_steps(terms, segments, 0) for segments in (i, i + 1)]
            if ends[0] < ends[1] and states:
                least = min((each[i] for each in states), key=LEAST.index)
                stretches.append({"from": ends[0], "to": ends[1], "state": least})
        if curve is None:
            continue
        for shard, view in enumerate(views):
            if view is not None:
                lines[shard] += _points(view, terms, curve)
        held = [loss for view in views if view and (loss := curve.tested.get(view.claim_id)) is not None]
        if held:
            tested.append([begin, sum(held) / len(held)])
    return {
        "steps": terms.rounds * terms.steps_per_round,
        "shards": lines,
        "stretches": stretches,
        "heldOut": tested,
    }


def _points(view: ClaimView, terms: Terms, curve: Curve) -> list[list[Any]]:
    """Known steps and losses at the ends of a claim's segments."""
    claim = view.claim
    begin = claim.round * terms.main.of(claim.shard).steps
    return [
        [begin + trained_steps(terms, leaf, claim.shard), loss]
        for leaf in range(1, terms.segments + 1)
        if (loss := curve.known.get((view.claim_id, leaf))) is not None
    ]


def money_view(payments: Sequence[Payment], pots: Mapping[str, int], names: Names) -> dict[str, Any]:
    """A job's money as flows, each kind of each account once: paid in, paid out, held."""
    flows: dict[tuple[str, Address | None, str], int] = {}
    for each in payments:
        if each.kind != "set aside":
            key = (each.kind, each.account, each.role)
            flows[key] = flows.get(key, 0) + each.amount
    lines = [
        {"kind": kind, "who": account and party(account, names), "role": role, "amount": str(abs(amount))}
        for (kind, account, role), amount in flows.items()
    ]
    signs = [amount > 0 for amount in flows.values()]
    into = [line for line, comes in zip(lines, signs, strict=True) if comes]
    out = [line for line, comes in zip(lines, signs, strict=True) if not comes]
    return {
        "in": into,
        "out": sorted(out, key=lambda line: OUT.index(line["kind"])),
        "held": [{"pot": pot, "amount": str(held)} for pot, held in pots.items() if held],
    }


def account_flows(entries: Sequence[Entry]) -> dict[str, int]:
    """Payments to and from an account by reason, without stake that only changed its pot."""
    flows: dict[str, int] = {}
    for entry in entries:
        kind = "staked" if entry.kind == "unbonded" else entry.kind
        flows[kind] = flows.get(kind, 0) + entry.amount
    return {kind: amount for kind, amount in flows.items() if amount}


def earned(entries: Sequence[Entry]) -> int:
    """An account's earnings less its losses, without deposits, budgets and stakes."""
    return sum(amount for kind, amount in account_flows(entries).items() if kind in EARNING)


def game_view(market: MarketView, game_id: int, now: int, names: Names) -> dict[str, Any]:
    """A game as the path from its claim to the present dispute, with both clocks. Raises Stop."""
    view = market.game(game_id)
    game = view.game
    found = market.claim(game.claim_id)
    moving = "" if view.decided else side_to_move(view)
    left = game.deadline - now
    return {
        **game_line(view, names),
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
    """Path from the claim down to the present dispute: each level with the defender's answer."""
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


def roles_of(market: MarketView, nodes: Mapping[Address, str]) -> Callable[[Address], list[str]]:
    """Roles of an account on this market: a role by its stake or its node (`nodes`), client, challenger."""
    clients = {job.terms.client for job in market.jobs()}
    finders = {view.game.challenger for view in market.games()}

    def roles(account: Address) -> list[str]:
        found = [nodes[account]] if account in nodes else []
        for role in Role:
            stake = market.stake(account, role)
            found += [role.name.lower()] * bool(stake.active or stake.unbonding)
        found += ["client"] * (account in clients) + ["challenger"] * (account in finders)
        return list(dict.fromkeys(found))

    return roles


def accounts_view(
    market: MarketView,
    known: Sequence[Address],
    names: Names,
    earned: Mapping[Address, int],
    nodes: Mapping[Address, str],
) -> dict[str, Any]:
    """Roles, balance, stakes and `earned` amount of each of these accounts."""
    roles, lines = roles_of(market, nodes), []
    for address in known:
        stakes = [market.stake(address, role) for role in Role]
        lines.append(
            {
                **(party(address, names) or {}),
                "roles": roles(address),
                "free": str(market.free(address)),
                "wallet": str(market.wallet(address)),
                "earned": str(earned[address]) if address in earned else None,
                "stake": str(sum(stake.active for stake in stakes)),
                "locked": str(sum(stake.locked for stake in stakes)),
                "unbonding": str(sum(stake.unbonding for stake in stakes)),
            }
        )
    return {"accounts": lines}


def node_view(status: Mapping[str, Any], troubles: Sequence[str], *, ready: bool) -> dict[str, Any]:
    """A node's own status, in words."""
    return {
        "role": printable(status.get("role") or "does not answer"),
        "action": printable(status.get("action") or ""),
        "ready": ready,
        "troubles": [printable(trouble) for trouble in troubles],
        "details": [list(pair) for pair in details(status) if not pair[0].startswith("crew: ")],
        "crews": [crew_view(activity) for activity in activities(status)],
    }


def crew_view(activity: Activity) -> dict[str, Any]:
    """A crew's pipeline, as one member's node tells it; parts of a step are of one."""
    return {
        "step": activity.step,
        "segment": activity.segment,
        "waiting": printable(activity.waiting),
        "stages": [
            {
                "name": printable(stage.name),
                "own": stage.own,
                "step": stage.step_s,
                "words": printable(stage_in_words(activity, stage)),
                "parts": [
                    {
                        "what": share.what,
                        "part": share.part,
                        "words": printable(share_in_words(activity, share)),
                    }
                    for share in stage.shares
                ],
                "sent": list(stage.sent),
            }
            for stage in activity.stages
        ],
    }


def known_accounts(market: MarketView, names: Names) -> list[Address]:
    """All accounts in this market's public record, those with names first."""
    found: dict[Address, None] = dict.fromkeys(names)
    found |= dict.fromkeys((*market.endpoints(), *market.stakers()))
    for job in market.jobs():
        found[job.terms.client] = None
    for game in market.games():
        found[game.game.challenger] = None
        found[game.game.defender] = None
    found.pop(ZERO_ADDRESS, None)
    return list(found)

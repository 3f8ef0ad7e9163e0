"""What any node does for the claims of a job, and for its own games, beside its role.

Contract: decisions are pure; the same claim and clock give the same answer to everyone. A call that anyone
may make to move a claim on (record its seed, tally its votes, settle it, void it) is its claimant's at once,
and others' after their patience, each at a turn of his own, so that not everybody pays gas for the same call.
What frees stakes alone is left to those who have some in the claim. Rules: docs/protocol.md, 4.5 to 4.8, 5.2
and 5.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from assay.node.intents import intent, turn
from assay.node.rewards import waits_for
from assay.node.rounds import CHALLENGEABLE, left_out, tasks
from assay.protocol.errors import Unknown
from assay.protocol.game_state import GameView, WaitingReward, moot, returns_bond
from assay.protocol.ports import MarketView, Together, Write
from assay.protocol.types import (
    Address,
    ClaimId,
    ClaimView,
    ClockView,
    JobId,
    JobView,
    Kind,
    Phase,
    Role,
    Seconds,
    Terms,
    Vote,
)

FINAL_S = 1_200
"""For which a claim has been over before what it is played from is let go: longer than a reorganisation can
bring it back (64 slots of 12 s)."""
VOID_AGAIN = 3_600
"""Seconds until a claim that a void has not freed, as one of many rewinds does not, is voided once more."""


@dataclass(frozen=True)
class Poke:
    """A call that anyone may make; `what` names the Market port's method."""

    what: Together
    claim_id: ClaimId
    job_id: JobId
    since: Seconds
    """When it came to be called for, or to be called for again: another time, another intent."""
    reason: str
    turn_s: int = 0
    """Seconds for which it must have been called for, as this watcher has seen it (`Turns`)."""


@dataclass(frozen=True)
class Play:
    """Make our move in a game, on either side, or take the win if time is up."""

    job_id: JobId
    game_id: int
    reason: str


@dataclass(frozen=True)
class Tick:
    """Have the market's clock pass a deadline that somebody has missed (rule 7.4)."""

    job_id: JobId
    due_block: int
    """From which block on it may be ticked: another tick, another intent."""
    reason: str


@dataclass(frozen=True)
class Watcher:
    """Who looks, when, and how long it leaves others to do their own."""

    me: Address
    now: Seconds
    clock: ClockView
    patience: Seconds


def _due(watcher: Watcher, view: ClaimView, since: int) -> bool:
    """Ours at once; other people's when they have had time."""
    return watcher.now >= since + (0 if view.claim.claimant == watcher.me else watcher.patience)


def _turn_s(watcher: Watcher, view: ClaimView) -> int:
    """How long each of us leaves a call to those before him: its claimant first, then one after the other."""
    if view.claim.claimant == watcher.me:
        return 0
    return (1 + turn(watcher.me, view.claim_id)) * max(watcher.patience // 4, 1)


class Turns:
    """When calls that anyone may make were first seen to be called for. What makes one due need not be told
    by the claim (its seed block's time, the last vote's), and whoever counted from the claim's own times
    would find every turn over and send with all others at once."""

    def __init__(self) -> None:
        self._first: dict[str, Seconds] = {}

    def over(self, due: Mapping[str, Poke], now: Seconds) -> set[str]:
        """Of all calls that are due at this look, by intent: those whose turn has come."""
        self._first = {key: self._first.get(key, now) for key in due}
        return {key for key, poke in due.items() if now >= self._first[key] + poke.turn_s}


def _earlier_settled(job: JobView, claims: Sequence[ClaimView], view: ClaimView) -> bool:
    round_ = view.claim.round
    if view.claim.kind == Kind.TASK:
        return job.progress.settled_rounds >= round_
    return all(task.status.phase == Phase.SETTLED for task in tasks(job, claims, round_))


def poke_for(
    watcher: Watcher, job: JobView, claims: Sequence[ClaimView], view: ClaimView
) -> Poke | Tick | None:
    """The call that moves a claim on, if it is due from this watcher; on a closed job only what frees its own
    stake."""
    terms, status = job.terms, view.status
    if job.progress.closed and not ((view.stale or view.fallen) and locks(view, watcher.me)):
        return None

    def poke(what: Together, since: int, reason: str, again: int = 0) -> Poke | None:
        if not _due(watcher, view, since):
            return None
        called_for = Seconds(status.since + again)
        return Poke(what, view.claim_id, job.job_id, called_for, reason, _turn_s(watcher, view))

    again = (watcher.now - status.since) // VOID_AGAIN * VOID_AGAIN
    if view.overtaken:
        if status.phase not in CHALLENGEABLE or status.open_games:
            return None
        return poke("void", status.since, "a rewind overtook the claim: free its stakes", again)
    if view.fallen:
        until = disputable_until(view, terms)
        if watcher.now <= until or status.open_games or not locks(view, watcher.me):
            return None
        return poke("free_seats", until, "its votes can no longer be disputed: free their stakes", again)
    if left_out(job, claims, view, watcher.now):
        until = left_out_until(view, terms)
        if watcher.now <= until or status.open_games or not locks(view, watcher.me):
            return None
        return poke("void", until, "its round goes on without it: free its stakes", again)
    if status.phase == Phase.COMMITTED and watcher.clock.block > status.seed_block:
        return poke("record_seed", status.since, f"seed block {status.seed_block} is mined")
    if status.phase == Phase.SEEDED:
        if all(voted(vote) for vote in view.votes):
            return poke("tally", status.since, "every seat has voted or ended")
        end = Seconds(status.since + terms.vote_time)
        if watcher.clock.passed(end):
            return poke("tally", end, "the time to vote is over")
        if _due(watcher, view, end):
            return tick_for(watcher.clock, watcher.now, job.job_id, end, "the time to vote is over")
        return None
    if status.phase == Phase.ACCEPTED and not status.open_games and _earlier_settled(job, claims, view):
        end = window_end(view, terms)
        return poke("settle", end, "its challenge window is over") if watcher.now > end else None
    return None


def write(market: MarketView, poke: Poke) -> Write:
    """The call to make. Its intent is new whenever the claim has changed, so that a lost race is not for
    ever."""
    view = market.claim(poke.claim_id)
    status = view.status
    key = intent(poke.what, poke.claim_id, status.phase.name, status.calls, status.seed_block, status.shown)
    return Write(f"{key}/{poke.since}", poke.what, (view.claim,))


def tick_for(clock: ClockView, now: Seconds, job_id: JobId, deadline: int, what: str) -> Tick | None:
    """The tick that a missed deadline waits for, if it waits for one."""
    if not clock.awaits_tick(deadline, now):
        return None
    return Tick(job_id, clock.due_block, f"{what}: the market's clock has to be ticked")


def plays(
    me: Address,
    now: Seconds,
    clock: ClockView,
    job_id: JobId,
    claims: Sequence[ClaimView],
    games: Sequence[GameView],
    rewards: Sequence[WaitingReward] = (),
) -> Iterator[Play | Tick]:
    """What is to be done in this account's games now: its moves, and the ends that it gains by; also of other
    people's games for which a reward of its own waits. Until its deadline has passed, a move can be made."""
    waiting = {reward.claim_id: reward.winner for reward in rewards}
    held_up = {reward.claim_id for reward in rewards if waits_for(me, [reward])}
    for view in games:
        game = view.game
        late, ours = clock.passed(game.deadline), game.mover == me
        if view.decided:
            continue
        about = next((claim for claim in claims if claim.claim_id == game.claim_id), None)
        returning = about is not None and game.challenger == me and returns_bond(about, game)
        gains = not ours and (me in (game.challenger, game.defender) or game.claim_id in held_up)
        tick = tick_for(clock, now, job_id, game.deadline, f"game {view.game_id}")
        if tick is not None and (gains or returning):
            yield tick
        if me not in (game.challenger, game.defender):
            if late and game.claim_id in held_up:
                yield Play(job_id, view.game_id, f"game {view.game_id}: a reward waits for its end")
            continue
        if returning and late:
            yield Play(job_id, view.game_id, f"game {view.game_id}: its bond comes back, however it ends")
        elif about is not None and game.challenger == me and moot(about, game):
            # Whose games are won has a part in a reward that waits, where no truth tells (rule 5.4.1).
            if game.ballot or waiting.get(game.claim_id, me) == me or not ours or late:
                continue
            left = f"our move ({game.phase.name}), {game.deadline - now} s left, for a part in a reward"
            yield Play(job_id, view.game_id, f"game {view.game_id}: {left}")
        elif late != ours:
            left = f"our move ({game.phase.name}), {game.deadline - now} s left"
            what = left if ours else "the other side let its deadline pass"
            yield Play(job_id, view.game_id, f"game {view.game_id}: {what}")


def voted(vote: Vote) -> bool:
    """Whether a drawn verifier has voted, or its seat has ended."""
    return vote.shown or vote.gone


def window_end(view: ClaimView, terms: Terms) -> Seconds:
    """Of an accepted claim: until when it may be challenged (rule 4.7)."""
    attested = view.claim.kind == Kind.OUTER or view.status.valid == terms.verifiers
    return Seconds(view.status.since + (1 if attested else 2) * terms.challenge_window)


def disputable_until(view: ClaimView, terms: Terms) -> Seconds:
    """Of a fallen claim: until when its valid votes may be disputed (rule 5.5)."""
    return Seconds(view.status.since + terms.challenge_window)


def left_out_until(view: ClaimView, terms: Terms) -> Seconds:
    """Of a task that its round goes on without: until when it may be challenged; then it is voided (rule
    4.3.5)."""
    return Seconds(view.status.since + terms.challenge_window)


def challengeable_until(
    job: JobView, claims: Sequence[ClaimView], view: ClaimView, now: Seconds
) -> float | None:
    """Until when a claim may be challenged, infinity while it waits for votes; None if it may not be now."""
    if view.status.phase not in CHALLENGEABLE or view.overtaken:
        return None
    if view.status.phase == Phase.ACCEPTED:
        end: float = window_end(view, job.terms)
    else:
        end = left_out_until(view, job.terms) if left_out(job, claims, view, now) else inf
    return end if now <= end else None


def disputable(job: JobView, claims: Sequence[ClaimView], view: ClaimView, now: Seconds) -> Iterator[Vote]:
    """Valid votes of a task that may be disputed at this time."""
    in_time = view.fallen and now <= disputable_until(view, job.terms)
    if in_time or challengeable_until(job, claims, view, now) is not None:
        yield from (vote for vote in view.votes if vote.shown and vote.valid and not vote.gone)


def locks(view: ClaimView, account: Address) -> bool:
    """Whether a claim locks stake of the account: its claimant's until it has ended, and that behind a vote,
    which a fallen claim still locks."""
    behind = [vote.verifier for vote in view.votes if not vote.gone]
    if view.status.phase in CHALLENGEABLE:
        behind.append(view.claim.claimant)
    return (view.status.phase in CHALLENGEABLE or view.fallen) and account in behind


def over(market: MarketView, now: Seconds, job_id: JobId, claim_id: ClaimId) -> bool:
    """Whether neither a claim nor a vote on it can be disputed any more, and no game about them is open. One
    that the chain has lost may come back."""
    if market.ended(job_id):
        return True
    try:
        view = market.claim(claim_id)
    except Unknown:
        return False
    if view.status.phase in CHALLENGEABLE:
        return False
    if view.fallen and now <= disputable_until(view, market.job(job_id).terms):
        return False
    return all(game.decided for game in market.games(job_id) if game.game.claim_id == claim_id)


class Endings:
    """Claims that are over, and since when this process has seen them so."""

    def __init__(self) -> None:
        self._since: dict[ClaimId, Seconds] = {}

    def holds(self, market: MarketView, now: Seconds, job_id: JobId, claim_id: ClaimId) -> bool:
        """Whether a claim has been `over` for so long that it does not come back."""
        if not over(market, now, job_id, claim_id):
            self._since.pop(claim_id, None)
            return False
        final = now >= self._since.setdefault(claim_id, now) + FINAL_S
        if final:
            del self._since[claim_id]
        return final


def watched(market: MarketView, liable: bool = False) -> list[JobView]:
    """Open jobs, and closed ones that still hold something of this account's; with `liable`, of anybody's.

    A claim that a job left out, or whose overtaken stakes nobody has freed, outlasts the job, and so do games
    and demands on it, and votes on a fallen one: whoever looks away then loses a game by the clock, leaves
    stake and bond behind, or disputes nothing.
    """
    me = market.me
    staked = any(market.stake(me, role).locked for role in Role)

    def mine(job_id: JobId, shard: int) -> bool:
        return market.holder(job_id, shard).solver == me

    def holds(job_id: JobId) -> bool:
        if liable and not market.ended(job_id):
            return True
        games, demands = market.games(job_id), market.demands(job_id)
        return (
            (staked and market.holds_shard(job_id) and any(mine(job_id, k) for k in range(shards[job_id])))
            or any(not g.decided and me in (g.game.challenger, g.game.defender) for g in games)
            or any(not demand.outcome and demand.demander == me for demand in demands)
            or waits_for(me, market.rewards(job_id))
            or (staked and not market.ended(job_id) and any(locks(v, me) for v in market.claims(job_id)))
        )

    shards = {job.job_id: job.terms.shards for job in market.jobs()}
    return [job for job in market.jobs() if not job.progress.closed or holds(job.job_id)]


def others_suffice(
    now: Seconds, job: JobView, claims: Sequence[ClaimView], view: ClaimView, games: Sequence[GameView]
) -> bool:
    """Whether somebody else's running game on a claim may be waited for, instead of opening one's own.

    Not for ever: a game may be lost on purpose, so half the challenge window is kept for a game of one's own.
    """
    if not any(not game.decided and game.game.claim_id == view.claim_id for game in games):
        return False
    end, since = challengeable_until(job, claims, view, now), view.status.since
    return end is not None and now <= since + (end - since) // 2

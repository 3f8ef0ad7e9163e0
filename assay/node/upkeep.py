"""Decides the calls that keep a job's claims and this account's games moving, whatever the role.

Contract: decisions are pure; the same claim and clock give every node the same answer. Anyone may move a
claim on (record its seed, tally its votes, settle it, void it). Its claimant does so at once, others after
their patience, in turn, so that not everybody pays gas for the same call. Calls that only free stakes are
left to those with a stake in the claim. Rules: docs/protocol.md, 4.5 to 4.8, 5.2 and 5.3.
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
from assay.protocol.ports import BatchedCall, MarketView, Write
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
"""Seconds for which a claim must be over before its states are released: longer than a reorganisation can
bring it back (64 slots of 12 s)."""
VOID_AGAIN = 3_600
"""Seconds until a void that freed no stake, as one of many rewinds may not, is sent again."""


@dataclass(frozen=True)
class Poke:
    """A call that anyone may make; `what` is the method of the Market port."""

    what: BatchedCall
    claim_id: ClaimId
    job_id: JobId
    since: Seconds
    """Time at which the call became due, or due again; it is part of the intent."""
    reason: str
    turn_s: int = 0
    """Seconds for which this watcher must have seen it due (`Turns`)."""


@dataclass(frozen=True)
class Play:
    """Make this account's move in a game, or take the win if time is up."""

    job_id: JobId
    game_id: int
    reason: str


@dataclass(frozen=True)
class AuditVote:
    """Recompute the keyed traces of another's valid vote."""

    job_id: JobId
    claim_id: ClaimId
    verifier: Address
    reason: str


@dataclass(frozen=True)
class Pursue:
    """Announce and open (or prove at once) a finding: on a claim (zero address), or on a vote on a fallen
    claim."""

    job_id: JobId
    claim_id: ClaimId
    verifier: Address
    reason: str


@dataclass(frozen=True)
class Wait:
    """Do nothing for this job, for a reason."""

    job_id: JobId
    reason: str


@dataclass(frozen=True)
class Tick:
    """Tick the market's clock so that a missed deadline passes (rule 7.4)."""

    job_id: JobId
    due_block: int
    """First block in which the tick is possible; it is part of the intent."""
    reason: str


@dataclass(frozen=True)
class Watcher:
    """An account, the current time, and its patience: how long others may do their own calls."""

    me: Address
    now: Seconds
    clock: ClockView
    patience: Seconds


def _due(watcher: Watcher, view: ClaimView, since: int) -> bool:
    """True at once for this account's claims; for others' after the patience."""
    return watcher.now >= since + (0 if view.claim.claimant == watcher.me else watcher.patience)


def _turn_s(watcher: Watcher, view: ClaimView) -> int:
    """Seconds to wait before making a call: 0 for the claimant, then one turn after the other."""
    if view.claim.claimant == watcher.me:
        return 0
    return (1 + turn(watcher.me, view.claim_id)) * max(watcher.patience // 4, 1)


class Turns:
    """Tracks when each shared call was first seen due.

    The claim does not always say when a call became due (the seed block's time, the last vote's). Turns
    counted from the claim's own times would all be over at once, and everybody would send together.
    """

    def __init__(self) -> None:
        self._first: dict[str, Seconds] = {}

    def over(self, due: Mapping[str, Poke], now: Seconds) -> set[str]:
        """Intents of the due calls whose turn has come."""
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
    """The call that moves a claim on, if this watcher should make it; on a closed job only what frees its own
    stake."""
    terms, status = job.terms, view.status
    if job.progress.closed and not ((view.stale or view.fallen) and locks(view, watcher.me)):
        return None

    def poke(what: BatchedCall, since: int, reason: str, again: int = 0) -> Poke | None:
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
    """The market call of a poke. Its intent changes with the claim, so that a lost race is retried."""
    view = market.claim(poke.claim_id)
    status = view.status
    key = intent(poke.what, poke.claim_id, status.phase.name, status.calls, status.seed_block, status.shown)
    return Write(f"{key}/{poke.since}", poke.what, (view.claim,))


def tick_for(clock: ClockView, now: Seconds, job_id: JobId, deadline: int, what: str) -> Tick | None:
    """The tick that a missed deadline needs to pass; None if it needs none."""
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
    """Calls due in this account's games: its moves, and ends from which it gains.

    Includes others' games on which a reward of this account waits. A move is possible until its deadline has
    passed.
    """
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
            # If no settled claim decides, accounts whose games are won share a waiting reward (rule 5.4.1).
            if game.ballot or waiting.get(game.claim_id, me) == me or not ours or late:
                continue
            left = f"our move ({game.phase.name}), {game.deadline - now} s left, for a part in a reward"
            yield Play(job_id, view.game_id, f"game {view.game_id}: {left}")
        elif late != ours:
            left = f"our move ({game.phase.name}), {game.deadline - now} s left"
            what = left if ours else "the other side let its deadline pass"
            yield Play(job_id, view.game_id, f"game {view.game_id}: {what}")


def voted(vote: Vote) -> bool:
    """True if a drawn verifier has voted or its seat has ended."""
    return vote.shown or vote.gone


def window_end(view: ClaimView, terms: Terms) -> Seconds:
    """End of an accepted claim's challenge window (rule 4.7)."""
    attested = view.claim.kind == Kind.OUTER or view.status.valid == terms.verifiers
    return Seconds(view.status.since + (1 if attested else 2) * terms.challenge_window)


def disputable_until(view: ClaimView, terms: Terms) -> Seconds:
    """End of the time in which valid votes on a fallen claim may be disputed (rule 5.5)."""
    return Seconds(view.status.since + terms.challenge_window)


def left_out_until(view: ClaimView, terms: Terms) -> Seconds:
    """End of the time in which a left-out task may be challenged; after it the task is voided (rule
    4.3.5)."""
    return Seconds(view.status.since + terms.challenge_window)


def challengeable_until(
    job: JobView, claims: Sequence[ClaimView], view: ClaimView, now: Seconds
) -> float | None:
    """Time until which a claim may be challenged, infinity while it waits for votes; None if it may not be
    now."""
    if view.status.phase not in CHALLENGEABLE or view.overtaken:
        return None
    if view.status.phase == Phase.ACCEPTED:
        end: float = window_end(view, job.terms)
    else:
        end = left_out_until(view, job.terms) if left_out(job, claims, view, now) else inf
    return end if now <= end else None


def disputable(job: JobView, claims: Sequence[ClaimView], view: ClaimView, now: Seconds) -> Iterator[Vote]:
    """Valid votes of a task that may be disputed now."""
    in_time = view.fallen and now <= disputable_until(view, job.terms)
    if in_time or challengeable_until(job, claims, view, now) is not None:
        yield from (vote for vote in view.votes if vote.shown and vote.valid and not vote.gone)


def locks(view: ClaimView, account: Address) -> bool:
    """True if a claim locks stake of the account: the claimant's until it ends, a voter's also once it has
    fallen."""
    behind = [vote.verifier for vote in view.votes if not vote.gone]
    if view.status.phase in CHALLENGEABLE:
        behind.append(view.claim.claimant)
    return (view.status.phase in CHALLENGEABLE or view.fallen) and account in behind


def over(market: MarketView, now: Seconds, job_id: JobId, claim_id: ClaimId) -> bool:
    """True if no dispute of a claim or its votes is open or possible. A claim that a reorganisation removed
    may return."""
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
    """Records since when this process has seen each claim over."""

    def __init__(self) -> None:
        self._since: dict[ClaimId, Seconds] = {}

    def holds(self, market: MarketView, now: Seconds, job_id: JobId, claim_id: ClaimId) -> bool:
        """True if a claim has been `over` for so long that no reorganisation brings it back."""
        if not over(market, now, job_id, claim_id):
            self._since.pop(claim_id, None)
            return False
        final = now >= self._since.setdefault(claim_id, now) + FINAL_S
        if final:
            del self._since[claim_id]
        return final


def watched(market: MarketView, liable: bool = False) -> list[JobView]:
    """Open jobs, and closed ones that still hold something of this account's; with `liable`, of anybody's.

    A left-out claim, an overtaken claim with locked stakes, and games, demands and votes on them outlast the
    job. A node that ignores them loses games by the clock, leaves stake and bonds locked, or misses disputes.
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
    """True if this node can rely on somebody else's running game on a claim instead of opening its own.

    Half of the challenge window is kept for its own game, because the other one may be lost on purpose.
    """
    if not any(not game.decided and game.game.claim_id == view.claim_id for game in games):
        return False
    end, since = challengeable_until(job, claims, view, now), view.status.since
    return end is not None and now <= since + (end - since) // 2

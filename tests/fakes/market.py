"""A small faithful model of the contracts' rules in memory (docs/protocol.md, sections 3 to 5).

Contract: amounts are conserved (`World.supply` never changes but by `mint`), every refusal is `Reverted` with
the contract's error name. Claim and job ids are SHA-256 instead of Keccak-256. The dispute game itself is in
`tests.fakes.court`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from protocol import sampling, settlement, trees
from protocol.encoding import words
from protocol.errors import Reverted
from protocol.params import check_terms, shard_price, worst_case
from protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    Holder,
    JobId,
    JobView,
    Kind,
    Phase,
    Progress,
    Role,
    Seconds,
    Terms,
    Vote,
    Wei,
)

LIVE = (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)
HISTORY_BLOCKS = 8191


def refuse(error: str, why: str = "") -> Reverted:
    return Reverted(f"the contract refused: {error} {why}", hint="read the state again", error=error)


def require(holds: bool, error: str, why: str = "") -> None:
    if not holds:
        raise refuse(error, why)


@dataclass
class Job:
    view: JobView
    holders: list[Holder]
    rewinds: list[int] = field(default_factory=list)
    pots: list[settlement.CompensationPot] = field(default_factory=list)


@dataclass
class Entry:
    """A claim on the fake chain."""

    claim_id: ClaimId
    claim: Claim
    status: ClaimStatus
    votes: dict[Address, Vote] = field(default_factory=dict)
    roots: tuple[bytes, ...] = ()
    traces: dict[Address, tuple[bytes, ...]] = field(default_factory=dict)


class World:
    """All state of the fake chain; every account acts through a `tests.fakes.port.FakeMarket`."""

    def __init__(self) -> None:
        self.time = Seconds(1_000_000)
        self.block = 100
        self.wallet: dict[Address, int] = {}
        self.free: dict[Address, int] = {}
        self.active: dict[tuple[Address, Role], int] = {}
        self.locked: dict[tuple[Address, Role], int] = {}
        self.unbonding: dict[tuple[Address, Role], int] = {}
        self.burned = 0
        self.jobs: dict[JobId, Job] = {}
        self.claims: dict[ClaimId, Entry] = {}
        self.attempts: dict[tuple, int] = {}
        self.announced: dict[tuple, int] = {}
        self.urls: dict[Address, str] = {}
        self.log: list[tuple] = []

    def advance(self, seconds: int) -> None:
        self.time = Seconds(self.time + seconds)
        self.block += max(1, seconds // 2)

    def mint(self, account: Address, amount: int) -> None:
        self.wallet[account] = self.wallet.get(account, 0) + amount

    @property
    def supply(self) -> int:
        ledgers = (self.wallet, self.free, self.active, self.unbonding)
        escrow = sum(job.view.escrow + sum(pot.left for pot in job.pots) for job in self.jobs.values())
        return sum(sum(ledger.values()) for ledger in ledgers) + escrow + self.burned + self.bonds

    @property
    def bonds(self) -> int:
        return 0

    # -- ledger

    def credit(self, account: Address, amount: int) -> None:
        self.free[account] = self.free.get(account, 0) + amount

    def debit(self, account: Address, amount: int) -> None:
        require(self.free.get(account, 0) >= amount, "InsufficientBalance", f"{account} has too little free")
        self.free[account] = self.free.get(account, 0) - amount

    def unlocked(self, account: Address, role: Role) -> int:
        return self.active.get((account, role), 0) - self.locked.get((account, role), 0)

    def lock(self, account: Address, role: Role, amount: int) -> None:
        require(self.unlocked(account, role) >= amount, "InsufficientStake", f"{account} {role.name}")
        self.locked[account, role] = self.locked.get((account, role), 0) + amount

    def unlock(self, account: Address, role: Role, amount: int) -> None:
        self.locked[account, role] = self.locked[account, role] - amount

    def slash(self, account: Address, role: Role, asked: int) -> Wei:
        taken = min(asked, self.active.get((account, role), 0))
        self.active[account, role] = self.active.get((account, role), 0) - taken
        return Wei(taken)

    # -- jobs

    def post(self, caller: Address, terms: Terms, budget: int) -> JobId:
        check_terms(terms)
        require(terms.client == caller, "NotClient")
        require(budget >= worst_case(terms), "BudgetTooSmall")
        self.debit(caller, budget)
        job_id = JobId(sha256(b"job" + words(terms)).digest())
        require(job_id not in self.jobs, "JobExists")
        progress = Progress(0, 0, 0, False, False, self.time, terms.rounds)
        holders = [Holder(ZERO_ADDRESS, Wei(0), self.time) for _ in range(terms.shards)]
        self.jobs[job_id] = Job(JobView(job_id, terms, progress, Wei(budget)), holders)
        return job_id

    def job(self, job_id: JobId) -> Job:
        require(job_id in self.jobs, "NoSuchJob")
        return self.jobs[job_id]

    def _update(self, job: Job, escrow: int | None = None, **changes: object) -> None:
        progress = replace(job.view.progress, **changes)  # type: ignore[arg-type]
        job.view = replace(
            job.view, progress=progress, escrow=job.view.escrow if escrow is None else Wei(escrow)
        )

    def halt(self, caller: Address, job_id: JobId) -> None:
        job = self.job(job_id)
        require(job.view.terms.client == caller, "NotClient")
        progress = job.view.progress
        require(not progress.halted and progress.round < progress.final_round, "JobEnded")
        self._update(job, halted=True, final_round=progress.round + 1)

    def close(self, job_id: JobId) -> None:
        job = self.job(job_id)
        progress, terms = job.view.progress, job.view.terms
        require(not progress.closed, "JobEnded")
        tasks = [self.current(job_id, Kind.TASK, progress.round, k) for k in range(terms.shards)]
        settled = all(t is None or t.status.phase == Phase.SETTLED for t in tasks)
        require(progress.settled_rounds == progress.round and settled, "NotFinished")
        if progress.round < progress.final_round:
            late = max(self.task_deadline(job, k) for k in range(terms.shards))
            require(progress.halted and self.time > late, "NotFinished")
        self.credit(job.view.terms.client, job.view.escrow)
        self._update(job, escrow=0, closed=True)

    def pipeline_full(self, job: Job) -> bool:
        progress = job.view.progress
        return progress.round - progress.settled_rounds >= job.view.terms.max_unsettled

    def claim_shard(self, caller: Address, job_id: JobId, shard: int) -> None:
        job = self.job(job_id)
        terms = job.view.terms
        holder = job.holders[shard]
        require(holder.solver == ZERO_ADDRESS, "ShardTaken", holder.solver)
        require(self.unlocked(caller, Role.SOLVER) >= terms.solver_stake, "InsufficientStake")
        job.holders[shard] = Holder(caller, shard_price(terms, holder.since, self.time), self.time)

    def _reopen(self, job: Job, shard: int) -> None:
        job.holders[shard] = Holder(ZERO_ADDRESS, Wei(0), self.time)

    def release(self, caller: Address, job_id: JobId, shard: int) -> None:
        job = self.job(job_id)
        require(job.holders[shard].solver == caller, "NotHolder")
        progress = job.view.progress
        running = progress.round < progress.final_round
        owed = running and not self.current(job_id, Kind.TASK, progress.round, shard)
        require(not owed, "NotDue")
        self._reopen(job, shard)

    def task_deadline(self, job: Job, shard: int) -> int:
        return max(job.view.progress.round_start, job.holders[shard].since) + job.view.terms.task_time

    def expire(self, job_id: JobId, shard: int) -> None:
        job = self.job(job_id)
        holder = job.holders[shard]
        require(holder.solver != ZERO_ADDRESS, "NotHolder")
        require(self.time > self.task_deadline(job, shard) and not self.pipeline_full(job), "NotDue")
        require(self.current(job_id, Kind.TASK, job.view.progress.round, shard) is None, "WrongPhase")
        self.burned += self.slash(holder.solver, Role.SOLVER, job.view.terms.miss_penalty)
        self._reopen(job, shard)

    # -- claims

    def stale(self, entry: Entry) -> bool:
        at = settlement.position(entry.claim.kind, entry.claim.round)
        rewinds = self.job(entry.claim.job_id).rewinds
        return entry.status.phase in LIVE and settlement.is_stale(at, entry.claim.epoch, rewinds)

    def view(self, entry: Entry) -> ClaimView:
        votes = tuple(entry.votes.values())
        shown = entry.roots, dict(entry.traces)
        return ClaimView(entry.claim_id, entry.claim, entry.status, votes, self.stale(entry), *shown)

    def current(self, job_id: JobId, kind: Kind, round_: int, shard: int) -> Entry | None:
        for entry in reversed(self.claims.values()):
            claim = entry.claim
            if (claim.job_id, claim.kind, claim.round, claim.shard) == (job_id, kind, round_, shard):
                standing = entry.status.phase in (*LIVE, Phase.SETTLED) and not self.stale(entry)
                return entry if standing else None
        return None

    def entry(self, claim: Claim) -> Entry:
        claim_id = ClaimId(sha256(b"claim" + words(claim)).digest())
        require(claim_id in self.claims, "WrongClaim")
        return self.claims[claim_id]

    def _check_commit(self, caller: Address, job: Job, claim: Claim) -> None:
        terms, progress = job.view.terms, job.view.progress
        require(claim.round == progress.round < progress.final_round, "WrongRound")
        require(not self.pipeline_full(job), "PipelineFull")
        require(self.current(claim.job_id, claim.kind, claim.round, claim.shard) is None, "WrongPhase")
        if claim.kind == Kind.TASK:
            require(job.holders[claim.shard].solver == caller, "NotHolder")
            require(self.time <= self.task_deadline(job, claim.shard), "TooLate")
            require(claim.round > 0 or claim.input_root == terms.genesis_root, "WrongInput")
            return
        tasks = [self.current(claim.job_id, Kind.TASK, claim.round, k) for k in range(terms.shards)]
        accepted = sum(1 for t in tasks if t and t.status.phase in (Phase.ACCEPTED, Phase.SETTLED))
        require(accepted == terms.shards, "RoundIncomplete", f"{accepted}")

    def commit(self, caller: Address, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        job = self.job(claim.job_id)
        terms, progress = job.view.terms, job.view.progress
        self._check_commit(caller, job, claim)
        n = terms.segments if claim.kind == Kind.TASK else 1
        require(len(roots) == n + 1, "BadSegments")
        require((roots[0], roots[n]) == (claim.input_root, claim.output_root), "BadSegments")
        self.lock(caller, Role.SOLVER, terms.solver_stake)
        place = (claim.job_id, claim.kind, claim.round, claim.shard)
        attempt = self.attempts.get(place, 0)
        self.attempts[place] = attempt + 1
        price = job.holders[claim.shard].price if claim.kind == Kind.TASK else terms.outer_fee
        claim = replace(
            claim,
            claimant=caller,
            segments_root=trees.root(roots),
            price=price,
            committed_at=self.time,
            epoch=progress.epoch,
            attempt=attempt,
        )
        claim_id = ClaimId(sha256(b"claim" + words(claim)).digest())
        phase = Phase.COMMITTED if claim.kind == Kind.TASK else Phase.ACCEPTED
        status = ClaimStatus(phase, self.block + terms.seed_delay, self.time, 1, 0, 0, 0, ZERO_DIGEST)
        self.claims[claim_id] = Entry(claim_id, claim, status, roots=tuple(roots))
        if claim.kind == Kind.OUTER:
            self._update(job, round=progress.round + 1, round_start=self.time)
        return claim_id

    def _set(self, entry: Entry, **changes: object) -> None:
        entry.status = replace(entry.status, **changes)  # type: ignore[arg-type]

    def _live(self, claim: Claim, *phases: Phase) -> Entry:
        entry = self.entry(claim)
        require(entry.status.phase in phases and not self.stale(entry), "WrongPhase", entry.status.phase.name)
        return entry

    def draw(self, seed: bytes, count: int, passed_over: Address) -> list[Address]:
        staked = {a: s for (a, r), s in sorted(self.active.items()) if r == Role.VERIFIER and s > 0}
        staked.pop(passed_over, None)
        drawn: list[Address] = []
        while staked and len(drawn) < count:
            ticket = int.from_bytes(sha256(seed + bytes([len(drawn)])).digest(), "big") % sum(staked.values())
            account = next(iter(staked))
            for account, weight in staked.items():  # noqa: B007 (used after the loop)
                if ticket < weight:
                    break
                ticket -= weight
            drawn.append(account)
            del staked[account]
        return drawn

    def record_seed(self, claim: Claim) -> None:
        entry = self._live(claim, Phase.COMMITTED)
        terms = self.job(claim.job_id).view.terms
        seed_block = entry.status.seed_block
        require(self.block > seed_block, "SeedUnavailable")
        if self.block - seed_block > HISTORY_BLOCKS:
            self._set(entry, seed_block=self.block + terms.seed_delay, draws=entry.status.draws + 1)
            return
        block_hash = sha256(b"block" + seed_block.to_bytes(8, "big")).digest()
        seed = sampling.claim_seed(block_hash, entry.claim_id)
        drawn = self.draw(seed, terms.verifiers, claim.claimant)
        entry.votes = {a: Vote(a, ZERO_DIGEST, False, False, ZERO_DIGEST) for a in drawn}
        self._set(entry, phase=Phase.SEEDED, since=self.time, seed=seed, revealed=0, valid=0)

    def commit_vote(self, caller: Address, claim: Claim, commitment: bytes) -> None:
        entry = self._live(claim, Phase.SEEDED, Phase.ACCEPTED)
        terms = self.job(claim.job_id).view.terms
        require(caller in entry.votes, "NotHolder", "not drawn")
        require(entry.votes[caller].commitment == ZERO_DIGEST, "WrongPhase", "already voted")
        require(entry.status.phase == Phase.SEEDED, "WrongPhase")
        require(self.time <= entry.status.since + terms.vote_time, "TooLate")
        self.lock(caller, Role.VERIFIER, terms.verifier_stake)
        entry.votes[caller] = replace(entry.votes[caller], commitment=commitment)

    def vote_commitment(
        self, claim_id: bytes, who: Address, valid: bool, traces: bytes, salt: bytes
    ) -> bytes:
        return sha256(b"vote" + claim_id + who.encode() + bytes([valid]) + traces + salt).digest()

    def reveal_vote(
        self, caller: Address, claim: Claim, valid: bool, traces: Sequence[bytes], salt: bytes
    ) -> None:
        entry = self._live(claim, Phase.SEEDED)
        terms = self.job(claim.job_id).view.terms
        vote = entry.votes.get(caller)
        require(vote is not None and vote.commitment != ZERO_DIGEST and not vote.revealed, "WrongPhase")
        assert vote is not None
        all_in = all(v.commitment != ZERO_DIGEST for v in entry.votes.values())
        require(all_in or self.time > entry.status.since + terms.vote_time, "NotDue")
        require(self.time <= entry.status.since + terms.vote_time + terms.reveal_time, "TooLate")
        require(not valid or len(traces) == terms.samples, "WrongReveal")
        root = trees.root(traces) if traces else ZERO_DIGEST
        expected = self.vote_commitment(entry.claim_id, caller, valid, root, salt)
        require(vote.commitment == expected, "WrongReveal")
        entry.votes[caller] = replace(vote, revealed=True, valid=valid, traces_root=root)
        entry.traces[caller] = tuple(traces)
        counted = {"revealed": entry.status.revealed + 1, "valid": entry.status.valid + int(valid)}
        self._set(entry, **counted)

    def tally(self, claim: Claim) -> None:
        entry = self._live(claim, Phase.SEEDED)
        terms, status = self.job(claim.job_id).view.terms, entry.status
        if status.valid >= terms.quorum:
            self._set(entry, phase=Phase.ACCEPTED, since=self.time)
            return
        over = self.time > status.since + terms.vote_time + terms.reveal_time
        require(over or all(v.revealed for v in entry.votes.values()), "NotDue")
        for vote in entry.votes.values():
            if vote.commitment != ZERO_DIGEST:
                self.unlock(vote.verifier, Role.VERIFIER, terms.verifier_stake)
                if not vote.revealed:
                    self.burned += self.slash(vote.verifier, Role.VERIFIER, terms.miss_penalty)
        entry.votes = {}
        self._set(
            entry,
            phase=Phase.COMMITTED,
            since=self.time,
            seed_block=self.block + terms.seed_delay,
            draws=status.draws + 1,
            seed=ZERO_DIGEST,
        )

    def _end_votes(self, entry: Entry, terms: Terms) -> None:
        for vote in entry.votes.values():
            if vote.commitment != ZERO_DIGEST:
                self.unlock(vote.verifier, Role.VERIFIER, terms.verifier_stake)

    def settle(self, claim: Claim) -> None:
        entry = self._live(claim, Phase.ACCEPTED)
        job = self.job(claim.job_id)
        terms = job.view.terms
        require(self.time > entry.status.since + terms.challenge_window, "NotDue")
        require(entry.status.open_games == 0, "GamesOpen")
        if claim.kind == Kind.TASK:
            require(job.view.progress.settled_rounds == claim.round, "EarlierUnsettled")
        else:
            for k in range(terms.shards):
                task = self.current(claim.job_id, Kind.TASK, claim.round, k)
                settled = task is not None and task.status.phase == Phase.SETTLED
                require(settled, "EarlierUnsettled")
        fees = [v.verifier for v in entry.votes.values() if v.revealed and v.valid]
        paid = claim.price + len(fees) * terms.verifier_fee
        self.credit(claim.claimant, claim.price)
        for verifier in fees:
            self.credit(verifier, terms.verifier_fee)
        self._update(job, escrow=job.view.escrow - paid)
        self.unlock(claim.claimant, Role.SOLVER, terms.solver_stake)
        self._end_votes(entry, terms)
        self._set(entry, phase=Phase.SETTLED, since=self.time)
        if claim.kind == Kind.OUTER:
            self._update(job, settled_rounds=claim.round + 1)

    def void(self, claim: Claim) -> None:
        entry = self.entry(claim)
        require(self.stale(entry), "NotStale")
        job = self.job(claim.job_id)
        self.unlock(claim.claimant, Role.SOLVER, job.view.terms.solver_stake)
        self._end_votes(entry, job.view.terms)
        at = settlement.position(claim.kind, claim.round)
        rewind = next(e for e in range(claim.epoch, len(job.rewinds)) if at > job.rewinds[e])
        if claim.kind == Kind.TASK and claim.claimant != self.convicts(job, rewind):
            share, job.pots[rewind] = job.pots[rewind].take(claim.price)
            self.credit(claim.claimant, share)
        self._set(entry, phase=Phase.VOID, since=self.time)

    def convicts(self, job: Job, rewind: int) -> Address:
        convicted = [e for e in self.claims.values() if e.status.phase == Phase.CONVICTED]
        mine = [e for e in convicted if e.claim.job_id == job.view.job_id]
        return sorted(mine, key=lambda e: e.status.since)[rewind].claim.claimant

    def convict(self, entry: Entry, challenger: Address) -> None:
        """Rules 5.1 and 5.2."""
        claim, job = entry.claim, self.job(entry.claim.job_id)
        terms = job.view.terms
        at = settlement.position(claim.kind, claim.round)
        self.unlock(claim.claimant, Role.SOLVER, terms.solver_stake)
        self._end_votes(entry, terms)
        taken = [self.slash(claim.claimant, Role.SOLVER, terms.solver_stake)]
        passed = [v.verifier for v in entry.votes.values() if v.revealed and v.valid]
        taken += [self.slash(v, Role.VERIFIER, terms.verifier_stake) for v in passed]
        wasted = [
            e.claim.price
            for e in self.claims.values()
            if e.claim.job_id == claim.job_id
            and e.claim.kind == Kind.TASK
            and e.status.phase in LIVE
            and not self.stale(e)
            and settlement.position(e.claim.kind, e.claim.round) > at
            and e.claim.claimant != claim.claimant
        ]
        verdict = settlement.conviction(taken, Wei(sum(wasted)))
        self.burned += verdict.burned
        self.credit(challenger, verdict.reward)
        pot = settlement.CompensationPot(
            verdict.compensation, Wei(sum(wasted)), verdict.compensation, Wei(sum(wasted))
        )
        job.pots.append(pot)
        job.rewinds.append(at)
        self._set(entry, phase=Phase.CONVICTED, since=self.time)
        progress = job.view.progress
        self._update(job, round=at // 2, epoch=progress.epoch + 1, round_start=self.time)
        if progress.halted:
            self._update(job, final_round=min(progress.final_round, at // 2 + 1))
        if claim.kind == Kind.TASK:
            self._reopen(job, claim.shard)

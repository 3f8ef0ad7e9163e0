"""Chooses the next action of a twin run: useful events, disputes, and nonsense.

Contract: `Player.step` does one thing in twin and chain. Useful events are what honest and lying participants
would do now. Disputes open games and play them with random content. Nonsense calls entry points with any
values and is mostly refused, by twin and chain alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from assay.dispute.evidence import node_proof
from assay.program.isa import Program
from assay.protocol import dispute, sampling
from assay.protocol.demands import Asked, Chunk, StateLeaf
from assay.protocol.game_state import INPUT_SEGMENT
from assay.protocol.loops import Byte, FromClaim, FromGenesis, source_of
from assay.protocol.params import CHUNKS, shard_price, worst_case
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Business,
    Claim,
    ClaimId,
    Consent,
    JobId,
    Kind,
    Phase,
    Role,
    Seconds,
    Wei,
)
from spec import events as e
from spec.claim_state import ClaimState, Said
from spec.clock import Job
from spec.ledger import free
from spec.lifecycle import Refused, transition
from spec.market_state import MarketState, Moment
from tests.twin.deployed import ACCOUNTS, ITS_OWN
from tests.twin.games import game_moves
from tests.twin.nonsense import nonsense
from tests.twin.scene import INNER, Scene, program_of

PLAYERS = ACCOUNTS[1:]
ROOTS = (b"\x07" * 32, b"\x08" * 32)
"""Roots that finders announce: few enough that some agree."""
BENT: list[dict[str, Any]] = [
    {"state_proof": ()},
    {"ref": 0},
    {"ref_proof": ()},
    {"trace_proof": (bytes(32),)},
    {"data": b"something else"},
    {"leaf_proof": (bytes(32),)},
    {"node_proof": ()},
]
"""Faults of a claim about a vote's trace."""
Doing = tuple[e.Event, Address]


class Driven(Protocol):
    """Target of a player: twin and chain side by side (`Twin`), or the pure market alone."""

    market_state: MarketState
    time: Seconds
    block: int
    accepted: Counter[str]

    def act(self, event: e.Event, by: Address, after_s: int = 1) -> bool:
        """One event; whether it was accepted."""

    def wait(self, seconds: int, blocks: int = 1) -> None:
        """Empty blocks."""


class Player:
    """Drives one run."""

    def __init__(self, twin: Driven, rng: random.Random) -> None:
        self.twin, self.rng = twin, rng
        self.scene = Scene(rng)
        self.findings: list[tuple[e.Event, Address]] = []
        self.nonce = 0

    # -- one step

    def step(self, kind: str) -> None:
        """Do one thing of this kind, or wait if there is nothing of it to do."""
        kinds: dict[str, Callable[[], list[Doing]]] = {
            "useful": self.useful,
            "dispute": self.disputes,
            "money": self.money,
            "job": self.job_events,
            "demand": self.demands,
            "operator": self.operators,
            "nonsense": self.nonsense,
        }
        if self.twin.market_state.guardian.paused and self.rng.random() < 0.3:
            kind = "operator"
        doings = kinds[kind]() if kind in kinds else []
        if kind in ("useful", "dispute", "demand") and self.rng.random() < 0.9:
            doings = [doing for doing in doings if self._welcome(*doing)]
        if not doings:
            self.wait()
            return
        event, by = self.rng.choice(doings)
        if kind == "nonsense" and self.rng.random() < 0.5:
            by = self.rng.choice(PLAYERS)
        accepted = self.twin.act(event, by, self.rng.choice([1, 1, 1, 2]))
        self._remember(event, by, accepted)

    def _welcome(self, event: e.Event, by: Address) -> bool:
        """Whether the pure rules would accept it in the next block."""
        if isinstance(event, e.RecordSeed):
            digest = self.rng.randbytes(32)
            event = replace(event, block_hash=digest, header=e.Header(digest, digest))
        try:
            transition(
                self.twin.market_state, event, by, Moment(Seconds(self.twin.time + 1), self.twin.block + 1)
            )
        except Refused:
            return False
        return True

    def _remember(self, event: e.Event, by: Address, accepted: bool) -> None:
        if isinstance(event, e.Commit) and accepted and event.claim.kind == Kind.OUTER:
            present = len(list(self.twin.market_state.tasks(event.claim.job_id, event.claim.round)))
            if present < self.twin.market_state.jobs[event.claim.job_id].terms.shards:
                self.twin.accepted["(closed without a shard)"] += 1
        if isinstance(event, e.Commit | e.Settle) and accepted:
            self._count_slices(event)
        if isinstance(event, e.Play) and accepted:
            move = event.move
            if isinstance(move, dispute.RevealSteps):
                self.scene.steps[event.game_id] = move.roots
            if isinstance(move, dispute.RevealTrace):
                self.scene.children[move.trace_root] = move.children
            if isinstance(move, dispute.Split):
                self.scene.children[event.game.digest] = move.children

    def _count_slices(self, event: e.Commit | e.Settle) -> None:
        """Counts events that only a round of several outer claims has."""
        market, claim = self.twin.market_state, event.claim
        if claim.kind == Kind.TASK or market.jobs[claim.job_id].terms.slices == 1:
            return
        others = [each.claim for each in market.slices(claim.job_id, claim.round)]
        if isinstance(event, e.Settle):
            self.twin.accepted["(slice settled)"] += 1
        elif len({each.rewinds for each in others}) > 1:
            self.twin.accepted["(slice beside one that a rewind left)"] += 1
        else:
            self.twin.accepted["(slice)"] += 1

    def wait(self) -> None:
        """To just before, at or just after some deadline, or a few blocks."""
        due = [t for t in self._deadlines() if t > self.twin.time]
        if due and self.rng.random() < 0.7:
            seconds = self.rng.choice(due) - self.twin.time + self.rng.choice([-1, 0, 1])
        else:
            seconds = self.rng.choice([2, 10])
        self.twin.wait(max(1, seconds), self.rng.choice([1, 2]))
        ticked = self.twin.market_state.ticks.ticked
        if any(ticked <= due < self.twin.time for due in self._deadlines()) and self.rng.random() < 0.7:
            self.twin.act(e.Tick(), self.rng.choice(PLAYERS))
            if self.rng.random() < 0.5:
                self.twin.wait(*[self.twin.market_state.ticks.lag] * 2)

    def _deadlines(self) -> list[int]:
        found: list[int] = [challenge.game.deadline for challenge in self.twin.market_state.games.values()]
        found += [made.deadline for made in self.twin.market_state.demands.values()]
        for job in self.twin.market_state.jobs.values():
            found.append(max(job.round_start, job.last_shard_claim) + job.terms.task_time)
            ends = [job.waits_until, max(job.accepted_at, job.round_start)]
            found += [ends[0], *(end + job.terms.outer_time for end in ends)]
        for state in self.twin.market_state.claims.values():
            terms, since = self._job(state).terms, state.status.since
            if state.status.phase == Phase.SEEDED:
                found.append(since + terms.vote_time)
            fallen = state.status.phase == Phase.CONVICTED
            if state.pending or (fallen and (state.voted() or state.overtaken)):
                found.append(since + terms.challenge_window)
            if state.status.phase == Phase.ACCEPTED:
                found.append(state.window_end(terms))
        bindings = self.twin.market_state.keys.bindings.values()
        found += [binding.due for binding in bindings if binding.due is not None]
        found += [
            request.due
            for entry in self.twin.market_state.funds.accounts.values()
            for request in entry.requests
        ]
        return [int(time) for time in found]

    # -- useful

    def useful(self) -> list[Doing]:
        """The market's ordinary business."""
        doings: list[Doing] = []
        if not self.twin.market_state.jobs:
            return [self.posting()]
        for job_id, job in self.twin.market_state.jobs.items():
            doings += self._shard_work(job_id, job)
        for claim_id, state in self.twin.market_state.claims.items():
            doings += self._claim_work(claim_id, state)
        return doings

    def posting(self) -> Doing:
        """A new job."""
        self.nonce += 1
        client = self.rng.choice(PLAYERS)
        terms = self.scene.terms(client, self.nonce)
        budget = Wei(max(worst_case(terms) + self.rng.choice([0, 0, 5, -1]), 0))
        return e.Post(terms, budget), client

    def _shard_work(self, job_id: JobId, job: Job) -> list[Doing]:
        if not job.begun:
            return [(e.Close(job_id), self.rng.choice(PLAYERS))] if not job.closed else []
        doings: list[Doing] = [(e.Close(job_id), self.rng.choice(PLAYERS))] if job.halted else []
        if self.twin.market_state.closable(job_id, self.twin.time):
            doings += [self._outer(job_id, job)] * 2
        for number, shard in enumerate(job.shards):
            if shard.solver == ZERO_ADDRESS:
                price = shard_price(job.terms, shard.opened_at, Seconds(self.twin.time))
                least = Wei(max(price + self.rng.choice([-1, 0, 0, 0, 1]), 0))
                doings.append((e.TakeShard(job_id, number, least), self.rng.choice(PLAYERS)))
            elif self._claim((job_id, Kind.TASK, job.round, number)) is None:
                doings.append(self._task(job_id, job, number, shard.solver))
        return doings

    def _claim(self, place: tuple[JobId, Kind, int, int]) -> Claim | None:
        current = self.twin.market_state.current(place, self.twin.time)
        return None if current is None else self.twin.market_state.claims[current].claim

    def _task(self, job_id: JobId, job: Job, shard: int, solver: Address) -> Doing:
        input_root = job.terms.genesis_root
        if job.round:
            input_root = self._input(job_id, job, Kind.TASK, shard)
        return self._commit(job_id, job, Kind.TASK, shard, input_root), solver

    def _input(self, job_id: JobId, job: Job, kind: Kind, shard: int) -> bytes:
        """A state whose slots are what their links say, sometimes with one wrong slot."""

        def stands(round_: int, other: int) -> bool:
            if round_ == job.round:
                return self._summed(job_id, job, other) is not None
            return self._claim((job_id, Kind.TASK, round_, other)) is not None

        given: dict[int, bytes] = {}
        for slot in range(job.terms.slots_of(kind)):
            found = source_of(job.terms, kind, job.round, shard, slot, stands)
            if isinstance(found, Byte):
                given[slot] = bytes([found.value])
            elif isinstance(found, FromGenesis):
                first, _ = self.scene.genesis(job.terms, kind, shard)
                given[slot] = self.scene.states[first][found.slot]
            elif (claim := self._claim((job_id, *found.place))) is not None:
                given[slot] = self.scene.states[claim.output_root][found.slot]
        if self.rng.random() < 0.2:
            given.pop(self.rng.randrange(job.terms.slots_of(kind)), None)
        return self.scene.state(program_of(job.terms, kind), given)

    def _outer(self, job_id: JobId, job: Job) -> Doing:
        slices = range(job.terms.slices)
        missing = [s for s in slices if self._claim((job_id, Kind.OUTER, job.round, s)) is None]
        number = self.rng.choice(missing or slices)
        input_root = self._input(job_id, job, Kind.OUTER, number)
        owner = job.shards[(job.round + number) % job.terms.shards].solver
        by = self.rng.choice(PLAYERS) if owner == ZERO_ADDRESS or self.rng.random() < 0.4 else owner
        return self._commit(job_id, job, Kind.OUTER, number, input_root), by

    def _summed(self, job_id: JobId, job: Job, shard: int) -> Claim | None:
        """The shard's accepted task of the present round."""
        claim_id = self.twin.market_state.current((job_id, Kind.TASK, job.round, shard), self.twin.time)
        state = None if claim_id is None else self.twin.market_state.claims[claim_id]
        return None if state is None or state.pending else state.claim

    def _commit(self, job_id: JobId, job: Job, kind: Kind, shard: int, input_root: bytes) -> e.Commit:
        claim = self.scene.claim(job_id, job.terms, kind, job.round, shard, input_root)
        tree = self.scene.segments[claim.segments_root]
        seen = job.rewinds_so_far + self.rng.choice([0] * 18 + [-1, 1])
        return e.Commit(replace(claim, rewinds=max(seen, 0)), tuple(tree.levels[0]))

    def _claim_work(self, claim_id: ClaimId, state: ClaimState) -> list[Doing]:
        claim, phase = state.claim, state.status.phase
        anyone = self.rng.choice(PLAYERS)
        doings: list[Doing] = []
        if state.live and not self.twin.market_state.stands(state, self.twin.time):
            doings.append((e.Void(claim), anyone))
        if phase == Phase.CONVICTED and (state.voted() or state.overtaken):
            doings.append((e.FreeSeats(claim), anyone))
        if phase == Phase.COMMITTED and self.twin.block >= state.status.seed_block:
            doings.append((e.RecordSeed(claim, ZERO_DIGEST, ITS_OWN), anyone))
        if phase == Phase.SEEDED:
            doings += self._vote_work(claim_id, state)
            doings.append((e.Tally(claim), anyone))
        if phase == Phase.ACCEPTED:
            doings.append((e.Settle(claim), anyone))
        return doings

    def _vote_work(self, claim_id: ClaimId, state: ClaimState) -> list[Doing]:
        doings: list[Doing] = []
        for ballot in state.silent():
            abstains = self.rng.random() < 0.15
            vote = e.Abstain(state.claim) if abstains else self._vote(claim_id, state, ballot.verifier)
            doings.append((vote, ballot.verifier))
        return doings * 2

    def _vote(self, claim_id: ClaimId, state: ClaimState, verifier: Address) -> e.Vote:
        valid = self.rng.random() < 0.8
        key = sampling.verifier_key(verifier, state.status.seed)
        terms = self._job(state).terms
        drawn = sampling.sample_segments(state.status.seed, verifier, terms.loops)
        drawn = drawn if self.rng.random() < 0.95 else [*drawn, 0]
        if not valid and self.rng.random() < 0.95:
            return e.Vote(claim_id, state.status.seed, valid, ())
        ends = self.scene.segments[state.claim.segments_root].levels[0]
        states = [ends[segment + 1] if self.rng.random() < 0.6 else None for segment in drawn]
        traces = self.scene.attested([self.scene.trace(INNER, key, state) for state in states])
        return e.Vote(claim_id, state.status.seed, valid, traces)

    # -- disputes

    def disputes(self) -> list[Doing]:
        """A move in an open game, a finding announced before, or a new finding."""
        doings: list[Doing] = []
        for game_id, challenge in self.twin.market_state.games.items():
            moves = game_moves(self.scene, game_id, challenge.game, self.rng, self.twin.time)
            doings += [(e.Play(game_id, challenge.game, move), by) for move, by in moves] * 2
        if self.findings and self.rng.random() < 0.8:
            doings += [self.findings.pop(self.rng.randrange(len(self.findings)))] * 3
        doings += self._shares()
        live = [state for state in self.twin.market_state.claims.values() if state.live]
        live += [state for state in self.twin.market_state.claims.values() if self._fallen_votes(state)]
        if live and self.rng.random() < (0.4 if doings else 1.0):
            disputed = [state for state in live if state.status.open_games]
            found = self._finding(self.rng.choice(disputed if disputed and self.rng.random() < 0.4 else live))
            doings += [found] if found else []
        return doings

    def _shares(self) -> list[Doing]:
        """Rewards that wait, paid because all findings agree, or by a claim of the same place."""
        doings: list[Doing] = []
        for claim_id, state in self.twin.market_state.claims.items():
            if state.winner == ZERO_ADDRESS:
                continue
            by, fallen = self.rng.choice(PLAYERS), state.claim
            doings += [(e.ShareAlike(claim_id, state.kept), by)] * 2
            places = self.twin.market_state.places
            other = places.get((fallen.job_id, fallen.kind, fallen.round, fallen.shard), claim_id)
            settled = self.twin.market_state.claims[other].claim
            roots = [tuple(self.scene.segments[each.segments_root].levels[0]) for each in (fallen, settled)]
            found = state.kept if self.rng.random() < 0.8 else state.kept[1:]
            doings.append((e.Share(fallen, roots[0], settled, roots[1], found), by))
            doings.append((e.ShareWon(fallen, found), by))
        return doings

    def _fallen_votes(self, state: ClaimState) -> bool:
        """Whether the claim fell with a valid vote that still answers for itself."""
        late = self.twin.time > state.status.since + self._job(state).terms.challenge_window
        return state.status.phase == Phase.CONVICTED and state.status.valid > 0 and not late

    def _finding(self, state: ClaimState) -> Doing | None:
        claim, by, salt = state.claim, self.rng.choice(PLAYERS), self.rng.randbytes(32)
        root = shown = self.rng.choice(ROOTS)
        claim_id = self.twin.market_state.claim_id(claim)
        voters = [ballot.verifier for ballot in state.seats() if ballot.said == Said.VALID]
        tree = self.scene.segments[claim.segments_root]
        choice = self.rng.choice(["segment", "vote", "vote", "binding", "binding", "input"])
        if state.status.phase == Phase.CONVICTED:
            choice = "vote"
        if choice == "vote" and voters:
            verifier = self.rng.choice(voters)
            disprove = self.rng.random() < 0.5
            event = (self._disproof if disprove else self._vote_finding)(state, verifier, salt)
            where, who = event.sample, verifier
            shown = self._shown_of(event)
            self.findings.append((event, by))
        elif choice == "binding":
            binding = self._binding(claim, root, salt)
            where, who = binding.slot, ZERO_ADDRESS
            shown = self.twin.market_state.binding_root(binding.leaf, root)
            self.findings.append((binding, by))
        elif choice == "input":
            where, who = INPUT_SEGMENT, ZERO_ADDRESS
            self.findings.append((e.OpenInput(claim, root, salt), by))
        else:
            where, who = self.rng.randrange(tree.count - 1), ZERO_ADDRESS
            games = self.twin.market_state.games.values()
            seen = [c.found for c in games if c.found is not None and c.game.claim_id == claim_id]
            seen = [found for found in seen if found.segment != INPUT_SEGMENT]
            if seen and self.rng.random() < 0.8:  # another account that found the same
                where, root = seen[0].segment, seen[0].root
                shown = root
            leaves, proofs = tree.levels[0], [tuple(tree.proof(where + i)) for i in (0, 1)]
            opened = e.Open(claim, where, leaves[where], proofs[0], leaves[where + 1], proofs[1], root, salt)
            self.findings.append((opened, by))
        return e.Announce(claim_id, where, who, shown, salt), by

    def _shown_of(self, event: e.OpenVote | e.ProveVote) -> bytes:
        """The value in place of the root in the announcement; sometimes that of the other kind of finding."""
        if isinstance(event, e.OpenVote) or self.rng.random() < 0.1:
            return ZERO_DIGEST
        return self.twin.market_state.disproof_root(event.place, event.said.data)

    def _vote_finding(self, state: ClaimState, verifier: Address, salt: bytes) -> e.OpenVote:
        terms, claim = self._job(state).terms, state.claim
        sample = self.rng.randrange(terms.samples)
        drawn = sampling.sample_segments(state.status.seed, verifier, terms.loops)
        traces = self.scene.samples[state.ballots[verifier].traces_root]
        tree, at = self.scene.segments[claim.segments_root], drawn[sample]
        start, way = tree.levels[0][at], tuple(tree.proof(at))
        root, proof = traces.levels[0][sample], tuple(traces.proof(sample))
        return e.OpenVote(claim, verifier, sample, start, way, root, proof, salt)

    def _disproof(self, state: ClaimState, verifier: Address, salt: bytes) -> e.ProveVote:
        """A slot's value by the vote's trace; sometimes with a wrong place."""
        terms, claim, rng = self._job(state).terms, state.claim, self.rng
        sample = rng.randrange(terms.samples)
        segment = sampling.sample_segments(state.status.seed, verifier, terms.loops)[sample]
        slot, traces_root = rng.randrange(INNER.slots), state.ballots[verifier].traces_root
        chunk, said = self.scene.against(claim, segment, traces_root, sample, slot)
        if rng.random() < 0.2:
            said = replace(said, **rng.choice(BENT))
        if rng.random() < 0.1:
            chunk = replace(chunk, data=rng.choice([chunk.data + b"x", bytes(len(chunk.data))]))
        return e.ProveVote(claim, verifier, sample, StateLeaf(slot, rng.randrange(3)), chunk, said, salt)

    def _binding(self, claim: Claim, root: bytes, salt: bytes) -> e.ProveBinding:
        mine = self.scene.state_tree(claim.input_root)
        sources = {slot: self._source(claim, slot) for slot in range(mine.count)}
        wrong = [s for s in sources if sources[s][0] != mine.levels[0][s]]
        slot = self.rng.choice(wrong or list(sources))
        theirs, way, source = sources[slot]
        leaf, proof = mine.levels[0][slot], tuple(mine.proof(slot))
        return e.ProveBinding(claim, slot, leaf, proof, source, theirs, way, root, salt)

    def _source(self, claim: Claim, slot: int) -> tuple[bytes, tuple[bytes, ...], Claim | None]:
        """The slot's root where it comes from, its way up, and the claim there; of some state, if that place
        has no claim."""
        terms, job_id = self.twin.market_state.jobs[claim.job_id].terms, claim.job_id

        def stands(round_: int, shard: int) -> bool:
            return self._claim((job_id, Kind.TASK, round_, shard)) is not None

        found = source_of(terms, claim.kind, claim.round, claim.shard, slot, stands)
        if isinstance(found, Byte):
            return found.leaf, (), None
        source = self._claim((job_id, *found.place)) if isinstance(found, FromClaim) else None
        root, above = self.scene.genesis(terms, claim.kind, claim.shard)
        if source is not None:
            root, above = source.output_root, []
        tree = self.scene.state_tree(root)
        at = min(found.slot, tree.count - 1)
        return tree.levels[0][at], (*tree.proof(at), *above), source

    # -- demands

    def demands(self) -> list[Doing]:
        """Answers to open demands, right and wrong, their ends, and new ones."""
        doings: list[Doing] = []
        live = [state for state in self.twin.market_state.claims.values() if state.live]
        for demand_id, made in self.twin.market_state.demands.items():
            claim = self.twin.market_state.claims[made.claim_id].claim
            anyone = self.rng.choice(PLAYERS)
            asked = made if self.rng.random() < 0.9 else self._bent(made)
            if made.deadline < self.twin.time:
                doings += [(e.ExpireDemand(demand_id, asked, claim), anyone)] * 3
            else:
                doings += [(self._supply(demand_id, asked, claim), anyone)] * 2
        if live and self.rng.random() < 0.3:
            state = self.rng.choice(live)
            tree = self.scene.segments[state.claim.segments_root]
            at, shift = self.rng.randrange(tree.count), self.rng.choice([0, 0, 0, 1])
            proof, places = tuple(tree.proof(at)), self._places(state.claim)
            demand = e.Demand(state.claim, at + shift, tree.levels[0][at], proof, places)
            doings.append((demand, self.rng.choice(PLAYERS)))
        return doings

    def _program(self, claim: Claim) -> Program:
        return program_of(self.twin.market_state.jobs[claim.job_id].terms, claim.kind)

    def _places(self, claim: Claim) -> tuple[StateLeaf, ...]:
        """Mostly one to CHUNKS leaves, now and then of a slot too many."""
        slots = self._program(claim).slots + (self.rng.random() < 0.1)
        count = self.rng.choice([0, *range(1, CHUNKS + 1), *range(1, CHUNKS + 1), CHUNKS + 1])
        return tuple(StateLeaf(self.rng.randrange(slots), self.rng.getrandbits(32)) for _ in range(count))

    def _bent(self, made: Asked) -> Asked:
        """Another demand than was made, in one field."""
        others: list[Asked] = [
            replace(made, deadline=Seconds(made.deadline + 1)),
            replace(made, places=made.places + made.places[:1]),
            replace(made, state_root=self.scene.noise(32)),
        ]
        return self.rng.choice(others)

    def _supply(self, demand_id: int, made: Asked, claim: Claim) -> e.Supply:
        """The named pieces as far as they are known, now and then false, or one too few."""
        program = self._program(claim)
        slots = self.scene.states.get(made.state_root)
        chunks = []
        for place in made.places if self.rng.random() < 0.95 else made.places[1:]:
            slot = place.slot
            data = slots[slot] if slots and self.rng.random() < 0.95 else self.scene.noise(16)
            way = self.scene.state_tree(made.state_root).proof(slot) if slots else []
            node, proof = program.nodes[slot].encode(), node_proof(program, slot)
            chunks.append(Chunk(node, proof, data, (), tuple(way)))
        return e.Supply(demand_id, made, claim, tuple(chunks))

    # -- money and jobs

    def money(self) -> list[Doing]:
        """Deposits, stakes, withdrawals of odd amounts."""
        by, rng = self.rng.choice(PLAYERS), self.rng
        funds, role = self.twin.market_state.funds, rng.choice(list(Role))
        unlocked, held = funds.unlocked(by, role), funds.ledger.balance(free(by))
        requests = len(funds.accounts[by, role].requests) if (by, role) in funds.accounts else 0
        due = [
            (e.FinishUnbond(kind, index), who)
            for (who, kind), entry in funds.accounts.items()
            for index, request in enumerate(entry.requests)
            if request.shares and request.due <= self.twin.time
        ]
        return [
            *due,
            (e.Deposit(rng.choice(PLAYERS), Wei(rng.choice([0, 1, 999]))), by),
            (e.Withdraw(by, Wei(rng.choice([0, held // 3, held + 1]))), by),
            (e.Stake(role, Wei(rng.choice([0, 77, 1_500, held + 1]))), by),
            (e.Stake(Role.VERIFIER, Wei(rng.choice([0, 300, 1_500]))), by),
            (e.StartUnbond(role, Wei(rng.choice([0, unlocked, unlocked // 2, unlocked + 1]))), by),
            (e.FinishUnbond(role, rng.randrange(requests + 1)), by),
            (e.Destroy(), by),
            (e.Subscribe(rng.choice([ZERO_DIGEST, *self.twin.market_state.classes])), by),
        ]

    def operators(self) -> list[Doing]:
        """Owners, operators and the pauser of the guardian; what is paused is soon open again."""
        rng, market_state, by = self.rng, self.twin.market_state, self.rng.choice(PLAYERS)
        paused, pauser = market_state.guardian.paused, market_state.guardian.pauser
        pauser = by if pauser == ZERO_ADDRESS else pauser  # pausing was given up
        if paused:
            return [(e.SetPaused(rng.choice(sorted(paused)), False), pauser)]
        owned = [o for o in PLAYERS if market_state.keys.owner_of(o, self.twin.time) != o]
        if not owned or rng.random() < 0.1:
            operator = rng.choice(PLAYERS)
            expiry = Seconds(self.twin.time + rng.choice([-1, 1, 2, 100]))
            owner = rng.choice([by, by, by, operator])
            nonce = market_state.keys.nonce(operator) + rng.choice([0, 0, 0, 1])
            consent = Consent(owner, operator, nonce, Seconds(expiry + rng.choice([0, 0, 0, 1])))
            return [
                (e.Bind(operator, expiry, consent), by),
                (e.SetPaused(rng.choice(list(Business)), True), rng.choice([pauser, pauser, by])),
                (e.HandOver(rng.choice([pauser, ZERO_ADDRESS])), rng.choice([pauser, by])),
                *self._caps(by, rng.choice(list(Role)), by),
            ]
        operator, role = rng.choice(owned), rng.choice(list(Role))
        owner = rng.choice([market_state.keys.owner_of(operator, self.twin.time), by])
        held = market_state.funds.ledger.balance(free(operator))
        requests = market_state.funds.accounts.get((operator, role))
        index = rng.randrange(len(requests.requests) + 1) if requests else 0
        return [
            *[(e.Unbind(operator), owner)] * 2,
            (e.RevokeConsents(), operator),
            (e.Allow(operator, Wei(rng.choice([0, 1000, 10**6]))), owner),
            *self._caps(operator, role, owner),
            (e.Stake(role, Wei(300), operator), owner),
            (e.StartUnbond(role, Wei(50), operator), owner),
            (e.Subscribe(rng.choice(list(self.twin.market_state.classes)), operator), owner),
            (e.FinishUnbond(role, index, operator), owner),
            (e.Withdraw(by, Wei(held // 2), operator), owner),
        ]

    def _caps(self, account: Address, role: Role, owner: Address) -> list[Doing]:
        """Caps about as high as what there is to lock, by the account's owner or somebody."""
        rng, most = self.rng, [0, 40, 400, 1_500, 5_000]
        whom = rng.choice([*PLAYERS, *(job.terms.client for job in self.twin.market_state.jobs.values())])
        client = rng.choice([whom, whom, whom, ZERO_ADDRESS])
        return [
            (e.Cap(account, role, Wei(rng.choice(most)), Wei(rng.choice(most))), owner),
            (e.CapClient(account, role, client, Wei(rng.choice(most))), owner),
        ]

    def job_events(self) -> list[Doing]:
        """Occasional events of clients and holders."""
        doings = [self.posting()] if len(self.twin.market_state.jobs) < 2 else []
        for job_id, job in self.twin.market_state.jobs.items():
            anyone, shard = self.rng.choice(PLAYERS), self.rng.randrange(job.terms.shards)
            doings.append((e.TopUp(job_id, Wei(self.rng.choice([0, 3]))), anyone))
            doings.append((e.Expire(job_id, shard), anyone))
            doings.append((e.Close(job_id), anyone))
            if self.rng.random() < 0.3:
                doings.append((e.Halt(job_id), job.terms.client))
            if job.shards[shard].solver != ZERO_ADDRESS and self.rng.random() < 0.5:
                doings.append((e.Release(job_id, shard), job.shards[shard].solver))
        return doings

    def nonsense(self) -> list[Doing]:
        """Any call with any known values."""
        by = self.rng.choice(PLAYERS)
        events = nonsense(self.scene, self.twin.market_state, self.rng, by)
        claims = [state.claim for state in self.twin.market_state.claims.values()]
        if claims:
            events.append(self._binding(self.rng.choice(claims), ROOTS[0], self.rng.randbytes(32)))
        return [(event, by) for event in events]

    def _job(self, state: ClaimState) -> Job:
        return self.twin.market_state.jobs[state.claim.job_id]

"""A job of two shards, played event by event on the pure market."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from eth_utils.crypto import keccak

from assay.protocol import sampling
from assay.protocol.demands import StateLeaf
from assay.protocol.dispute import Move, RevealSteps, Split, Timeout
from assay.protocol.game_state import INPUT_SEGMENT, GamePhase
from assay.protocol.params import worst_case
from assay.protocol.trees import depth
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    JobId,
    Kind,
    Phase,
    Role,
    Seconds,
    Terms,
    Wei,
)
from spec import events as e
from spec.evidence import ARITHMETIC
from spec.ledger import free
from spec.lifecycle import (
    Deployment,
    MarketState,
    Moment,
    Refused,
    new_market_state,
    transition,
)
from tests.fakes.classes import WIDE, conditions_of, of_its_class
from tests.fakes.shapes import one_loop_each
from tests.property.markets import TERMS
from tests.twin.deployed import ACCOUNTS
from tests.twin.scene import INNER, OUTERS, Scene, reference

CLIENT, ANN, BOB, VERA, WHISTLER = ACCOUNTS[1:6]
EVERYBODY = (CLIENT, ANN, BOB, VERA, WHISTLER)
SALT = b"s" * 32
ROOT = b"r" * 32
NOBODYS = JobId(b"\x00" * 32)


@dataclass
class Story:
    """A job of two shards and three rounds, played event by event."""

    market_state: MarketState
    scene: Scene
    job_id: JobId = NOBODYS
    time: int = 1_000
    block: int = 10

    def tell(self, event: e.Event, by: Address, after_s: int = 1) -> None:
        self.time, self.block = self.time + after_s, self.block + 3
        self.market_state = transition(self.market_state, event, by, Moment(Seconds(self.time), self.block))

    def run_out(self, seconds: int) -> None:
        """Lets so many seconds pass, and the deadlines in them (rule 7.4)."""
        self.tell(e.Tick(), BOB, seconds)
        self.rest(self.market_state.ticks.lag)

    def rest(self, blocks: int, seconds: int = 0) -> None:
        """Mines so many empty blocks, by default one a second."""
        self.time, self.block = self.time + (seconds or blocks), self.block + blocks

    def refuse(self, event: e.Event, by: Address, after_s: int = 1) -> str:
        with pytest.raises(Refused) as caught:
            self.tell(event, by, after_s)
        return caught.value.error

    def commit(self, kind: Kind, shard: int, by: Address, input_root: bytes | None = None) -> ClaimId:
        """A claim of a random state, from this one or from one at random."""
        event = self.committing(kind, shard, input_root)
        self.tell(event, by)
        return self.market_state.places[self.job_id, kind, event.claim.round, shard]

    def committing(self, kind: Kind, shard: int, input_root: bytes | None = None) -> e.Commit:
        """The same, to be told."""
        job = self.market_state.jobs[self.job_id]
        genesis = job.terms.genesis_root if kind == Kind.TASK else job.terms.outer_genesis_root
        program = INNER if kind == Kind.TASK else OUTERS[2]
        input_root = input_root or (genesis if job.round == 0 else self.scene.state(program))
        claim = self.scene.claim(self.job_id, job.terms, kind, job.round, shard, input_root)
        claim = replace(claim, rewinds=job.rewinds_so_far)
        tree = self.scene.segments[claim.segments_root]
        return e.Commit(claim, tuple(tree.levels[0]))

    def seed(self, claim_id: ClaimId) -> None:
        digest = keccak(claim_id)
        claim = self.market_state.claims[claim_id].claim
        self.tell(e.RecordSeed(claim, digest, e.Header(digest, keccak(digest))), WHISTLER)

    def vote(self, claim_id: ClaimId, valid: bool = True, honest: bool = False) -> None:
        """Vera's: of an invented trace, or of one that gives the claim's state."""
        state = self.market_state.claims[claim_id]
        key = sampling.verifier_key(VERA, state.status.seed)
        end = state.claim.output_root if honest else None
        traces = self.scene.attested([self.scene.trace(INNER, key, end)]) if valid else ()
        self.tell(e.Vote(claim_id, state.status.seed, valid, traces), VERA)

    def accept(self, claim_id: ClaimId, valid: bool = True, honest: bool = False) -> ClaimId:
        self.seed(claim_id)
        self.vote(claim_id, valid, honest)
        self.tell(e.Tally(self.claim(claim_id)), WHISTLER)
        return claim_id

    def claim(self, claim_id: ClaimId) -> Claim:
        return self.market_state.claims[claim_id].claim

    def stands(self, claim_id: ClaimId) -> bool:
        return self.market_state.stands(self.market_state.claims[claim_id], Seconds(self.time))

    @property
    def terms(self) -> Terms:
        return self.market_state.jobs[self.job_id].terms

    @property
    def burnt(self) -> int:
        return self.market_state.funds.ledger.burnt

    def worth_of(self, account: Address) -> int:
        """All that the account has."""
        funds = self.market_state.funds
        return self.free(account) + sum(funds.active(account, r) + funds.unbonding(account, r) for r in Role)

    def challenge(self, claim_id: ClaimId, by: Address = WHISTLER, root: bytes = ROOT) -> int:
        self.tell(e.Announce(claim_id, 0, ZERO_ADDRESS, root, SALT), by)
        self.tell(self.opening(claim_id, root), by)
        return self.market_state.games_opened

    def opening(self, claim_id: ClaimId, root: bytes = ROOT) -> e.Open:
        """Of a game about the claim's first segment."""
        claim = self.claim(claim_id)
        tree = self.scene.segments[claim.segments_root]
        first, second = tree.levels[0][:2]
        proofs = tuple(tree.proof(0)), tuple(tree.proof(1))
        return e.Open(claim, 0, first, proofs[0], second, proofs[1], root, SALT)

    def challenge_input(self, claim_id: ClaimId, by: Address = WHISTLER, root: bytes = ROOT) -> int:
        self.tell(e.Announce(claim_id, INPUT_SEGMENT, ZERO_ADDRESS, root, SALT), by)
        self.tell(e.OpenInput(self.claim(claim_id), root, SALT), by)
        return self.market_state.games_opened

    def answer(self, game_id: int) -> Move:
        """The defender's first move; then it is the challenger's turn."""
        answer = self.answering(game_id)
        self.tell(answer, answer.game.defender)
        return answer.move

    def answering(self, game_id: int) -> e.Play:
        """The defender's first move."""
        game = self.market_state.games[game_id].game
        move: Move = RevealSteps(tuple(self.scene.state(INNER) for _ in range(game.steps - 1)))
        if game.phase == GamePhase.SPLIT_OUTPUT:
            leaves = self.scene.state_tree(game.digest).levels[0]
            move = Split((*leaves, *[ZERO_DIGEST] * ((1 << depth(len(leaves))) - len(leaves))))
        return e.Play(game_id, game, move)

    def binding(self, claim_id: ClaimId) -> e.ProveBinding:
        """Proof that the task's second slot differs from the output of its shard's last task; announced."""
        claim = self.claim(claim_id)
        source = self.claim(self.market_state.places[self.job_id, Kind.TASK, claim.round - 1, claim.shard])
        mine, theirs = (self.scene.state_tree(root) for root in (claim.input_root, source.output_root))
        shown = self.market_state.binding_root(mine.levels[0][1], ROOT)
        self.tell(e.Announce(claim_id, 1, ZERO_ADDRESS, shown, SALT), WHISTLER)
        leaves = (mine.levels[0][1], tuple(mine.proof(1))), (theirs.levels[0][1], tuple(theirs.proof(1)))
        return e.ProveBinding(claim, 1, *leaves[0], source, *leaves[1], ROOT, SALT)

    def demand(self, claim_id: ClaimId) -> e.Demand:
        """For a leaf of the claim's input."""
        claim = self.claim(claim_id)
        tree = self.scene.segments[claim.segments_root]
        return e.Demand(claim, 0, tree.levels[0][0], tuple(tree.proof(0)), (StateLeaf(0, 0),))

    def challenge_vote(self, claim_id: ClaimId) -> int:
        self.tell(e.Announce(claim_id, 0, VERA, ZERO_DIGEST, SALT), WHISTLER)
        self.tell(self.opening_of_vote(claim_id), WHISTLER)
        return self.market_state.games_opened

    def opening_of_vote(self, claim_id: ClaimId) -> e.OpenVote:
        """Of a game about Vera's vote."""
        state = self.market_state.claims[claim_id]
        traces = self.scene.samples[state.ballots[VERA].traces_root]
        tree = self.scene.segments[state.claim.segments_root]
        start, way = tree.levels[0][0], tuple(tree.proof(0))
        return e.OpenVote(state.claim, VERA, 0, start, way, traces.root, (), SALT)

    def disproof(self, claim_id: ClaimId, slot: int) -> e.ProveVote:
        """Proof that Vera's trace gives another value for the slot; not announced."""
        state = self.market_state.claims[claim_id]
        (segment,) = sampling.sample_segments(state.status.seed, VERA, self.terms.loops)
        root = state.ballots[VERA].traces_root
        committed, said = self.scene.against(state.claim, segment, root, 0, slot)
        return e.ProveVote(state.claim, VERA, 0, StateLeaf(slot, 0), committed, said, SALT)

    def announce_disproof(self, claim_id: ClaimId, proof: e.ProveVote) -> None:
        shown = self.market_state.disproof_root(proof.place, proof.said.data)
        self.tell(e.Announce(claim_id, proof.sample, proof.verifier, shown, SALT), WHISTLER)

    def silence(self, game_id: int) -> None:
        """Lets the clock of the player to move run out."""
        game = self.market_state.games[game_id].game
        self.run_out(game.move_time + 2)
        self.tell(e.Play(game_id, game, Timeout()), BOB)

    def free(self, account: Address) -> int:
        return self.market_state.funds.ledger.balance(free(account))

    def phase(self, claim_id: ClaimId) -> Phase:
        return self.market_state.claims[claim_id].status.phase

    def locked(self) -> int:
        return sum(self.market_state.funds.locked(a, r) for a in (ANN, BOB, VERA) for r in Role)


def begin(**changes: Any) -> Story:
    """Ann and Bob hold a shard each; Vera is the only verifier."""
    market = Deployment(1, ZERO_ADDRESS, Seconds(500), Seconds(800), 1, keccak, ARITHMETIC, WIDE)
    wallets = {account: Wei(10**6) for account in EVERYBODY}
    return begun(Story(new_market_state(market, wallets), Scene(random.Random(1))), **changes)


T = TypeVar("T", bound=Story)


def begun(told: T, **changes: Any) -> T:
    """With the job posted and its shards taken."""
    scene = told.scene
    terms = replace(
        TERMS,
        client=CLIENT,
        genesis_root=scene.state(INNER),
        outer_genesis_root=scene.state(OUTERS[2]),
        rounds=3,
        verifiers=1,
        max_unsettled=2,
        task_time=Seconds(20_000),
        challenge_window=Seconds(100_000),
        price_period=Seconds(10_000),
        price_cap=Wei(150),
        solver_stake=Wei(1_001),
        **one_loop_each(reference(INNER), reference(OUTERS[2]), 2, 4, 4, 1),
    )
    terms = of_its_class(replace(terms, **changes))
    told.tell(e.Register(conditions_of(terms)), CLIENT)
    told.tell(e.Subscribe(terms.class_id), VERA)
    for account in EVERYBODY:
        told.tell(e.Deposit(account, Wei(100_000)), account)
    for solver in (ANN, BOB):
        told.tell(e.Stake(Role.SOLVER, Wei(5_000)), solver)
    told.tell(e.Stake(Role.VERIFIER, Wei(5_000)), VERA)
    told.tell(e.Post(terms, worst_case(terms)), CLIENT)
    told.job_id = told.market_state.job_id(terms)
    told.tell(e.TakeShard(told.job_id, 0, Wei(0)), ANN)
    told.tell(e.TakeShard(told.job_id, 1, Wei(0)), BOB, 7_000)
    return told

"""A round of three members on a real local chain, with a model: training, signatures, commits, pay.

And a member that lied, convicted by its own stage's program in a game, move by move.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.consent import sign_transcript
from assay.chain.contracts.game_calls import call_of
from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.records import unpack, unpack_game
from assay.chain.eth.abi import MalformedData
from assay.chain.eth.anvil import dev_account
from assay.chain.eth.rpc import HttpRpc
from assay.compute.inline import InlinePool
from assay.compute.member import Segment, TrainStage
from assay.dispute.disputant import Disputant
from assay.dispute.replay import Replay
from assay.node.job_programs import program_ref
from assay.program.execute import StepContext
from assay.program.fault import StateFault
from assay.program.record_excerpt import steps_of
from assay.program.stages import Plan, cut
from assay.program.state import begin_roots
from assay.protocol import trees
from assay.protocol.crew import Said, Transcript
from assay.protocol.game_state import Context, Cursor, Game, GameView
from assay.protocol.types import Address, Claim, Terms
from assay.training import models
from assay.training.job import JobArtifacts
from assay.training.optimisers import AdamW
from tests.fakes.crews import crew_of
from tests.fakes.games import decided, fresh, moved
from tests.fakes.shapes import one_loop_each
from tests.integration.chain.test_crews import STAKE, Rig
from tests.property.markets import TERMS
from tests.unit.training.steps import SEED, built, corpus

CONTEXT, STEPS, SEGMENT, SHARD = 8, 4, 2, 0
LIE = StateFault(step=2, slot=0, element=0)
"""Of the stage of member 1: in the first step of the second segment."""


@dataclass(frozen=True)
class Member(TrainStage):
    """A member that keeps what all members have sent, and may lie about its own state."""

    fault: StateFault | None = None
    told: list[Any] = field(default_factory=list)

    def _step(self, executor: Any, lines: Any, state: list[Tensor], context: StepContext) -> Any:
        after, own = super()._step(executor, lines, state, context)
        if self.fault is not None:
            after = self.fault.state(context.step, after)
            own = replace(own, slots=begin_roots(after)())
        return after, own

    def _exchange(self, lines: Any, own: Any, step: int) -> Any:
        self.told.append(told := super()._exchange(lines, own, step))
        return told

    def steps_said(self, member: int) -> list[tuple[bytes, bytes]]:
        """State roots of a member's stage before and after each step."""
        said, before = [], self._before(self.plan.stages[member])
        for told in self.told:
            this = told[member]
            start = [*before.slots, *this.received, *before.sent]
            said.append((trees.root(start), trees.root(this.leaves)))
            before = this
        return said


@pytest.fixture(scope="module")
def job() -> JobArtifacts:
    model = models.build(models.GptConfig(n_layer=3, n_head=2, d_model=16, context=CONTEXT), 1)
    return built(model, AdamW(0.01), corpus(CONTEXT))


@pytest.fixture(scope="module")
def plan(job: JobArtifacts) -> Plan:
    return cut(job.inner, 3)


def terms_of(job: JobArtifacts) -> Terms:
    assert job.records is not None
    shape = one_loop_each(program_ref(job.inner), program_ref(job.outer), 1, STEPS, SEGMENT, 1)
    return replace(
        TERMS,
        **shape,
        dataset_root=job.records.tree.root,
        genesis_root=trees.root(begin_roots(job.genesis)()),
        seed=SEED,
        records=len(job.records),
        record_size=job.records.record_size,
    )


def trained(
    job: JobArtifacts, plan: Plan, folder: Path, fault: StateFault | None = None
) -> tuple[list[Member], list[Segment]]:
    """All members train the round, each in a thread."""
    roots, context = begin_roots(job.genesis)(), StepContext(job.records, SEED, SHARD, 0)
    steps = steps_of(job.inner, context, STEPS)
    orders = [
        Member(plan, crew, [job.genesis[slot] for slot in stage.slots], roots, steps, SEGMENT, fault=lie)
        for crew, stage, lie in zip(crew_of(folder, 3), plan.stages, (None, fault, None), strict=True)
    ]
    with ThreadPoolExecutor(3) as threads:
        return orders, list(threads.map(lambda order: InlinePool().submit(order).result(), orders))


def honest(job: JobArtifacts) -> Replay:
    return Replay(job.inner, job.genesis, job.records, SEED, SHARD, 0)


def signed(rig: Rig, claim: Claim, member: int, segment: int, root: bytes) -> tuple[Transcript, bytes]:
    """A member's signature of a segment."""
    made = Transcript(claim.claimant, member, claim.round, claim.attempt, segment * SEGMENT, SEGMENT, root)
    crews = Address(rig.client.contracts["Crews"].address)
    return made, sign_transcript(dev_account(2 + member), made, rig.client.sender.chain_id, crews)


def replay_of(job: JobArtifacts, plan: Plan, member: int, step: int, fault: StateFault | None) -> Replay:
    """A replay of one step of a member's stage, from what a replay of the whole program has."""
    whole, stage = honest(job), plan.stages[member]
    state = [whole.state(step)[slot] for slot in stage.slots]
    state += [whole.trace(step).tensor(node) for node in stage.received]
    state += [whole.trace(step - 1).tensor(node) for node in stage.sent]
    return Replay(stage.program, state, job.records, SEED, SHARD, step, fault=fault)


@pytest.mark.long
def test_a_crew_trains_a_round_and_is_paid_for_it(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, job: JobArtifacts, plan: Plan
) -> None:
    orders, segments = trained(job, plan, tmp_path)
    ends = [honest(job).root(SEGMENT * (i + 1)) for i in range(2)]
    assert all(segment.roots == tuple(ends) for segment in segments)
    refs = [program_ref(stage.program) for stage in plan.stages]
    rig = Rig(rpc, artifacts, tmp_path, terms_of(job), refs)
    claim = rig.committed(segments[0].roots)
    assert rig.client.claims(rig.job_id)[0].roots == (claim.input_root, *ends)
    rig.settle(claim)
    earned = [standing.earned for standing in rig.view().members]
    before = [market.free(market.me) for market in rig.accounts]
    rig.members[1].pay("pay")
    assert sum(earned) == claim.price and min(earned) > 0
    assert [m.free(m.me) - b for m, b in zip(rig.accounts, before, strict=True)] == earned
    for member in range(3):
        said = [trees.leaf(a + b) for a, b in orders[0].steps_said(member)]
        for i in range(2):
            root = trees.root(said[i * SEGMENT : (i + 1) * SEGMENT])
            assert root == segments[member].transcripts[i][member], "what the member signs"


@pytest.mark.long
def test_a_member_that_lied_is_convicted_by_its_stages_program(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, job: JobArtifacts, plan: Plan
) -> None:
    orders, segments = trained(job, plan, tmp_path, LIE)
    right = honest(job).root(STEPS)
    assert segments[0].roots[0] == honest(job).root(SEGMENT) and segments[0].roots[1] != right
    refs = [program_ref(stage.program) for stage in plan.stages]
    rig = Rig(rpc, artifacts, tmp_path, terms_of(job), refs)
    claim = rig.committed(segments[0].roots)
    made, signature = signed(rig, claim, 1, 1, segments[1].transcripts[1][1])
    rig.convict(claim, right)

    steps = orders[0].steps_said(1)[SEGMENT:]
    tree = trees.build([trees.leaf(a + b) for a, b in steps])
    said = Said(0, *steps[0], tuple(tree.proof(0)))
    game_id = rig.members[0].accuse("accuse", claim, made, signature, said)
    opened = unpack_game(rig.accounts[0].logged("accuse", "CrewsCourt", "GameOpened")["game"])
    assert opened.step == LIE.step and opened.program == refs[1]
    liar, leader = replay_of(job, plan, 1, LIE.step, LIE), replay_of(job, plan, 1, LIE.step, None)
    assert (leader.root(0), liar.root(1)) == (said.in_root, said.out_root) and leader.root(1) != liar.root(1)
    view = played(rig, fresh(game_id, opened), leader, liar)
    assert (view.challenger_won, view.reason) == (True, "output")
    charged = [standing.charged for standing in rig.view().members]
    assert charged == [0, rig.terms.solver_stake, 0]
    lost = rig.terms.solver_stake
    assert rig.end() == [STAKE - lost // 2 + rig.terms.challenge_bond, STAKE - lost, STAKE]


def played(rig: Rig, view: GameView, leader: Replay, liar: Replay) -> GameView:
    """Plays the game to its end in the crews' Court, by the events of each move."""
    markets = {market.me: market for market in rig.accounts[:2]}
    replays = dict(zip(markets, (leader, liar), strict=True))
    players = {me: Disputant(me, lambda game: replays[game.mover]) for me in markets}
    while not view.decided:
        mover = view.game.mover
        move = players[mover].move(view)
        assert move is not None
        intent, (function, arguments) = f"move {view.moves}", call_of(view.game_id, view.game, move)
        markets[mover].do(intent, "CrewsCourt", function, *arguments)
        after = game_after(markets[mover], intent, view.game)
        if after is None:
            told = markets[mover].logged(intent, "CrewsCourt", "GameDecided")
            view = decided(view, told["challengerWon"], told["reason"])
        else:
            view = moved(view, move, after)
    return view


def game_after(market: ChainMarket, intent: str, game: Game) -> Game | None:
    """The game as a move has left it; None if that ended it."""
    for event in ("Moved", "Narrowed", "LeafRevealed"):
        with suppress(MalformedData):
            told = market.logged(intent, "CrewsCourt", event)
            context = [unpack(Context, told["context"])] if "context" in told else []
            return game.with_parts(unpack(Cursor, told["cursor"]), *context)
    return None

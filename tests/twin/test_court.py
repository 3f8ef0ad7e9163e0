"""Twin test of disputes: real programs, an honest side and a liar, through the deployed market and its Court.

Every move goes to ``spec.game`` (with ``spec.evidence`` as its arithmetic) and to the Court. Sometimes the
liar, or an account that is no player, first tries a wrong move. The honest side must win each game in twin
and chain (docs/protocol.md, 6.6).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.dispute.disputant import Disputant, IncompleteHistory, WrongReplay
from assay.dispute.evidence import output_proof
from assay.dispute.replay import Replay
from assay.program.fault import NodeFault, StateFault
from assay.protocol import sampling, trees
from assay.protocol.dispute import Move, Prove, ProveOutput, RevealLeaf, Split, Timeout
from assay.protocol.game_state import INPUT_SEGMENT, GamePhase, GameView
from assay.protocol.params import worst_case
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    JobId,
    Kind,
    Phase,
    ProgramRef,
    Seconds,
    Terms,
    Wei,
)
from spec import events as e
from tests.fakes.classes import conditions_of, of_its_class
from tests.fakes.games import fresh, moved
from tests.fakes.programs import Sample, random_sample
from tests.fakes.shapes import one_loop_each
from tests.fakes.terms import some_terms
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS, DELAYS, ITS_OWN
from tests.twin.twin import Twin

CLIENT, SOLVER, CHALLENGER, STRANGER = ACCOUNTS[6], ACCOUNTS[2], ACCOUNTS[4], ACCOUNTS[6]
SEED = bytes(range(32))
SALT = b"s" * 32
ROOT = b"r" * 32
TRIES: Counter[str] = Counter()


def terms_of(sample: Sample, genesis_root: bytes, segment_steps: int) -> Terms:
    """One shard, one round, two segments, one verifier who replays both."""
    program = sample.program
    params = program.params
    shape = one_loop_each(
        ProgramRef(program.root, len(program.nodes), program.slots, params),
        ProgramRef(b"\x01" * 32, 3 * params, 3 * params, params),
        1,
        2 * segment_steps,
        segment_steps,
        2,
    )
    terms = some_terms(
        shape,
        client=CLIENT,
        dataset_root=sample.dataset.tree.root,
        genesis_root=genesis_root,
        seed=SEED,
        records=len(sample.dataset),
        record_size=sample.dataset.record_size,
        shards=1,
        min_shards=1,
        rounds=1,
        verifiers=1,
        seed_delay=1,
        challenge_window=Seconds(600),
        state_bytes=0,
        step_bytes=0,
        step_operations=0,
    )
    return of_its_class(terms)


@dataclass
class Case:
    """A job whose first task is committed, and what each side believes the task computes."""

    twin: Twin
    rng: random.Random
    terms: Terms
    job_id: JobId
    claim: Claim
    claim_id: ClaimId
    claimed: Replay
    tree: trees.Tree

    def do(self, event: e.Event, by: Address) -> None:
        """An event that must be accepted."""
        assert self.twin.act(event, by), self.twin.history[-1]


def begin(twin: Twin, rng: random.Random, sample: Sample, fault: NodeFault | StateFault | None) -> Case:
    """Post, claim the shard and commit what a solver with this fault computes."""
    segment_steps = rng.choice([1, 2, 3])
    claimed = Replay(sample.program, sample.state, sample.dataset, SEED, 0, 0, fault=fault)
    tree = trees.build([claimed.root(i * segment_steps) for i in range(3)])
    terms = terms_of(sample, tree.levels[0][0], segment_steps)
    job_id = twin.market_state.job_id(terms)
    assert twin.act(e.Register(conditions_of(terms)), CLIENT)
    for account in ACCOUNTS[1::2]:
        assert twin.act(e.Subscribe(terms.class_id), account)
    twin.wait(1, 2 * DELAYS.weight_epoch)
    assert twin.act(e.Post(terms, worst_case(terms)), CLIENT)
    assert twin.act(e.TakeShard(job_id, 0, Wei(0)), SOLVER)
    roots = tree.levels[0]
    wanted = Claim(
        job_id=job_id,
        kind=Kind.TASK,
        round=0,
        shard=0,
        attempt=0,
        claimant=SOLVER,
        input_root=roots[0],
        output_root=roots[2],
        segments_root=tree.root,
        manifest=b"\x04" * 32,
        price=Wei(0),
        committed_at=Seconds(0),
        rewinds=0,
    )
    assert twin.act(e.Commit(wanted, tuple(tree.levels[0])), SOLVER)
    claim_id = twin.market_state.current((job_id, Kind.TASK, 0, 0), twin.time)
    assert claim_id is not None
    return Case(twin, rng, terms, job_id, twin.market_state.claims[claim_id].claim, claim_id, claimed, tree)


def _always(replay: Replay) -> Callable[[object], Replay]:
    return lambda _: replay


def play(case: Case, game_id: int, players: dict[Address, Replay], liar: Address) -> bool:
    """Play a game to its end; whether the challenger won."""
    twin = case.twin
    view = fresh(game_id, twin.market_state.games[game_id].game)
    sides = {who: Disputant(who, _always(replay)) for who, replay in players.items()}
    while game_id in twin.market_state.games:
        game = twin.market_state.games[game_id].game
        move = best(sides[game.mover], view, game.mover == liar)
        if move is not None and case.rng.random() < 0.5:
            spoilt, by = spoil(case.rng, move), case.rng.choice([liar, STRANGER])
            view = attempt(twin, view, spoilt, by)
            if game_id not in twin.market_state.games or twin.market_state.games[game_id].game != game:
                continue
        before = twin.market_state.games[game_id].game
        if move is not None:
            view = attempt(twin, view, move, game.mover)
        if game_id in twin.market_state.games and twin.market_state.games[game_id].game == before:
            assert game.mover == liar, f"the honest side has no move in {game.phase.name}"
            attempt(twin, view, Timeout(), STRANGER)
            twin.run_out(before.deadline)
            attempt(twin, view, Timeout(), STRANGER)
    TRIES["games"] += 1
    return twin.verdicts[game_id]


def best(side: Disputant, view: GameView, liar: bool) -> Move | None:
    """The side's next move. None if a liar has led the game where its own replay has no answer."""
    try:
        return side.move(view)
    except (WrongReplay, IncompleteHistory):
        assert liar, "the honest side knows the way to everything that both sides accept"
        return None


def attempt(twin: Twin, view: GameView, move: Move, by: Address) -> GameView:
    """Try a move in twin and chain; the view after it."""
    accepted = twin.act(e.Play(view.game_id, view.game, move), by)
    TRIES["accepted" if accepted else "refused"] += 1
    if not accepted or view.game_id not in twin.market_state.games:
        return view
    return moved(view, move, twin.market_state.games[view.game_id].game)


def spoil(rng: random.Random, move: Move) -> Move:
    """The move with something wrong in one field, or another move."""
    if isinstance(move, Prove) and move.openings and rng.random() < 0.5:
        first = move.openings[0]
        worse = rng.choice(
            [
                replace(first, data=flip(rng, first.data)),
                replace(first, siblings=(*first.siblings, ZERO_DIGEST)),
                replace(first, path=first.path[1:]),
                replace(first, first_leaf=first.first_leaf + 1),
                replace(first, input=first.input + 7),
            ]
        )
        return replace(move, openings=(worse, *move.openings[1:]))
    if isinstance(move, Prove):
        return replace(move, element=rng.choice([move.element + 1, 2**40, 0]))
    names = [f.name for f in fields(move)]
    if not names or rng.random() < 0.1:
        others: list[Move] = [Split((ZERO_DIGEST,) * 16), RevealLeaf(b"\x00" * 4), Timeout()]
        return rng.choice(others)
    name = rng.choice(names)
    value = getattr(move, name)
    if isinstance(value, bytes):
        return replace(move, **{name: flip(rng, value)})  # type: ignore[arg-type]
    if isinstance(value, int):
        return replace(move, **{name: value + rng.choice([1, 16, 1000])})  # type: ignore[arg-type]
    if value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        changed = (*value[:at], flip(rng, value[at]), *value[at + 1 :])
        return replace(move, **{name: changed})  # type: ignore[arg-type]
    return replace(move, **{name: (*value, ZERO_DIGEST)})  # type: ignore[arg-type]


def flip(rng: random.Random, data: bytes) -> bytes:
    """One bit changed; of nothing, one byte made."""
    if not data:
        return b"\x00"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def open_claim(case: Case, segment: int) -> int:
    """Announce and open a game on a segment of the claim."""
    leaves, proofs = case.tree.levels[0], [tuple(case.tree.proof(segment + i)) for i in (0, 1)]
    case.do(e.Announce(case.claim_id, segment, ZERO_ADDRESS, ROOT, SALT), CHALLENGER)
    opened = e.Open(
        case.claim, segment, leaves[segment], proofs[0], leaves[segment + 1], proofs[1], ROOT, SALT
    )
    case.do(opened, CHALLENGER)
    return case.twin.market_state.games_opened


def vote(case: Case, attested: Replay) -> tuple[Address, trees.Tree, list[int]]:
    """Have the task seeded, and a valid vote cast from this replay; voter, its traces, its segments."""
    case.twin.wait(2, 3)
    case.do(e.RecordSeed(case.claim, ZERO_DIGEST, ITS_OWN), STRANGER)
    state = case.twin.market_state.claims[case.claim_id]
    (verifier,) = state.drawn
    key = sampling.verifier_key(verifier, state.status.seed)
    drawn = sampling.sample_segments(state.status.seed, verifier, case.terms.loops)
    steps = case.terms.segment_steps
    traces = trees.build([attested.trace((s + 1) * steps - 1, key).root for s in drawn])
    case.do(e.Vote(case.claim_id, state.status.seed, True, tuple(traces.levels[0])), verifier)
    case.do(e.Tally(case.claim), STRANGER)
    return verifier, traces, drawn


def open_vote(case: Case, verifier: Address, traces: trees.Tree, segment: int, sample: int) -> int:
    """Announce and open a game on one sample of a vote."""
    case.do(e.Announce(case.claim_id, sample, verifier, ZERO_DIGEST, SALT), CHALLENGER)
    start, way = case.tree.levels[0][segment], tuple(case.tree.proof(segment))
    root, proof = traces.levels[0][sample], tuple(traces.proof(sample))
    case.do(e.OpenVote(case.claim, verifier, sample, start, way, root, proof, SALT), CHALLENGER)
    return case.twin.market_state.games_opened


def random_fault(rng: random.Random, sample: Sample, steps: int) -> NodeFault | StateFault:
    """One wrong bit in the first `steps` steps."""
    program, step = sample.program, rng.randrange(steps)
    if rng.random() < 0.3:
        slot = rng.randrange(program.slots)
        return StateFault(step, slot, rng.randrange(program.nodes[slot].elements))
    node = rng.randrange(program.slots, len(program.nodes))
    return NodeFault(step, node, rng.randrange(program.nodes[node].elements))


def effective_fault(rng: random.Random, sample: Sample) -> NodeFault | StateFault | None:
    """A wrong bit that reaches the state after two steps; None if none was found."""
    honest = Replay(sample.program, sample.state, sample.dataset, SEED, 0, 0).root(2)
    for _ in range(6):
        fault = random_fault(rng, sample, 2)
        lying = Replay(sample.program, sample.state, sample.dataset, SEED, 0, 0, fault=fault)
        if lying.root(1) != honest and lying.root(2) != honest:
            return fault
    return None


def claim_game(stage: Stage, seed: int) -> None:
    """A claim with a wrong bit falls; a right one survives a challenger that computed a wrong bit."""
    rng = random.Random(seed)
    sample = random_sample(seed, instructions=15)
    fault = effective_fault(rng, sample)
    if fault is None:
        return
    lying_defender = rng.random() < 0.6
    case = begin(stage.enter(), rng, sample, fault if lying_defender else None)
    believed = None if lying_defender else fault
    other = Replay(sample.program, sample.state, sample.dataset, SEED, 0, 0, fault=believed)
    ours, theirs = ([r.root(i * case.terms.segment_steps) for i in range(3)] for r in (case.claimed, other))
    wrong = [s for s in range(2) if ours[s] == theirs[s] and ours[s + 1] != theirs[s + 1]]
    if not wrong:
        return  # a later step undid it
    game_id = open_claim(case, wrong[0])
    players = {SOLVER: case.claimed, CHALLENGER: other}
    won = play(case, game_id, players, SOLVER if lying_defender else CHALLENGER)
    assert won == lying_defender
    status = case.twin.market_state.claims[case.claim_id].status
    assert status.phase == (Phase.CONVICTED if won else Phase.COMMITTED)


def vote_game(stage: Stage, seed: int) -> None:
    """A vote with a wrong trace falls, whatever the claim; a right one survives."""
    rng = random.Random(seed)
    sample = random_sample(seed, instructions=15)
    case = begin(stage.enter(), rng, sample, None)
    steps = case.terms.segment_steps
    node = rng.randrange(len(sample.program.nodes))
    fault = NodeFault(2 * steps - 1, node, rng.randrange(sample.program.nodes[node].elements))
    lying = Replay(sample.program, sample.state, sample.dataset, SEED, 0, 0, fault=fault)
    lying_defender = rng.random() < 0.6
    verifier, traces, drawn = vote(case, lying if lying_defender else case.claimed)
    game_id = open_vote(case, verifier, traces, 1, drawn.index(1))
    attested, other = (lying, case.claimed) if lying_defender else (case.claimed, lying)
    players = {verifier: attested, CHALLENGER: other}
    won = play(case, game_id, players, verifier if lying_defender else CHALLENGER)
    assert won == lying_defender
    assert case.twin.market_state.claims[case.claim_id].status.phase == Phase.ACCEPTED


def input_case(stage: Stage, seed: int, honest: bool) -> None:
    """Attack 35: a claimant opens an input state that only it knows, which binds to nothing; an honest
    claimant that has to open its own is paid."""
    rng = random.Random(seed)
    case = begin(stage.enter(), rng, random_sample(seed, instructions=15), None)
    terms, slots = case.terms, case.terms.slots
    state = case.twin.market_state.claims[case.claim_id]
    wanted = case.claimed.state_tree(0)
    assert (state.claim.input_root == wanted.root) and slots > 1
    case.do(e.Announce(case.claim_id, INPUT_SEGMENT, ZERO_ADDRESS, ROOT, SALT), CHALLENGER)
    case.do(e.OpenInput(case.claim, ROOT, SALT), CHALLENGER)
    game_id = case.twin.market_state.games_opened
    view = fresh(game_id, case.twin.market_state.games[game_id].game)
    assert view.game.move_time == terms.move_time and view.game.digest == case.claim.input_root
    if honest:
        opened = Split(tuple(wanted.descendants(wanted.depth, 0, min(4, wanted.depth))))
        view = attempt(case.twin, view, spoil(rng, opened), SOLVER)
        view = attempt(case.twin, view, opened, SOLVER)
        if case.twin.market_state.games[game_id].game.phase == GamePhase.PICK_OUTPUT:
            proof = output_proof(case.claimed.program, 0)
            forged = ProveOutput(0, 0, proof, view.digests[0], tuple(wanted.proof(0)), ZERO_DIGEST, ())
            attempt(case.twin, view, forged, CHALLENGER)
            assert game_id in case.twin.market_state.games, "there is no trace to prove against"
    case.twin.run_out(case.twin.market_state.games[game_id].game.deadline)
    view = replace(view, game=case.twin.market_state.games[game_id].game)
    attempt(case.twin, view, Timeout(), STRANGER)
    assert case.twin.verdicts[game_id] != honest
    status = case.twin.market_state.claims[case.claim_id].status
    assert status.phase == (Phase.COMMITTED if honest else Phase.CONVICTED)
    TRIES["games"] += 1


@pytest.mark.parametrize("honest", [True, False])
def test_games_about_inputs(stage: Stage, honest: bool) -> None:
    for seed in range(3):
        input_case(stage, seed, honest)


SEEDS = st.integers(0, 2**32 - 1)


@pytest.mark.long
def test_games_about_claims(stage: Stage) -> None:
    run(stage, claim_game, 12)


@pytest.mark.long
def test_games_about_votes(stage: Stage) -> None:
    run(stage, vote_game, 8)


def run(stage: Stage, one: Callable[[Stage, int], None], examples: int) -> None:
    """Some games; twin and chain must have taken and refused moves in them."""
    before = TRIES.copy()

    @given(seed=SEEDS)
    @settings(max_examples=examples)
    def games(seed: int) -> None:
        one(stage, seed)

    games()
    done = TRIES - before
    assert done["games"] >= examples // 3 and done["accepted"] >= 4 * done["games"] and done["refused"], done


@pytest.mark.slow
def test_many_games(stage: Stage) -> None:
    run(stage, claim_game, 150)
    run(stage, vote_game, 150)
    print(dict(TRIES))

"""Votes of real programs that are disproved by their own traces, in twin and chain (rule 5.5)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from assay.dispute.evidence import output_proof
from assay.dispute.replay import Replay
from assay.node.availability import chunks_of
from assay.program.fault import NodeFault
from assay.protocol import sampling, trees
from assay.protocol.demands import StateLeaf, VoteProof
from assay.protocol.dispute import Timeout
from assay.protocol.types import Address, Phase
from spec import events as e
from tests.fakes.programs import random_sample
from tests.twin.conftest import Stage
from tests.twin.test_court import CHALLENGER, SALT, SEED, STRANGER, Case, begin, open_claim, vote

Voter = tuple[Address, trees.Tree, list[int]]
"""The voter, its traces, and its segments."""


def disproof(case: Case, attested: Replay, voter: Voter, slot: int) -> e.ProveVote:
    """A slot's value by the trace of the vote's first sample: at a leaf that differs, if there is one."""
    verifier, traces, drawn = voter
    program, steps = case.claimed.program, case.terms.segment_steps
    end = (drawn[0] + 1) * steps
    seed = case.twin.market_state.claims[case.claim_id].status.seed
    trace = attested.trace(end - 1, sampling.verifier_key(verifier, seed))
    ref = program.outputs[slot]
    mine = trees.split_leaves(case.claimed.trace(end).output(slot))
    theirs = trees.split_leaves(trace.output(ref))
    leaf = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b), 0)
    place = StateLeaf(slot, leaf)
    (committed,) = chunks_of(program, case.claimed.state(end), [place])
    said = VoteProof(
        state_root=case.claimed.root(end),
        state_proof=tuple(case.tree.proof(drawn[0] + 1)),
        ref=ref,
        ref_proof=output_proof(program, slot),
        trace_root=trace.root,
        trace_proof=tuple(traces.proof(0)),
        data=bytes(theirs[leaf]),
        leaf_proof=tuple(trace.tensor_tree(ref).proof(leaf)),
        node_proof=tuple(trace.tree.proof(ref)),
    )
    return e.ProveVote(case.claim, verifier, 0, place, committed, said, SALT)


def said_of(case: Case, proof: e.ProveVote) -> str:
    """The refusal of twin and chain, or nothing."""
    shown = case.twin.market_state.disproof_root(proof.place, proof.said.data)
    case.do(e.Announce(case.claim_id, 0, proof.verifier, shown, SALT), CHALLENGER)
    before = case.twin.refused.copy()
    if case.twin.act(proof, CHALLENGER):
        return ""
    (new,) = (case.twin.refused - before).elements()
    return new.split()[-1]


@pytest.mark.long
@pytest.mark.parametrize("fallen", [False, True])
def test_a_vote_falls_by_its_own_trace_and_an_honest_one_does_not(stage: Stage, fallen: bool) -> None:
    """On a claim that stands, and on one that its claimant has lost on purpose; then the honest are paid."""
    kinds = set()
    for seed in range(8):
        rng = random.Random(seed)
        sample = random_sample(seed, instructions=15)
        case = begin(stage.enter(), rng, sample, None)
        program, last = sample.program, 2 * case.terms.segment_steps - 1
        ref = rng.choice([ref for ref in program.outputs if ref >= program.slots] or list(program.outputs))
        fault = NodeFault(last, ref, rng.randrange(program.nodes[ref].elements))
        attested = Replay(program, sample.state, sample.dataset, SEED, 0, 0, fault=fault)
        voter = vote(case, attested)
        if fallen:
            game_id = open_claim(case, 0)
            game = case.twin.market_state.games[game_id].game
            case.twin.run_out(game.deadline)
            case.do(e.Play(game_id, game, Timeout()), STRANGER)
            assert case.twin.market_state.claims[case.claim_id].status.phase == Phase.CONVICTED
        found = voter[2][0] == 1 and attested.trace(last).output(ref) != case.claimed.trace(last).output(ref)
        slot = program.outputs.index(ref)
        proof = disproof(case, attested, voter, slot)
        bent = replace(proof, said=replace(proof.said, ref_proof=proof.said.ref_proof[1:]))
        assert said_of(case, bent) == "BadProof"
        assert said_of(case, proof) == ("" if found else "NoDifference")
        kinds.add(found)
        if fallen and not found:
            case.twin.wait(int(case.terms.challenge_window) + 1)
            case.do(e.FreeSeats(case.claim), STRANGER)
    assert kinds == {True, False}

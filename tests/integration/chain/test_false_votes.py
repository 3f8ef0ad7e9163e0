"""Votes on a claim that has fallen, on a real chain: those that vouched for what is false lose stakes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.dispute.chunks import chunks_of, vote_proof
from assay.node.audit import keyed_trace, sampled
from assay.node.states import Known, open_state_provider
from assay.protocol import sampling
from assay.protocol.demands import StateLeaf
from assay.protocol.errors import Reverted
from assay.protocol.types import Address, ClaimView, JobId, Phase, Role, Seconds, Vote, Wei
from drills.solvers import FaultySolver, WeightPlan
from drills.verifiers import ColludingVerifier, LazyVerifier
from tests.adversaries.chain_day import NAMES, ChainDay
from tests.fakes.blocks import FakeBlocks
from tests.fakes.jobs import RESOURCE_LIMITS

torch.set_num_threads(1)

VERIFIERS = ("v0", "v1", "v2")
TIMES = {"vote_time": 64, "move_time": 80, "challenge_window": 160}
SEAT = 50
"""What a seat locks."""


def fallen(day: ChainDay, job_id: JobId) -> ClaimView | None:
    return next((view for view in day.claims(job_id) if view.status.phase == Phase.CONVICTED), None)


def freed(day: ChainDay, job_id: JobId) -> bool:
    view = fallen(day, job_id)
    return view is not None and not view.fallen


def stakes(day: ChainDay) -> dict[str, int]:
    return {
        name: int(day.markets[name].stake(day.markets[name].me, Role.VERIFIER).active) for name in VERIFIERS
    }


def day_of(rpc: HttpRpc, artifacts: Artifacts, folder: Path, v1: object) -> ChainDay:
    """ann changes a weight in segment 1; v0 and v2 cover for it."""
    from assay.chain.eth.anvil import dev_account

    ann = frozenset({Address(dev_account(NAMES.index("ann")).address)})
    covers = partial(ColludingVerifier, accomplices=ann)
    return ChainDay(
        rpc,
        artifacts,
        folder,
        solvers={"ann": partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5))},
        verifiers={"v0": covers, "v1": v1 or covers, "v2": covers},  # type: ignore[dict-item]
        seed_age=Seconds(0),
        await_votes=True,
    )


@pytest.mark.long
def test_votes_that_lie_fall_by_their_own_trace_or_in_a_game(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path
) -> None:
    day = day_of(rpc, artifacts, tmp_path, LazyVerifier)
    job_id = day.post(samples=4, verifiers=3, solver_stake=Wei(200), **TIMES)
    assert day.run(lambda: fallen(day, job_id) is not None)
    view = fallen(day, job_id)
    assert view is not None and all(vote.shown and vote.valid for vote in view.votes), "it was passed by all"
    assert day.run(lambda: freed(day, job_id))
    games = [
        g for g in day.markets["client"].games(job_id) if g.game.ballot and g.game.claim_id == view.claim_id
    ]
    assert [(g.game.defender, g.challenger_won) for g in games] == [(day.markets["v1"].me, True)]
    lost = {e.arguments["verifier"] for e in day.markets["client"].events() if e.name == "VoteConvicted"}
    assert lost == {day.markets[n].me for n in ("v0", "v1", "v2")}, "v0 and v2 by a proof, without a game"
    kept = stakes(day)
    assert kept["v0"] == kept["v2"] == 1_000 - SEAT and kept["v1"] <= 1_000 - SEAT, "v1 lies of every claim"


@pytest.mark.long
def test_votes_whose_samples_were_right_are_paid_and_cannot_be_disproved(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path
) -> None:
    day = day_of(rpc, artifacts, tmp_path, None)
    job_id = day.post(samples=1, verifiers=3, solver_stake=Wei(200), **TIMES)
    assert day.run(lambda: fallen(day, job_id) is not None)
    view = fallen(day, job_id)
    assert view is not None
    terms = day.markets["client"].job(job_id).terms
    seed = view.status.seed
    right = [v for v in view.votes if sampling.sample_segments(seed, v.verifier, terms.loops) != [1]]
    for vote in right[:1]:
        refuse_to_disprove(day, view, vote)
    names = [name for name in VERIFIERS if day.markets[name].me in {vote.verifier for vote in right}]
    before = {name: day.markets[name].free(day.markets[name].me) for name in names}
    assert day.run(lambda: freed(day, job_id))
    assert stakes(day) == {name: 1_000 - (0 if name in names else SEAT) for name in VERIFIERS}
    assert all(day.markets[name].free(day.markets[name].me) > before[name] for name in names)


def refuse_to_disprove(day: ChainDay, view: ClaimView, vote: Vote) -> None:
    """A vote that is right, with all that can be said of it."""
    troll = day.markets["bob"]
    provider = open_state_provider(
        troll, FakeBlocks(day.network), troll.job(view.claim.job_id), RESOURCE_LIMITS
    )
    (segment,) = sampled(provider, view, vote.verifier)
    key = sampling.verifier_key(vote.verifier, view.status.seed)
    trace, end = keyed_trace(provider, view, segment, key), provider.leaf(view, segment + 1)
    if not isinstance(end, Known):  # beyond the fault: what the claim publishes
        return
    place, salt = StateLeaf(0, 0), bytes(32)
    (chunk,) = chunks_of(trace.program, end.state, (place,))  # type: ignore[union-attr]
    shown = view.traces[vote.verifier]
    said = vote_proof(trace, place, view.roots, segment, shown, 0)  # type: ignore[arg-type]
    troll.announce("say", view.claim_id, 0, vote.verifier, bytes(32), salt, said.data, place)
    day.pass_time(2)
    with pytest.raises(Reverted) as refused:
        troll.prove_vote("prove", view.claim, vote.verifier, 0, place, chunk, said, salt)
    assert refused.value.error == "NoDifference"

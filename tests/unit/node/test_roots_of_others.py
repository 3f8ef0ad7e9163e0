"""Claims that name roots of states which are not theirs, nor even states of their program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assay.node.audit import audit_claim, audit_input, replayed
from assay.node.findings import WrongSegment, sampled
from assay.node.replay_cache import ReplayCache
from assay.node.states import Known, StateProvider, open_state_provider
from assay.protocol import trees
from assay.protocol.sampling import verifier_key
from assay.protocol.types import Address, Claim, ClaimId, ClaimView, Kind, Phase
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.fakes.workers import judged_together

SEGMENTS = 4


def second_round(day: MarketDay) -> tuple[ClaimView, ClaimView]:
    """The outer claim of the first round, and the task of the second that begins from it."""
    job_id = day.post(rounds=2)
    day.solvers()
    assert day.run(lambda: len(day.phases(job_id)) > 3)
    terms = day.markets["client"].job(job_id).terms
    assert terms.slots != terms.outer_slots
    views = day.markets["client"].claims(job_id)
    outer = next(view for view in views if view.claim.kind == Kind.OUTER)
    return outer, next(view for view in views if view.claim.kind == Kind.TASK and view.claim.round == 1)


def provider(day: MarketDay, view: ClaimView, kept: ReplayCache | None = None) -> StateProvider:
    """As a process has it that has just been started."""
    market = day.markets["client"]
    job = market.job(view.claim.job_id)
    return open_state_provider(market, day.blocks(), job, RESOURCE_LIMITS, kept=kept)


def drawn(states: StateProvider, view: ClaimView, segment: int) -> tuple[ClaimView, Address]:
    """The claim with a seed that draws this segment for an account."""
    me = Address("0x" + "11" * 20)
    for i in range(256):
        seeded = replace(view, status=replace(view.status, seed=bytes([i]) * 16 + bytes(16)))
        if sampled(states.work.terms, seeded, me) == [segment]:
            return seeded, me
    raise AssertionError("no seed draws it")


def test_attack_T57_a_root_of_another_programs_state_hides_no_false_segment(day: MarketDay) -> None:
    """The outer state that the task begins from is known, and has other slots than a task's."""
    outer, task = second_round(day)
    false = replace(task, roots=(task.roots[0], *[outer.roots[-1]] * SEGMENTS))
    states = provider(day, task)
    for segment in range(SEGMENTS):
        seeded, me = drawn(states, false, segment)
        assert audit_input(states, seeded) is None
        found = replayed(states, seeded, segment, verifier_key(me, seeded.status.seed))
        assert isinstance(found, WrongSegment)
        assert found.segment == 0, "there the claim leaves what the program gives"
    assert isinstance(audit_claim(states, false), WrongSegment)


@pytest.mark.long
def test_attack_T57_nor_from_whoever_replays_several_segments_together(day: MarketDay) -> None:
    outer, task = second_round(day)
    false = replace(task, roots=(task.roots[0], *[outer.roots[-1]] * SEGMENTS))
    for found in judged_together(day.markets["client"], day.blocks(), false):
        assert isinstance(found, WrongSegment) and found.segment == 0


def test_attack_T57_a_claim_of_another_program_deletes_no_state_that_is_pinned(
    day: MarketDay, tmp_path: Path
) -> None:
    """A false claim names the root of a state that a vote on another claim is defended from."""
    outer, task = second_round(day)
    kept = ReplayCache(tmp_path / "kept", 1)
    states = provider(day, task, kept)
    start = states.leaf(task, 2)
    assert isinstance(start, Known)
    states.pin(task, 2, start.state)
    again = ReplayCache(tmp_path / "kept", 1)
    assert again.pinned(task, 2)
    false = replace(outer, roots=(outer.roots[0], task.roots[2]))
    restarted = provider(day, task, again)
    assert restarted.available_state(false, 1) is None
    assert again.pinned(task, 2), "nobody else's program says what the file should be"
    program = restarted.work.program(Kind.TASK)
    assert again.state(task.roots[2], program) is not None


@pytest.mark.parametrize("accuser", ["whistleblower", "verifier"])
def test_attack_T57_a_task_that_begins_from_an_outer_state_falls(day: MarketDay, accuser: str) -> None:
    """Its tree is deeper than that of a task's state, so that no slot of it can be proven to be wrong: it has
    to be opened as a task's, which nobody can."""
    job_id = day.post(rounds=2, shards=3, verifiers=1, solver_stake=200)
    for name in ("ann", "bob", "carol"):
        day.solver(name)
    getattr(day, accuser)("wendy")
    market = day.markets["ann"]
    terms = market.job(job_id).terms
    assert trees.depth(terms.slots) < trees.depth(terms.outer_slots)
    commit, cheated = market.commit, list[ClaimId]()

    def copied(intent: str, claim: Claim, roots: Sequence[bytes]) -> ClaimId:
        if claim.kind == Kind.TASK and claim.round == 1:
            outer = market.current(job_id, Kind.OUTER, 0, 0)
            assert outer is not None
            root = outer.claim.output_root
            roots = (root,) * len(roots)
            ends = trees.root(roots)
            claim = replace(claim, input_root=root, output_root=root, segments_root=ends)
            cheated.append(commit(intent, claim, roots))
            return cheated[-1]
        return commit(intent, claim, roots)

    market.commit = copied
    assert day.run(lambda: bool(cheated)), day.events[-5:]
    state = day.market_state.claims[cheated[0]]
    assert day.run(lambda: state.status.phase not in (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)), (
        day.services["wendy"].status
    )
    assert state.status.phase == Phase.CONVICTED

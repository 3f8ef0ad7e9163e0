"""Jobs whose client is the enemy: whatever its terms and wherever its files, honest nodes lose nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay.node.artifacts import publish_job
from assay.program.isa import DType, Node, Op, Program
from assay.protocol.errors import AssayError
from assay.protocol.types import (
    ZERO_DIGEST,
    Claim,
    ClaimId,
    JobId,
    Kind,
    Origin,
    Phase,
    Role,
    Seconds,
    Terms,
    Wei,
)
from spec.refusal import Refused
from tests.fakes.jobs import WIDTH, TinyFiles, account, tiny_files, tiny_terms
from tests.fakes.market_day import MarketDay

NAMES = ("v0", "v1", "v2", "v3", "v4")


def hide_everything(day: MarketDay) -> None:
    """Hides all blocks: from now on a node reads only its own."""
    day.network.withheld |= set(day.network.blocks)


def lost(day: MarketDay) -> dict[str, int]:
    """Stake that each honest account has lost."""
    stakes = {"ann": (Role.SOLVER, 2_000)} | dict.fromkeys(NAMES, (Role.VERIFIER, 1000))
    active = {
        name: day.market_state.active.get((account(name), role), 0)
        for name, (role, _) in stakes.items()
        if name in day.markets
    }
    return {name: stakes[name][1] - left for name, left in active.items() if left != stakes[name][1]}


def committed(day: MarketDay, job_id: JobId) -> bool:
    return bool(day.phases(job_id))


def test_R5_verifiers_of_a_job_whose_files_are_gone_abstain_and_lose_nothing(
    day: MarketDay,
) -> None:
    job_id = day.post(rounds=1, shards=1)
    ann = day.solver("ann")
    assert day.run(lambda: committed(day, job_id))
    hide_everything(day)
    for name in NAMES:
        day.verifier(name)
    assert day.run(day.closed(job_id), turns=600), ann.status
    assert len(day.named("abstained")) == len(NAMES), "everybody was called, and gave its seat up"
    assert not day.named("voted") and lost(day) == {}
    assert day.market_state.rules.funds.ledger.burnt == 0
    (task, _) = (entry for entry in day.market_state.claims.values() if entry.claim.job_id == job_id)
    assert (task.status.phase, task.status.valid) == (Phase.SETTLED, 0), "accepted unattested, and paid"


def with_records_in_the_outer_program(files: TinyFiles) -> TinyFiles:
    """The same job with an instruction that reads records, which an outer step does not have."""
    outer = files.outer
    reads = Node(Op.DATA, DType.U8, (1, WIDTH), (), (0, 0))
    return replace(files, outer=Program((*outer.nodes, reads), outer.outputs, outer.params, WIDTH))


def puppets_claim(day: MarketDay, job_id: JobId) -> ClaimId:
    """Invented from end to end, by a solver of the client's own, so that verifiers are drawn."""
    puppet = day.join("puppet", solver=2_000)
    puppet.take_shard("take", job_id, 0)
    terms = puppet.job(job_id).terms
    roots = [terms.genesis_root, *(bytes([i]) * 32 for i in range(1, terms.segments + 1))]
    place = (job_id, Kind.TASK, 0, 0, 0, puppet.me)
    claim = Claim(*place, roots[0], roots[-1], ZERO_DIGEST, ZERO_DIGEST, Wei(0), Seconds(0), 0)
    return puppet.commit("commit", claim, roots)


def test_R9_a_job_whose_outer_program_reads_records_costs_nobody_anything(day: MarketDay) -> None:
    """Posted past every validator, with a solver of the client's own that gets verifiers drawn."""
    job_id = day.post(with_records_in_the_outer_program(tiny_files(1)), rounds=1, shards=1)
    ann = day.solver("ann")
    for name in NAMES:
        day.verifier(name)
    wendy = day.whistleblower("wendy")
    claim_id = puppets_claim(day, job_id)
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id), turns=600), ann.status
    assert len(day.named("abstained")) == len(NAMES), "everybody was called, and gave its seat up"
    assert not day.market_state.claims[claim_id].status.valid and lost(day) == {}
    assert "reads records" in wendy.status.abandoned[job_id.hex()], "this job, and no other"
    assert not day.market_state.rules.funds.locked(account("ann"), Role.SOLVER)


def hostile(rng: Random) -> dict[str, Any]:
    """Terms that some deployment admits, of a client that means no good."""
    stake = rng.choice([2, 50, 900])
    terms = {
        "shards": 1,
        "rounds": rng.choice([1, 2]),
        "samples": rng.choice([1, 4]),
        "verifiers": rng.choice([1, 2, 4]),
        "seed_delay": rng.choice([1, 20]),
        "max_unsettled": rng.choice([1, 32]),
        "task_time": rng.choice([5, 600]),
        "straggler_time": rng.choice([1, 600, 100_000]),
        "outer_time": rng.choice([1, 60]),
        "vote_time": rng.choice([5, 60, 600]),
        "challenge_window": rng.choice([5, 300, 2_000]),
        "move_time": rng.choice([1, 60, 2_000]),
        "price_period": rng.choice([1, 100_000]),
        "price_floor": rng.choice([0, 12]),
        "solver_stake": rng.choice([0, 100, 1_900, 10**20]),
        "verifier_stake": stake,
        "challenge_bond": rng.choice([0, stake]),
        "miss_penalty": rng.choice([0, stake // 2]),
        "verifier_fee": rng.choice([0, 3]),
    }
    later = terms["max_unsettled"] - 1
    wasted = later * (12 + terms["verifiers"] * terms["verifier_fee"]) + (later + 1) * 4
    seats, fees = terms["verifiers"] * stake, 16 * terms["verifiers"] * terms["verifier_fee"]
    return terms | {"solver_stake": max(terms["solver_stake"], -(-8 * wasted // 3), seats, fees)}


WORKED, REFUSED = (0, 4, 9, 11, 12, 13, 17), (1, 2, 3, 8, 14)
"""Seeds whose terms the solver takes a shard under, and such whose terms it refuses."""


@pytest.mark.parametrize("seed", WORKED + REFUSED)
def test_honest_nodes_lose_nothing_whatever_the_terms(day: MarketDay, seed: int) -> None:
    """Random terms in each run; in every second run the files disappear after the first claim."""
    terms = hostile(Random(seed))
    job_id = day.post(**terms)
    day.solver("ann")
    for name in NAMES:
        day.verifier(name)
    day.run(lambda: committed(day, job_id), turns=40, seconds=1)
    if seed % 2:
        hide_everything(day)
    day.run(day.closed(job_id), turns=400, seconds=5)
    assert committed(day, job_id) == (seed in WORKED), terms
    assert bool(day.named("voted") or day.named("abstained")) == (seed in WORKED), "verifiers were drawn"
    assert lost(day) == {}, terms


ROOT = b"\x77" * 32


def bent(terms: Terms) -> dict[str, dict[str, Any]]:
    """By name: the terms that no number is, each with something in it that the job's files do not say."""
    loop, outer = terms.loops[0], terms.outer_loops[0]
    links, outer_links = terms.links, terms.outer_links
    return {
        "dataset_root": {"dataset_root": ROOT},
        "genesis_root": {"genesis_root": ROOT},
        "outer_genesis_root": {"outer_genesis_root": ROOT},
        "manifest": {"manifest": ROOT},
        "loop's program": {"loops": (replace(loop, root=ROOT),)},
        "loop's nodes": {"loops": (replace(loop, nodes=loop.nodes + 1),)},
        "loops' number": {
            "loops": (loop, replace(loop, root=outer.root, nodes=outer.nodes)),
            "segments": 2 * terms.segments,
            "samples": 2 * terms.samples,
        },
        "outer loop's program": {"outer_loops": (replace(outer, root=loop.root, nodes=loop.nodes),)},
        "links": {"links": tuple(replace(each, origin=Origin.GENESIS) for each in links)},
        "outer links": {"outer_links": tuple(replace(each, origin=Origin.OWN) for each in outer_links)},
    }


BENT = (
    *("dataset_root", "genesis_root", "outer_genesis_root", "manifest", "loop's program", "loop's nodes"),
    *("loops' number", "outer loop's program", "links", "outer links"),
)
READ_ALIKE = {"links", "outer links"}
"""Terms that the files do not repeat: whatever they say is the job's rule."""


@pytest.mark.parametrize("name", BENT)
def test_honest_nodes_lose_nothing_whatever_else_the_terms_say(day: MarketDay, name: str) -> None:
    """Terms that the job's files contradict, with a solver of the client's own that gets verifiers drawn."""
    plain = tiny_terms(publish_job(day.blocks(), tiny_files(1)), account("client"), rounds=1, shards=1)
    changes = bent(plain)
    assert set(changes) == set(BENT)
    job_id = day.post(rounds=1, shards=1, **changes[name])
    posted = day.markets["client"].job(job_id).terms
    assert all(
        getattr(posted, field) == value != getattr(plain, field) for field, value in changes[name].items()
    )
    for verifier in NAMES:
        day.verifier(verifier)
    day.whistleblower("wendy")
    claim_id = puppets_claim(day, job_id)
    ann = day.solver("ann")
    ended = (Phase.ACCEPTED, Phase.CONVICTED, Phase.SETTLED)
    assert day.run(lambda: day.market_state.claims[claim_id].status.phase in ended, turns=600), ann.status
    assert day.named("abstained") or day.named("voted"), "verifiers were drawn"
    day.run(day.closed(job_id), turns=200, seconds=5)
    assert lost(day) == {}, "neither the drawn nor a solver that might have taken the shard"
    anns = [c for c in day.market_state.claims.values() if c.claim.claimant == account("ann")]
    assert name in READ_ALIKE or not anns, "a job that contradicts itself is left alone"


EXTREMES = (0, 1, 2, 3, 5, 7, 255, 2**16, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 10**18, 2**96 - 1, 2**128 - 1)
OWN = {"shards", "rounds", "client", "class_id", "nonce"}
"""Terms that a test needs to know, or that name the client."""


def wild(seed: int) -> dict[str, Any]:
    """`hostile`, with up to three more fields of any kind set to anything their type may hold."""
    rng = Random(seed)
    terms = hostile(rng)
    kinds = {"int", "Seconds", "Wei"}
    numbers = [field.name for field in fields(Terms) if str(field.type) in kinds and field.name not in OWN]
    for name in rng.sample(numbers, rng.randrange(4)):
        terms[name] = rng.choice(EXTREMES)
    return terms


def day_under(folder: Path, seed: int) -> str:
    """Plays a market's day under such terms, every second one without files; returns the job's outcome."""
    day = MarketDay(folder)
    try:
        job_id = day.post(**wild(seed))
    except (Refused, AssayError, OverflowError):
        return "not posted"  # nobody can lose anything
    day.solver("ann")
    for name in NAMES:
        day.verifier(name)
    day.run(lambda: committed(day, job_id), turns=40, seconds=1)
    if seed % 2:
        hide_everything(day)
    day.run(day.closed(job_id), turns=250, seconds=5)
    assert lost(day) == {}, wild(seed)
    return "worked" if committed(day, job_id) else "refused"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 3_000, 50))
def test_honest_nodes_lose_nothing_under_two_thousand_wild_terms(tmp_path: Path, first: int) -> None:
    """Every number of the terms, also far outside of what anybody would agree to."""
    became = Counter(day_under(tmp_path / str(seed), seed) for seed in range(first, first + 50))
    print(first, dict(became))
    assert became["refused"] and became["not posted"] and became["worked"]

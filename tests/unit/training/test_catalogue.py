"""Recipes through the market: the same bits as their programs in one process, and every loop disputable."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.client.results import tasks_counted
from assay.node.findings import WrongInput, WrongSegment
from assay.node.job_programs import check_shapes, program_ref
from assay.node.manifests import BadManifest
from assay.program.fault import NodeFault
from assay.program.validate import validate
from assay.protocol.errors import Stop
from assay.protocol.types import Kind, Terms
from assay.training.catalogue import CATALOGUE, WHOLE, algorithm_of, loops_of
from assay.training.checks import check_optimiser, check_rounds, check_slices
from assay.training.job import made_round
from assay.training.optimisers import AdamW, Muon, Optimiser, Sgd
from drills.orders import Plan
from drills.solvers import FaultySolver, WrongInputSolver
from tests.fakes.alone import (
    SEGMENT,
    STEPS,
    Alone,
    recipe_alone,
    stream_alone,
    streaming,
    whole_alone,
)
from tests.fakes.jobs import RESOURCE_LIMITS, RULES, DiLoCo, recipe_files, three_files
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import MAY_BE_ABSENT, absent_in_round_1, convicted, roots_of, staffed
from tests.marked import only

SIZES = dict.fromkeys((name for name, entry in CATALOGUE.items() if entry.one_step), (1, 1))
"""Steps of a round and of a segment, where they are not the tiny job's."""
ROUNDS = {"streaming": 4, "diloco-late": 3, "delayed-nesterov": 4}
"""Number of rounds; the last ones start from the first ones' output."""
SPEEDS = {"delayed-nesterov": (1, 2)}
"""First slow shard, and how many times fewer steps it takes."""


def alone(name: str, terms: Terms) -> Alone:
    """The same rounds in one process."""
    rule = RULES.get(name, DiLoCo())
    if name == WHOLE:
        return whole_alone(rule, terms.seed, terms.rounds)
    if name == "streaming":
        return stream_alone(streaming(rule), terms.seed, terms.rounds)
    algorithm = algorithm_of(name, rule.lr, rule.momentum, rule.every)
    return recipe_alone(
        algorithm,
        terms.seed,
        terms.rounds,
        shards=terms.shards,
        size=SIZES.get(name, (STEPS, SEGMENT)),
        slow=SPEEDS.get(name, (0, 1)),
    )


@pytest.mark.long
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_settled_state_is_that_of_one_process(day: MarketDay, tmp_path: Path, name: str) -> None:
    """Every root of every claim, at every segment's end, and the model that is fetched."""
    steps, segment = SIZES.get(name, (STEPS, SEGMENT))
    files = recipe_files(name)
    shape: dict[str, Any] = {"steps_per_round": steps, "segment_steps": segment}
    shape |= {"rounds": ROUNDS.get(name, 2), "slow": SPEEDS.get(name, (0, 1)), "solver_stake": 200}
    job_id = day.post(files, **shape)
    terms = day.market_state.jobs[job_id].view.terms
    staffed(day)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert not day.market_state.games
    expected, found = alone(name, terms), day.fetch(job_id, tmp_path / "model")
    assert roots_of(day) == expected.roots and len(expected.roots) == terms.rounds * (terms.shards + 1)
    assert all(torch.equal(x, y) for x, y in zip(found.values(), expected.theta, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(found.values(), files.genesis, strict=False)), (
        "it learnt"
    )


@pytest.mark.long
def test_an_absent_shard_has_no_part_in_the_sum(day: MarketDay, tmp_path: Path) -> None:
    """Round 1 closes without a shard: its wire is the genesis state's, and its presence says so."""
    job_id = day.post(recipe_files("diloco-4bit"), rounds=3, **MAY_BE_ABSENT)
    staffed(day)
    dead = absent_in_round_1(day, job_id)
    seed = day.market_state.jobs[job_id].view.terms.seed
    found = day.fetch(job_id, tmp_path / "model")
    algorithm = algorithm_of("diloco-4bit", 0.7, 0.9)
    (expected,) = recipe_alone(algorithm, seed, 3, {(1, dead)}).theta
    assert torch.equal(found["w"], expected)
    (all_there,) = recipe_alone(algorithm, seed, 3).theta
    assert not torch.equal(found["w"], all_there), "its absence was felt"
    assert tasks_counted(day.markets["client"], job_id) == (5, 6), "and a client is told"


def fallen(
    day: MarketDay, kind: Any, shards: int = 2, name: str = "diloco-4bit", rounds: int = 2
) -> tuple[Any, Any]:
    """One cheat in a job by this algorithm: what the whistleblower found, and the claim that fell."""
    job_id = day.post(recipe_files(name, shards), rounds=rounds, shards=shards, min_shards=shards)
    return convicted(day, job_id, kind)


def test_one_bit_in_the_compress_loop_is_convicted(day: MarketDay) -> None:
    """Every verifier replays the loop's one segment, so nothing can hide there."""
    files = recipe_files("diloco-4bit")
    code = next(i for i in range(files.tasks[1].slots) if files.slot_names[i] == "wire.0")
    fault = NodeFault(0, files.tasks[1].outputs[code], 3)
    finding, view = fallen(day, partial(FaultySolver, plan=Plan(0, 0, fault, loop=1)), 1)
    assert (view.claim.kind, view.claim.round) == (Kind.TASK, 0)
    assert isinstance(finding, WrongSegment), "the fault was planted"
    assert finding.segment == 4, "in the last loop"


def keep_own_base(kind: Kind, round_: int, shard: int, honest: Any) -> list[Tensor]:
    """A task that compresses its change from the genesis parameters, and not from the last outer step's."""
    state = list(honest(kind, round_, shard))
    if kind == Kind.TASK and round_:
        base = recipe_files("diloco-4bit").slot_names.index("base.w")
        state[base] = honest(kind, 0, shard)[base]
    return state


def test_an_input_that_is_not_its_links_is_convicted_in_one_move(day: MarketDay) -> None:
    finding, view = fallen(day, partial(WrongInputSolver, patch=keep_own_base))
    assert isinstance(finding, WrongInput) and view.claim.round == 1
    assert finding.slot == recipe_files("diloco-4bit").slot_names.index("base.w")
    assert not day.market_state.games, "a binding takes no game"


@pytest.mark.long
def test_a_false_presence_is_convicted_in_one_move(day: MarketDay) -> None:
    def pretend(kind: Kind, round_: int, shard: int, honest: Any) -> list[Tensor]:
        state = list(honest(kind, round_, shard))
        return [*state[:-1], torch.tensor(False)] if kind == Kind.OUTER else state

    finding, view = fallen(day, partial(WrongInputSolver, patch=pretend))
    assert isinstance(finding, WrongInput) and view.claim.kind == Kind.OUTER
    assert finding.source is None and not finding.source_proof, "a byte needs no claim to come from"


@pytest.mark.parametrize(
    "name",
    only(("diloco-4bit", "streaming"), CATALOGUE),
)
def test_every_named_algorithm_is_a_sound_round(name: str) -> None:
    files = recipe_files(name)
    for program in (*files.tasks, *files.outers):
        limits = RESOURCE_LIMITS
        validate(program, 8, max_bytes=limits.step_bytes, max_operations=limits.step_operations)
    assert len(files.tasks) == loops_of(name)
    assert [len(files.genesis), len(files.outer_genesis)] == [files.inner.slots, files.outer.slots]
    assert program_ref(files.tasks[0]).slots == sum(link.slots for link in files.links)
    assert program_ref(files.outer).slots == sum(link.slots for link in files.outer_links)
    assert len(set(files.slot_names)) == files.inner.slots


@pytest.mark.parametrize(
    ("name", "suits", "unsuited", "why"),
    [
        ("muloco", Muon(), (AdamW(), Sgd()), "Muon within"),
        ("demo", Sgd(momentum=0.0), (AdamW(), Sgd(), Sgd(momentum=0.0, weight_decay=0.1)), "be the gradient"),
        ("data-parallel", Sgd(nesterov=True), (AdamW(), Sgd(clip_norm=1.0)), "for SGD without clipping"),
    ],
)
def test_an_algorithm_that_is_defined_with_an_optimiser_takes_no_other(
    name: str, suits: Optimiser, unsuited: tuple[Optimiser, ...], why: str
) -> None:
    check_optimiser(name, suits)
    for rule in unsuited:
        check_optimiser("diloco", rule)
        with pytest.raises(Stop, match=why):
            check_optimiser(name, rule)


def test_what_does_not_suit_an_algorithm_is_refused_with_the_reason(day: MarketDay) -> None:
    with pytest.raises(Stop, match="cannot be divided into segments"):
        check_rounds("diloco", 3, 65, 4)
    with pytest.raises(Stop, match="is one step"):
        check_rounds("demo", 3, 64, 4)
    check_rounds("demo", 3, 1, 1)
    with pytest.raises(Stop, match="so it has one round, not 3"):
        check_rounds("lofi", 3, 64, 4)
    check_rounds("lofi", 1, 64, 4)
    with pytest.raises(Stop, match="number by number is not known"):
        check_slices("own")
    with pytest.raises(Stop, match="no outer algorithm"):
        algorithm_of("diloco-3bit", 0.7, 0.9)
    with pytest.raises(Stop, match="has no momentum"):
        algorithm_of("fedavg", 1.0, 0.9)


def test_links_of_unlike_shapes_are_refused_by_nodes(day: MarketDay) -> None:
    """The chain sees no shapes: an honest input would not exist, so no node works on such a job."""
    job_id = day.post(recipe_files("diloco-4bit"), rounds=2)
    terms = day.market_state.jobs[job_id].view.terms
    files = recipe_files("diloco-4bit")
    every = {Kind.TASK: files.tasks, Kind.OUTER: files.outers}
    check_shapes(every, terms)
    own, sent, present = terms.outer_links
    for bad in ((own, replace(sent, first=sent.first - 1), present), (own, present, sent)):
        with pytest.raises(BadManifest, match="dtype or shape of slot"):
            check_shapes(every, replace(terms, outer_links=bad))


@pytest.mark.parametrize(("name", "shards"), [(WHOLE, 1_364), ("diloco-4bit", 1_400), ("streaming", 1_400)])
def test_more_shards_than_an_outer_step_has_room_for_are_refused(name: str, shards: int) -> None:
    """A program has 4,096 slots, of which each shard takes some for each parameter."""
    tiny = three_files()
    state = tiny.genesis, tiny.slot_names
    with pytest.raises(
        Stop, match=f"of {shards} shards are too many for one outer step by {name}"
    ) as refused:
        made_round(name, tiny.inner, *state, shards, DiLoCo())
    assert "fewer shards" in refused.value.hint

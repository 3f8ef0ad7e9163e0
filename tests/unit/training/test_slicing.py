"""An outer step in slices: the same bits as one of whole parameters, and every slice disputable."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from assay.app.job_progress import progress_table
from assay.client.following import follow
from assay.node.findings import WrongInput, WrongSegment
from assay.node.idle_reasons import place_of
from assay.node.job_programs import check_shapes, program_ref
from assay.node.manifests import BadManifest
from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType, Program
from assay.program.validate import validate
from assay.protocol.errors import Stop
from assay.protocol.loops import round_shape
from assay.protocol.params import BadTerms, check_shape
from assay.protocol.types import Kind, Loop, Phase, Role, Wei
from assay.training.catalogue import CATALOGUE, RECIPES
from assay.training.job import JobArtifacts, made_round
from assay.training.outer import DiLoCo
from assay.training.rounds import programs
from assay.training.slicing import PARAMETERS, Blocks, blocks_in, blocks_of, least_slices
from drills.orders import AggregatePlan
from drills.solvers import FaultySolver, WrongInputSolver
from tests.fakes.alone import train
from tests.fakes.classes import WIDE
from tests.fakes.jobs import account, recipe_files, three_files
from tests.fakes.market_day import MarketDay
from tests.fakes.opened import states_of
from tests.fakes.staged import MAY_BE_ABSENT, absent_in_round_1, convicted, staffed
from tests.fakes.terms import some_terms
from tests.marked import long, only

CHEAP = {"outer_fee": Wei(1)}
"""So that the small job's stake covers the outer claims of all slices."""


def whole_files(shards: int = 2) -> JobArtifacts:
    """DiLoCo of three parameters, which the outer step takes whole."""
    three = three_files(shards)
    made = made_round("diloco", three.inner, three.genesis, three.slot_names, shards, DiLoCo())
    return JobArtifacts(**vars(made), records=three.records, held_out=b"", model=three.model)


def test_a_program_on_blocks_computes_the_same_bits() -> None:
    """Parameters of any sizes in any number of blocks, with further slots, one of them unchanged."""
    rng = random.Random("blocks")
    for _ in range(40):
        shapes = [
            tuple(rng.randint(1, 4) for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(1, 40))
        ]
        b = ProgramBuilder()
        slots = [b.state(DType.F32, shape) for shape in (*shapes, (3,))]
        after = [b.mul(x, b.add(b.sum(slots[-1]), b.const(0.3, DType.F32))) for x in slots[:-1]]
        after[0] = slots[0]
        train = b.finish([*after, b.neg(slots[-1])], params=len(shapes))
        total = sum(map(prod, shapes))
        blocks = blocks_of([f"p{i}" for i in range(len(shapes))], shapes, rng.randint(1, min(total, 9)))
        program, shift = blocks.program(train)
        validate(program, 0, max_bytes=1 << 30, max_operations=1 << 30)
        assert [node.op for node in program.nodes[train.slots + shift :]][
            : len(train.nodes) - train.slots
        ] == [node.op for node in train.nodes[train.slots :]]
        start = [torch.randn(shape) for shape in (*shapes, (3,))]
        expected, found = list(start), [*blocks.joined(start[:-1]), start[-1]]
        for step in range(2):
            at = StepContext(None, bytes(32), 0, step)
            expected = list(Executor(train).step(expected, at))
            found = list(Executor(program).step(found, at))
        parted = blocks.parted(found[:-1])
        assert list(parted) == list(blocks.names)
        for tensor, right in zip((*parted.values(), found[-1]), expected, strict=True):
            assert torch.equal(tensor, right) and tensor.shape == right.shape


@pytest.mark.long
@pytest.mark.parametrize("slices", [2, 3])
def test_slices_give_the_bits_of_one_outer_step(day: MarketDay, tmp_path: Path, slices: int) -> None:
    """Blocks of four numbers, or of three: parameters of four, two and two lie across them, and one is
    padded."""
    models = []
    staffed(day)
    for nonce, files in enumerate((whole_files(), recipe_files("diloco", slices=slices)), 2):
        job_id = day.post(files, rounds=2, nonce=nonce, **CHEAP)
        assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
        terms = day.market_state.jobs[job_id].view.terms
        assert len(day.phases(job_id, Kind.OUTER)) == 2 * terms.slices
        models.append(day.fetch(job_id, tmp_path / f"model-{nonce}"))
    assert terms.slices == slices and not day.market_state.games
    outers = [e.claim for e in day.market_state.claims.values() if e.claim.job_id == job_id]
    assert len({claim.claimant for claim in outers if claim.kind == Kind.OUTER}) == 2, "they share the work"
    whole, sliced = models
    assert list(whole) == list(sliced) == ["w", "v", "u"]
    for name, tensor in whole.items():
        assert torch.equal(tensor, sliced[name]), name
        assert not torch.equal(tensor, dict(zip(whole, three_files().genesis, strict=False))[name])


def four_bits_alone(seed: bytes, rounds: int, absent: set[tuple[int, int]]) -> dict[str, Tensor]:
    """DiLoCo with 4-bit codes of two blocks, by the algorithm's own programs one after another."""
    three, algorithm = three_files(), RECIPES["diloco-4bit"]
    blocks = blocks_of(["w", "v", "u"], [(4,), (2,), (2,)], 2)
    made = programs(algorithm, [(4,)] * 2, 2, part=1)
    compress, outer = Executor(made.compress), Executor(made.outer)
    empty = [torch.zeros_like(t) for wire in made.wires for t in wire]
    each = len(empty) // 2
    own, residuals = [list(three.genesis[3:]) for _ in range(2)], [[torch.zeros(4)] * 2 for _ in range(2)]
    theta, moments = blocks.joined(three.genesis[:3]), [torch.zeros(4)] * 2
    for round_ in range(rounds):
        sent = []
        for shard in range(2):
            if (round_, shard) in absent:
                sent.append(empty)
                continue
            at = StepContext(None, seed, shard, round_)
            last = train([*blocks.parted(theta).values(), *own[shard]], seed, shard, round_, (8, 2), three)[
                -1
            ]
            packed = compress.step([*theta, *blocks.joined(last[:3]), *residuals[shard], *empty], at)
            own[shard], residuals[shard] = last[3:], list(packed[4:6])
            sent.append(list(packed[6:]))
        here = [torch.tensor((round_, shard) not in absent) for shard in range(2)]
        for number in range(2):
            wires = [t for wire in sent for t in wire[number * each :][:each]]
            at = StepContext(None, seed, number, round_)
            theta[number], moments[number], *_ = outer.step(
                [theta[number], moments[number], *wires, *here], at
            )
    return blocks.parted(theta)


@pytest.mark.long
def test_codes_of_slices_and_an_absent_shard_are_added_as_they_are_alone(
    day: MarketDay, tmp_path: Path
) -> None:
    job_id = day.post(recipe_files("diloco-4bit", slices=2), rounds=3, **MAY_BE_ABSENT, **CHEAP)
    staffed(day)
    dead = absent_in_round_1(day, job_id)
    found = day.fetch(job_id, tmp_path / "model")
    seed = day.market_state.jobs[job_id].view.terms.seed
    for name, tensor in four_bits_alone(seed, 3, {(1, dead)}).items():
        assert torch.equal(found[name], tensor), name
    assert not torch.equal(found["w"], four_bits_alone(seed, 3, set())["w"]), "its absence was felt"


def test_who_computes_a_slice_fetches_its_part_of_every_wire_alone(day: MarketDay) -> None:
    files = recipe_files("diloco", slices=2)
    job_id = day.post(files, rounds=1, **CHEAP)
    staffed(day)
    assert day.run(day.closed(job_id))
    provider = states_of(day.services["ann"], job_id)
    for number in range(2):
        for slot in range(2, 4):
            source: Any = provider.source_of(Kind.OUTER, 0, number, slot)
            assert (source.place, source.slot) == ((Kind.TASK, 0, slot - 2), number)
    assert files.outer.state_bytes < files.inner.state_bytes + 3 * 16, "no whole parameters are in it"


def test_whoever_follows_a_job_sees_how_many_slices_are_there(day: MarketDay) -> None:
    job_id = day.post(recipe_files("diloco", slices=2), rounds=1, **CHEAP)
    staffed(day)
    client = day.markets["client"]
    assert day.run(lambda: len(day.phases(job_id, Kind.TASK)) == 2)
    away = day.services.pop("bob")
    assert day.run(lambda: follow(client, job_id).slices == (1,)), day.events[-3:]
    half = follow(client, job_id)
    assert half.outer == (Phase.NONE,) and half.job.progress.round == 0
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(progress_table(half))
    assert "1 of 2 slices" in shown.export_text()
    day.services["bob"] = away
    assert day.run(day.closed(job_id))
    assert (follow(client, job_id).outer, follow(client, job_id).slices) == ((Phase.SETTLED,), (2,))
    places = {place_of(day.market_state.view(e)) for e in day.market_state.claims.values()}
    assert places == {"task 0/0", "task 0/1", "outer step 0", "outer step 0/1"}


def fallen(day: MarketDay, kind: Any, slices: int = 2) -> tuple[Any, Any]:
    """One cheat in a sliced job: what the whistleblower found, and the claim that fell."""
    job_id = day.post(recipe_files("diloco", slices=slices), rounds=2, **CHEAP)
    finding, view = convicted(day, job_id, kind)
    assert view.claim.kind == Kind.OUTER
    day.solver("carol")  # a cheat leaves
    honest = {name: market.me for name, market in day.markets.items() if name != "ann"}
    assert day.run(day.closed(job_id), turns=600), day.events[-5:]
    for name in ("bob", "v0", "v1"):
        stake = max(
            day.market_state.rules.funds.active(honest[name], role) for role in (Role.SOLVER, Role.VERIFIER)
        )
        assert stake in (1_000, 2_000), f"{name} lost nothing"
    return finding, view


def test_one_bit_in_a_slice_is_convicted_and_its_round_is_closed_again(day: MarketDay) -> None:
    finding, view = fallen(day, partial(FaultySolver, plan=AggregatePlan(0, 1)))
    assert isinstance(finding, WrongSegment), "the fault was planted"
    again = [
        e
        for e in day.market_state.claims.values()
        if e.claim.kind == Kind.OUTER and e.claim.round == view.claim.round
    ]
    settled = [e.claim.shard for e in again if e.status.phase == Phase.SETTLED]
    assert sorted(settled) == [0, 1], "both slices of its round were claimed anew, or stand"


def of_another_slice(kind: Kind, round_: int, shard: int, honest: Any) -> list[Tensor]:
    """A slice's outer claim that adds up the blocks of another slice."""
    state = list(honest(kind, round_, shard))
    if kind == Kind.OUTER:
        state[2:] = honest(kind, round_, 1 - shard)[2:]
    return state


def another_slices_first(kind: Kind, round_: int, shard: int, honest: Any) -> list[Tensor]:
    """A slice that starts from another slice's parameters, the genesis state of outer claims."""
    state = list(honest(kind, round_, shard))
    if kind == Kind.OUTER and round_ == 0:
        state[0] = honest(kind, round_, 1 - shard)[0]
    return state


@pytest.mark.parametrize(("patch", "slot"), [(of_another_slice, 2), long(another_slices_first, 0)])
def test_a_slice_of_other_inputs_is_convicted_in_one_move(day: MarketDay, patch: Any, slot: int) -> None:
    finding, _ = fallen(day, partial(WrongInputSolver, patch=patch))
    assert isinstance(finding, WrongInput) and finding.slot == slot
    if slot == 0:
        assert finding.source is None, "it is led to the root over all slices' first states"


@pytest.mark.long
def test_attack_08_one_lying_aggregator_among_honest_ones_falls_alone(day: MarketDay) -> None:
    """Of three slices of each round one is computed with one bit too many: it is convicted, what was built on
    it is done again, and the other two stand and are paid as if nothing had been."""
    job_id = day.post(
        recipe_files("diloco", shards=3, slices=3), rounds=2, shards=3, solver_stake=150, **CHEAP
    )
    day.solver("bob")
    day.solver("carol")
    finding, view = convicted(day, job_id, partial(FaultySolver, plan=AggregatePlan(0, 1)))
    assert isinstance(finding, WrongSegment), "the fault was planted"
    del day.services["ann"]
    day.solver("dave")
    assert day.run(day.closed(job_id), turns=900), day.events[-5:]
    mine = [e for e in day.market_state.claims.values() if e.claim.job_id == job_id]
    of_round = [e for e in mine if (e.claim.kind, e.claim.round) == (Kind.OUTER, view.claim.round)]
    fallen_ones = [e.claim.shard for e in of_round if e.status.phase == Phase.CONVICTED]
    assert fallen_ones == [view.claim.shard]
    honest = [e for e in of_round if e.claim.shard != view.claim.shard]
    assert [(e.claim.attempt, e.status.phase) for e in honest] == [(0, Phase.SETTLED)] * 2, "they stood"
    again = [e for e in of_round if e.claim.attempt == 1]
    assert [(e.claim.shard, e.status.phase) for e in again] == [(view.claim.shard, Phase.SETTLED)]
    assert not any(e.status.phase == Phase.VOID for e in of_round)


@pytest.mark.parametrize("name", only(("diloco-4bit", "streaming"), CATALOGUE))
def test_every_algorithm_is_sliced_or_refused_with_the_reason(name: str) -> None:
    if name in ("demo", "sparseloco", "streaming"):
        with pytest.raises(Stop, match=f"outer step of {name} cannot be cut into slices: "):
            recipe_files(name, slices=2)
        return
    files = recipe_files(name, slices=3)
    for program in (*files.tasks, *files.outers):
        validate(program, 8, max_bytes=1 << 30, max_operations=1 << 30)
    assert files.inner.params == 3 and files.outer.params == 1
    assert files.inner.slots == sum(link.slots for link in files.links)
    assert files.outer.slots == sum(link.slots for link in files.outer_links)
    assert len(files.genesis) == files.inner.slots and len(files.outer_genesis) == files.outer.slots


def test_more_slices_than_parameters_are_refused() -> None:
    with pytest.raises(Stop, match="8 parameters cannot be cut into 9 slices"):
        recipe_files("diloco", slices=9)


def stepped(shapes: Sequence[tuple[int, ...]]) -> Program:
    """Approximate gradient descent on parameters of these shapes, and a counter."""
    b = ProgramBuilder()
    slots = [*(b.state(DType.F32, shape) for shape in shapes), b.state(DType.I32, ())]
    after = [b.mul(x, b.const(0.5, DType.F32)) for x in slots[:-1]]
    return b.finish([*after, b.iadd(slots[-1], b.const(1, DType.I32))], params=len(shapes))


@pytest.mark.parametrize("seed", range(12))
def test_any_number_of_slices_that_is_built_is_what_the_market_takes(seed: int) -> None:
    """Tensors of any shapes, shards and slices at random: what comes out keeps the rules of terms and of
    programs, a part that is wrong by one does not; what is refused says what is needed."""
    rng = random.Random(f"sliced {seed}")
    shapes = [tuple(rng.randint(1, 5) for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(1, 60))]
    total, shards = sum(map(prod, shapes)), rng.choice([1, 2, 7, 256])
    slices = rng.choice([1, 2, 3, 16, 255, total, total + 1])
    train, names = stepped(shapes), [*(f"p{i}" for i in range(len(shapes))), "steps"]
    if slices > total:
        with pytest.raises(Stop, match=f"{total} parameters cannot be cut into {slices} slices"):
            blocks_of(names[:-1], shapes, slices)
        return
    blocks = blocks_of(names[:-1], shapes, slices)
    program, _ = blocks.program(train)
    start = [*blocks.joined([torch.zeros(shape) for shape in shapes]), torch.zeros((), dtype=torch.int32)]
    made = made_round("diloco", program, start, [*blocks.block_names, "steps"], shards, DiLoCo(), slices)
    refs = [program_ref(made.inner), program_ref(made.outers[0])]
    loops = Loop(refs[0].root, refs[0].nodes, 8, 2, 1), Loop(refs[1].root, refs[1].nodes, 1, 1, 0)
    links = made.links, made.outer_links
    shape = round_shape([loops[0]], [loops[1]], links, program.params, slices)
    terms = some_terms(shape, client=account("client"), shards=shards, min_shards=1, solver_stake=Wei(10**12))
    check_shape(terms, WIDE)
    check_shapes({Kind.TASK: made.tasks, Kind.OUTER: made.outers}, terms)
    assert terms.outer_slots == 2 + shards and terms.slots == slices + 1
    sent = terms.outer_links[1]
    beyond = replace(sent, stride=sent.stride + 1) if slices > 1 else replace(sent, first=2)
    with pytest.raises((BadTerms, BadManifest)):
        wrong = replace(terms, outer_links=(terms.outer_links[0], beyond))
        check_shape(wrong, WIDE)
        check_shapes({Kind.TASK: made.tasks, Kind.OUTER: made.outers}, wrong)


@pytest.mark.long
def test_148_tensors_of_256_shards_need_slices_and_get_them() -> None:
    """GPT-2 small's parameters by number, of another size: in one piece 25 shards are the most."""
    shapes = [(3,)] * 148
    train, names = stepped(shapes), [*(f"p{i}" for i in range(148)), "steps"]
    start = [torch.zeros(node.shape) for node in train.state]
    made_round("diloco", train, start, names, 25, DiLoCo())
    for shards in (26, 256):
        with pytest.raises(Stop, match=f"148 parameter tensors of {shards} shards are too many") as refused:
            made_round("diloco", train, start, names, shards, DiLoCo())
        assert "write slices = 1 or more in [outer]" in refused.value.hint
    assert least_slices([(50_257, 768), (85_000_000,)], 256) == 15, "8 GiB of 258 copies of 0.5 GB"


@pytest.mark.parametrize(
    "said",
    [
        [],
        "w",
        [["w"]],
        [["w", [4]], ["w", [4]]],
        [["w", [5]], ["v", [4]]],
        [["w", [-4]], ["v", [12]]],
        [["w", 8]],
        [[8, [8]]],
        [["w", [True, 8]]],
    ],
)
def test_a_description_that_does_not_fill_the_blocks_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match="parameter"):
        blocks_in({PARAMETERS: said}, [(4,), (4,)])
    assert blocks_in({PARAMETERS: [["w", [8]]]}, [(4,), (4,)]) == Blocks(("w",), ((8,),), 2)
    assert blocks_in({}, [(4,), (4,)]) is None

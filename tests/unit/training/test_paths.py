"""DiPaCo: its paper's equations in float64, paths' own records, its bits through the market, and cheats in a
module and about which module a path takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from assay.client.fetched import of_path
from assay.client.receipt import MODEL, BadReceipt
from assay.client.verifying import verify
from assay.compute.node_calls import NodeCalls
from assay.node.artifacts import LoadedJob, load_job
from assay.node.engine import Engine
from assay.node.findings import WrongInput, WrongSegment
from assay.node.job_programs import check_shapes
from assay.node.manifests import BadManifest
from assay.node.work import Work
from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.fault import NodeFault
from assay.program.isa import DType
from assay.protocol.errors import Stop
from assay.protocol.loops import model_names, model_slots
from assay.protocol.types import Kind
from assay.training.algorithms import Algorithm, Nesterov
from assay.training.codings import E3M0
from assay.training.paths import Paths, check_paths, path_programs, path_records, paths_of
from drills.orders import FaultySpec, Plan
from drills.solvers import FaultySolver, WrongInputSolver
from tests.fakes.alone import paths_alone
from tests.fakes.jobs import RESOURCE_LIMITS, DiLoCo, recipe_files
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import MAY_BE_ABSENT, absent_in_round_1, roots_of, staffed
from tests.marked import long
from tests.unit.training.test_catalogue import fallen

SCRIPT = Path(__file__).parents[3] / "examples" / "verify_receipt.py"
CONTEXT = StepContext(None, bytes(32), 0, 0)
Array = np.ndarray


class Reference:
    """The paper's outer step in float64. `where[u]`: the module of each of path u's parameters, by a name."""

    def __init__(self, start: dict[str, Array], lr: float, momentum: float) -> None:
        self.theta = {name: x.copy() for name, x in start.items()}
        self.moments = {name: np.zeros_like(x) for name, x in start.items()}
        self.lr, self.momentum = lr, momentum

    def step(self, where: Sequence[Sequence[str]], local: Sequence[Sequence[Array] | None]) -> None:
        for name, theta in self.theta.items():
            changes = [
                theta - made[held.index(name)]
                for held, made in zip(where, local, strict=True)
                if made is not None and name in held
            ]
            if not changes:
                continue
            change = np.sqrt(len(changes)) * np.mean(changes, 0)
            self.moments[name] = self.momentum * self.moments[name] + change
            self.theta[name] = theta - self.lr * (change + self.momentum * self.moments[name])


def where_of(paths: Paths, params: int) -> list[list[str]]:
    """Names of each path's parameters, in its task's order, by the paper's grid: module (l, e) of level l."""
    held = {i: level for level, members in enumerate(paths.levels) for i in members}
    grid = np.stack(np.unravel_index(np.arange(paths.count), [paths.modules] * len(paths.levels), order="F"))
    return [
        [f"{i}/{grid[held[i], u]}" if i in held else f"{i}" for i in paths.order(params)]
        for u in range(paths.count)
    ]


def outer_order(paths: Paths, params: int) -> list[str]:
    """Names of the outer state's parameters."""
    modular = [i for level in paths.levels for i in level]
    shared = [f"{i}" for i in paths.order(params) if i not in modular]
    return shared + [f"{i}/{e}" for e in range(paths.modules) for i in modular]


class Run:
    """Compress and outer programs between rounds."""

    def __init__(self, paths: Paths, start: dict[int, Tensor], algorithm: Algorithm) -> None:
        params = len(start)
        made = path_programs(algorithm, paths, [tuple(start[i].shape) for i in paths.order(params)])
        self.compress, self.outer, self.paths = Executor(made.compress), Executor(made.outer), paths
        self.order, self.where = outer_order(paths, params), where_of(paths, params)
        self.theta = {name: start[int(name.partition("/")[0])].clone() for name in self.order}
        self.rest = [x for p in self.theta.values() for x in algorithm.rule.start(p)]
        self.empty = [torch.zeros_like(t) for wire in made.wires for t in wire]

    def base(self, path: int) -> list[Tensor]:
        return [self.theta[name] for name in self.where[path]]

    def round(self, local: Sequence[Sequence[Tensor] | None]) -> None:
        """An absent path's wire is spoiled."""
        sent: list[Tensor] = []
        for u, made in enumerate(local):
            if made is None:
                sent += [torch.full_like(t, torch.nan) for t in self.empty]
            else:
                given = [*self.base(u), *made, *self.empty]
                sent += self.compress.step(given, CONTEXT)[2 * len(made) :]
        here = [torch.tensor(made is not None) for made in local]
        after = self.outer.step([*self.theta.values(), *self.rest, *sent, *here], CONTEXT)
        self.theta = dict(zip(self.order, after, strict=False))
        self.rest = list(after[len(self.order) : len(self.order) + len(self.rest)])


@pytest.mark.long
def test_rounds_on_a_quadratic_follow_the_papers_equations() -> None:
    """Two levels of two modules between shared parameters; one path is away in round 2, and both paths of a
    module in round 3, which then stands still."""
    shapes = {0: (3,), 1: (2, 2), 2: (4,), 3: (2,), 4: (5,)}
    generator = torch.Generator().manual_seed(4)
    start = {i: torch.randn(shape, generator=generator) for i, shape in shapes.items()}
    paths = Paths(2, ((1, 2), (3,)))
    run = Run(paths, start, Algorithm(Nesterov(0.7, 0.9)))
    wide = {name: run.theta[name].double().numpy() for name in run.order}
    reference = Reference(wide, 0.7, 0.9)
    optima = [[torch.randn(x.shape, generator=generator) for x in run.base(u)] for u in range(4)]
    for round_ in range(5):
        away = {2: {1}, 3: {1, 3}}.get(round_, set())
        local: list[list[Tensor] | None] = []
        narrow: list[list[Array] | None] = []
        for u in range(4):
            if u in away:
                local.append(None)
                narrow.append(None)
                continue
            base = [reference.theta[name] for name in run.where[u]]
            local.append([p - 0.3 * (p - o) for p, o in zip(run.base(u), optima[u], strict=True)])
            narrow.append([p - 0.3 * (p - o.double().numpy()) for p, o in zip(base, optima[u], strict=True)])
        before = dict(run.theta)
        run.round(local)
        reference.step(run.where, narrow)
        for name in run.order:
            assert np.allclose(run.theta[name].double().numpy(), reference.theta[name], atol=2e-5), (
                round_,
                name,
            )
            still = name in ("1/1", "2/1") and round_ == 3
            assert torch.equal(run.theta[name], before[name]) == still, (round_, name)
        assert not torch.equal(run.theta["1/0"], run.theta["1/1"]), "each module goes its own way"


def test_the_first_step_is_against_the_mean_times_the_root_of_the_paths() -> None:
    """Shared by four paths, of a level by two each; the first momentum is the change."""
    run = Run(Paths(2, ((1,), (2,))), {i: torch.zeros(1) for i in range(3)}, Algorithm(Nesterov(0.5, 0.8)))
    run.round([[torch.tensor([float(u + 1)])] * 3 for u in range(4)])
    told = {name: x.item() for name, x in run.theta.items()}
    step = 0.5 * 1.8
    wanted = {"0": 2 * 2.5, "1/0": 2**0.5 * 2, "1/1": 2**0.5 * 3, "2/0": 2**0.5 * 1.5, "2/1": 2**0.5 * 3.5}
    assert told == pytest.approx({name: step * x for name, x in wanted.items()}, rel=1e-6)


@pytest.mark.long
def test_error_feedback_and_codes_go_along_a_path() -> None:
    """A path's change in 4 bits, with feedback, reaches its modules alone."""
    paths = Paths(2, ((1,),))
    algorithm = Algorithm(Nesterov(1.0, 0.0), E3M0(), feedback=1.0)
    made = path_programs(algorithm, paths, [(6,), (6,)])
    local = [torch.linspace(0.1, 1, 6), torch.linspace(-1, 0.3, 6)]
    zeros, empty = [torch.zeros(6)] * 2, [torch.zeros_like(t) for wire in made.wires for t in wire]
    after = Executor(made.compress).step([*zeros, *local, *zeros, *empty], CONTEXT)
    residuals, wire = after[4:6], after[6:]
    assert all(r.any() for r in residuals)
    rule = [torch.zeros(6)] * 3
    here = [torch.tensor(True), torch.tensor(False)]
    theta = Executor(made.outer).step([*[torch.zeros(6)] * 3, *rule, *wire, *empty, *here], CONTEXT)[:3]
    for x, r, moved in zip(theta, residuals, local, strict=False):
        assert torch.allclose(x - r, moved, atol=1e-6), "sent and held back are all of it"
    assert not theta[2].any(), "the other path's module has no change"


# -- what a client says


def test_paths_are_named_by_patterns_and_what_does_not_fit_is_refused() -> None:
    names = ["embedding", "blocks.0.up", "blocks.0.down", "norm", "blocks.1.up"]
    paths = paths_of(names, [["blocks.1.*"], ["blocks.0.up", "blocks.0.down"]], 3)
    assert paths == Paths(3, ((4,), (1, 2))) and paths.count == 9
    assert paths.order(5) == [0, 3, 4, 1, 2]
    assert [paths.module(1, u) for u in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for levels, why in (([["blocks.2.*"]], "called blocks.2"), ([["blocks.*"], ["*.up"]], "in two levels")):
        with pytest.raises(Stop, match=why):
            paths_of(names, levels, 2)
    check_paths(paths, 9, 100)
    with pytest.raises(Stop, match="are 9 paths, and there are 8 shards"):
        check_paths(paths, 8, 100)
    with pytest.raises(Stop, match="too many"):
        check_paths(paths, 9, 1 << 24)


@pytest.mark.parametrize(("records", "rows", "paths"), [(103, 4, 3), (7, 7, 1), long(4096, 1, 2), (50, 3, 4)])
def test_each_path_reads_its_own_part_in_order(records: int, rows: int, paths: int) -> None:
    """First records of steps, at the counters where a rounded quotient could be off by one, too."""
    b = ProgramBuilder()
    slot = b.state(DType.I32, ())
    program = Executor(b.finish([path_records(records, rows, paths)(b, [slot])], params=1))
    part = records // paths
    turns = part // rows
    near = [k * turns + d for k in (1, 7, (1 << 24) // turns - 1) for d in (-1, 0, 1)]
    for step in (*range(2 * turns + 2), *near):
        for path in range(paths):
            (first,) = program.step(
                [torch.zeros((), dtype=torch.int32)], StepContext(None, bytes(32), path, step)
            )
            assert int(first) == path * part + step % turns * rows, (step, path)
            assert int(first) + rows <= (path + 1) * part
    with pytest.raises(Stop, match="a step reads"):
        path_records(10, 6, 2)


# -- in the market


@pytest.mark.long
def test_the_market_gives_its_bits_and_all_modules_lead_to_the_root(day: MarketDay, tmp_path: Path) -> None:
    """Three rounds of two paths; what is fetched are the modules of both, with one proof."""
    job_id = day.post(recipe_files("dipaco"), rounds=3, max_unsettled=3, solver_stake=200)
    terms = day.market_state.jobs[job_id].view.terms
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    assert not day.market_state.games
    expected = paths_alone(DiLoCo(), terms.seed, 3)
    assert roots_of(day) == expected.roots
    folder = tmp_path / "model"
    found = day.fetch(job_id, folder)
    assert list(found) == ["v", "u", "w", "w@1"] == model_names(terms, recipe_files("dipaco").slot_names)
    assert all(torch.equal(x, y) for x, y in zip(found.values(), expected.theta, strict=True))
    assert not torch.equal(found["w"], found["w@1"]), "each path has its own records"
    assert [model_slots(terms, path) for path in range(2)] == [[0, 1, 2], [0, 1, 3]]
    assert verify(folder).rounds == 3
    alone = [sys.executable, "-I", str(SCRIPT), str(folder)]
    assert subprocess.run(alone, capture_output=True, timeout=60).returncode == 0
    held = load_file(folder / MODEL)
    assert torch.equal(of_path(folder, held, 1)["w"], found["w@1"])
    with pytest.raises(Stop, match="no path 2"):
        of_path(folder, held, 2)
    save_file({**held, "w@1": held["w@1"] + 1}, folder / MODEL)
    with pytest.raises(BadReceipt):
        verify(folder)
    assert subprocess.run(alone, capture_output=True, timeout=60).returncode != 0


@pytest.mark.slow
def test_a_module_without_paths_stands_still_in_the_market(day: MarketDay, tmp_path: Path) -> None:
    job_id = day.post(recipe_files("dipaco"), rounds=3, **MAY_BE_ABSENT)
    staffed(day)
    dead = absent_in_round_1(day, job_id)
    expected = paths_alone(DiLoCo(), day.market_state.jobs[job_id].view.terms.seed, 3, {(1, dead)})
    found = day.fetch(job_id, tmp_path / "model")
    assert all(torch.equal(x, y) for x, y in zip(found.values(), expected.theta, strict=True))


def test_modules_of_unlike_shapes_are_refused_by_nodes(day: MarketDay) -> None:
    """Every part that some path may take has the shape of the first."""
    files = recipe_files("dipaco")
    job_id = day.post(files)
    terms = day.market_state.jobs[job_id].view.terms
    every = {Kind.TASK: files.tasks, Kind.OUTER: files.outers}
    check_shapes(every, terms)
    level = terms.links[1]
    assert (level.mod, level.stride, level.count) == (2, 1, 1)
    with pytest.raises(BadManifest, match="another shape"):
        check_shapes(
            every, replace(terms, links=(terms.links[0], replace(level, stride=2), *terms.links[2:]))
        )


@pytest.mark.parametrize("trick", ["a name of a part", "a part apart"])
def test_attack_T27_a_model_that_no_receipt_could_hold_is_no_job(day: MarketDay, trick: str) -> None:
    """A parameter called what the other module of w is, so that one of the two is lost; and a "module" of w
    behind the rule's state, with slots between that have no name."""
    files = recipe_files("dipaco")
    assert files.slot_names[:3] == ["v", "u", "w"]
    if trick == "a name of a part":
        bad = replace(files, slot_names=["v", "w@1", *files.slot_names[2:]])
        why = "two tensors of the model are called 'w@1'"
    else:
        links = tuple(replace(link, stride=4) if link.mod > 1 else link for link in files.links)
        bad, why = replace(files, links=links), "slot 3 of the outer state is no part of the model"
    good, hostile = day.post(files), day.post(bad, nonce=2)
    terms = {job: day.market_state.jobs[job].view.terms for job in (good, hostile)}
    load_job(day.blocks(), terms[good], RESOURCE_LIMITS)
    with pytest.raises(BadManifest, match=why):
        load_job(day.blocks(), terms[hostile], RESOURCE_LIMITS)


def test_one_bit_of_a_module_is_convicted(day: MarketDay) -> None:
    """A module's parameter at one step of its path's training."""
    files = recipe_files("dipaco")
    slot = files.slot_names.index("w")
    faults = [Plan(0, path, NodeFault(5, files.inner.outputs[slot], 1)) for path in range(2)]

    class BothSpec(FaultySpec):
        """Whichever path is its own."""

        def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
            work = super().make_work(files, engine, desk)
            work.faults.update({(0, p.shard): p.fault for p in faults})
            return work

    class Both(FaultySolver):
        kind = BothSpec

    finding, view = fallen(day, partial(Both, plan=faults[0]), 2, "dipaco")
    assert (view.claim.kind, view.claim.round) == (Kind.TASK, 0)
    assert isinstance(finding, WrongSegment) and finding.segment == 2


def test_a_path_that_takes_another_module_is_convicted_in_one_move(day: MarketDay) -> None:
    """The second round's task begins from the other path's module, as that path's task rightly does."""
    slot = recipe_files("dipaco").slot_names.index("w")

    def other(kind: Kind, at: int, shard: int, honest: Any) -> list[Tensor]:
        state = list(honest(kind, at, shard))
        if kind == Kind.TASK and at == 1:
            state[slot] = honest(kind, at, 1 - shard)[slot]
        return state

    finding, view = fallen(day, partial(WrongInputSolver, patch=other), 2, "dipaco")
    assert isinstance(finding, WrongInput) and (finding.slot, view.claim.round) == (slot, 1)
    assert not day.market_state.games, "a binding takes no game"

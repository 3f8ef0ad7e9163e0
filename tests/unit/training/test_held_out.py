"""The loss of each round's parameters on held-out records, as every task computes it."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch.func import functional_call

from assay.client.following import Following, follow
from assay.client.job_events import JobEventKind, events_between
from assay.client.losses import losses_of
from assay.compute.node_calls import NodeCalls
from assay.node.artifacts import LoadedJob, load_job
from assay.node.engine import Engine
from assay.node.findings import WrongSegment
from assay.node.work import Work
from assay.program.execute import Executor, StepContext
from assay.program.fault import NodeFault
from assay.protocol.errors import Stop
from assay.protocol.types import Kind
from assay.training import datasets, models
from assay.training.catalogue import WHOLE
from assay.training.job import JobArtifacts, build_job
from assay.training.losses import HELD_OUT_LOSS, cross_entropy
from assay.training.optimisers import Sgd
from assay.training.outer import DiLoCo
from drills.orders import FaultySpec, Plan
from drills.solvers import FaultySolver
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import convicted, staffed

CONFIG = models.MlpConfig(hidden=8, layers=1)
DIGITS = datasets.digits()
RECORDS = 24


@cache
def made(algorithm: str = WHOLE, held_out: int = RECORDS, slices: int | None = None) -> JobArtifacts:
    return build_job(
        models.build(CONFIG, 0),
        cross_entropy,
        Sgd(lr=0.05),
        DIGITS,
        batch=8,
        shards=2,
        outer=DiLoCo(0.7, 0.9),
        algorithm=algorithm,
        slices=slices,
        held_out=held_out,
    )


def natively(params: dict[str, torch.Tensor]) -> float:
    """The loss as PyTorch has it."""
    inputs, targets = DIGITS.layout.split(DIGITS.held_out_batch(RECORDS))
    model = models.build(CONFIG, 0).eval()
    with torch.no_grad():
        return float(cross_entropy(functional_call(model, params, (inputs,)), targets))


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "slices"),
    [(WHOLE, None), (WHOLE, 3), *((name, None) for name in ("diloco-4bit", "streaming"))],
)
def test_the_step_is_the_models_loss_and_stands_before_the_training(
    algorithm: str, slices: int | None
) -> None:
    files, plain = made(algorithm, slices=slices), made(algorithm, 0, slices)
    assert len(files.tasks) == len(plain.tasks) + 1 and files.main == plain.main + 1
    step = files.tasks[files.main - 1]
    after = Executor(step).step(files.genesis, StepContext(None, bytes(32), 0, 0))
    changed = [i for i, (x, y) in enumerate(zip(files.genesis, after, strict=True)) if not torch.equal(x, y)]
    assert changed == [files.slot_names.index(HELD_OUT_LOSS)]
    start = {name: p.detach() for name, p in models.build(CONFIG, 0).named_parameters()}
    assert float(after[-1]) == pytest.approx(natively(start), rel=1e-3)
    assert step.record_size == 0, "it reads no drawn records"


def played(folder: Path, held_out: int) -> tuple[Following, dict[str, torch.Tensor]]:
    """Three rounds among honest people: the job's output, and its model."""
    day = MarketDay(folder)
    job_id = day.post(made(held_out=held_out), rounds=3, max_unsettled=3, solver_stake=200)
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    assert not day.market_state.games
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    told = follow(market, job_id, losses_of(market, day.blocks(), job_id, files))
    return told, day.fetch(job_id, folder / "model")


@pytest.mark.long
def test_rounds_tell_it_and_the_model_has_the_same_bits(tmp_path: Path) -> None:
    following, model = played(tmp_path / "with", RECORDS)
    without, plain = played(tmp_path / "without", 0)
    assert model and all(torch.equal(model[name], plain[name]) for name in plain)
    told = following.held_out_by_round()
    start = {name: p.detach() for name, p in models.build(CONFIG, 0).named_parameters()}
    assert told[0] == pytest.approx(natively(start), rel=1e-3)
    assert told[0] is not None and told[2] is not None and told[2] < told[0]
    assert len({line.held_out for line in following.tasks if line.round == 2}) == 1, "of both shards"
    assert without.held_out_by_round() == [None] * 3
    events = [e for e in events_between(None, following) if e.kind == JobEventKind.HELD_OUT]
    assert [(e.round, e.loss, e.step) for e in events] == [(i, told[i], 8 * i) for i in range(3)]
    assert "began with held-out loss 2.40" in events[0].text


@pytest.mark.long
def test_a_wrong_held_out_loss_is_convicted(day: MarketDay) -> None:
    """The only wrong node is one of the held-out step."""
    files = made()
    node = files.tasks[0].outputs[files.slot_names.index(HELD_OUT_LOSS)]

    class EitherSpec(FaultySpec):
        """A cheat in whichever shard the solver holds."""

        def make_work(self, files: LoadedJob, engine: Engine, desk: NodeCalls) -> Work:
            work = super().make_work(files, engine, desk)
            work.faults.update({(0, shard, 0): NodeFault(0, node, 0) for shard in range(2)})
            return work

    class Either(FaultySolver):
        kind = EitherSpec

    plan = Plan(0, 0, NodeFault(0, node, 0), loop=0)
    finding, view = convicted(day, day.post(files, rounds=2), partial(Either, plan=plan))
    assert view.claim.kind == Kind.TASK and isinstance(finding, WrongSegment) and finding.segment == 0


def test_more_records_than_are_held_out_are_refused() -> None:
    with pytest.raises(Stop, match="on 5000 held-out records, and the dataset has"):
        made(held_out=5000)

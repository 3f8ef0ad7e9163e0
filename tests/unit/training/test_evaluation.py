"""An evaluation as a job: every record once, the loss that PyTorch computes, and a lie about it convicted."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.client import results
from assay.client.verifying import verify
from assay.job.build import build
from assay.job.read import JobFile, parse_job_file
from assay.job.rehearsal import warnings_of
from assay.job.templates import LOCAL, own_template
from assay.node.artifacts import load_job
from assay.node.findings import WrongSegment
from assay.program.execute import Executor, StepContext
from assay.program.isa import Op
from assay.program.validate import validate
from assay.protocol.errors import Stop
from assay.protocol.types import JobId, Kind
from assay.training.catalogue import loops_of
from assay.training.datasets import Dataset, LabelledLayout
from assay.training.evaluation import COUNT, RESULT, SUM, check_passes, evaluation_job
from assay.training.job import JobArtifacts
from assay.training.losses import cross_entropy
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import convicted, staffed

BATCH, SHARDS, STEPS, ROUNDS = 3, 2, 4, 2
RECORDS = BATCH * SHARDS * STEPS * ROUNDS
LAYOUT = LabelledLayout(4, 16.0)


class Net(nn.Module):
    """Two layers, dropout that an evaluation leaves out, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second, self.drop = nn.Linear(4, 6), nn.Linear(6, 3), nn.Dropout(0.5)
        self.register_buffer("scale", torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.drop(torch.tanh(self.first(x)))) * self.scale


def dataset() -> Dataset:
    rows = np.random.default_rng(2).integers(0, 16, (RECORDS, 5), np.uint8)
    rows[:, 4] %= 3
    return Dataset(LAYOUT, rows.tobytes(), b"")


def files() -> JobArtifacts:
    return evaluation_job(Net(), cross_entropy, dataset(), batch=BATCH, shards=SHARDS, name="net")


def losses() -> Tensor:
    """Of every record, by PyTorch itself."""
    rows = torch.frombuffer(bytearray(dataset().records), dtype=torch.uint8).reshape(RECORDS, 5)
    inputs, targets = LAYOUT.split(rows)
    with torch.no_grad():
        return nn.functional.cross_entropy(Net().eval()(inputs), targets, reduction="none")


def post(day: MarketDay) -> JobId:
    shape = {"steps_per_round": STEPS, "segment_steps": 2, "rounds": ROUNDS}
    return day.post(files(), **shape)


def test_the_market_gives_the_mean_loss_of_every_record(tmp_path: Path) -> None:
    day = MarketDay(tmp_path / "day")
    job_id = post(day)
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    found = day.fetch(job_id, tmp_path / "result")
    assert list(found) == [RESULT]
    assert torch.allclose(found[RESULT], losses().mean(), rtol=1e-3), "products have 14 bits"
    first = losses()[: RECORDS // 2].mean()
    assert not torch.allclose(found[RESULT], first, rtol=1e-3), "of both rounds"
    market, blocks = day.markets["client"], day.blocks()
    loaded = load_job(blocks, market.job(job_id).terms, RESOURCE_LIMITS)
    told = results.by_round(market, blocks, job_id, loaded)
    assert [(number.name, number.round) for number in told] == [(RESULT, 0), (RESULT, 1)]
    assert told[0].value == pytest.approx(float(first), rel=1e-3)
    assert {RESULT: told[1].value} == results.numbers(found)
    assert verify(tmp_path / "result").rounds == ROUNDS


def test_every_record_is_read_once_and_in_its_order() -> None:
    """The batch's loss at step t of shard k is that of the records from (t·K + k)·B on."""
    made = files()
    run, expected = Executor(made.inner), losses().reshape(-1, BATCH).mean(1)
    validate(
        made.inner, 5, max_bytes=RESOURCE_LIMITS.step_bytes, max_operations=RESOURCE_LIMITS.step_operations
    )
    ops = {node.op for node in made.inner.nodes}
    assert Op.RECORD in ops and Op.DATA not in ops
    seen = []
    for shard in range(SHARDS):
        state, before = list(made.genesis), torch.zeros(())
        for step in range(STEPS * ROUNDS):
            state = list(run.step(state, StepContext(made.records, bytes(32), shard, step)))
            total = state[made.slot_names.index(SUM)]
            seen.append((step * SHARDS + shard, float(total - before)))
            before = total
        assert float(state[made.slot_names.index(COUNT)]) == STEPS * ROUNDS
        weights = zip(state[1:6], made.genesis[1:6], strict=True)
        assert all(torch.equal(x, y) for x, y in weights), "weights pass through"
    assert [at for at, _ in sorted(seen)] == list(range(len(expected)))
    assert np.allclose([loss for _, loss in sorted(seen)], expected, rtol=3e-3)


@pytest.mark.long
def test_a_loss_that_is_better_than_it_is_is_convicted(tmp_path: Path) -> None:
    day = MarketDay(tmp_path / "day")
    job_id = post(day)
    made = files()
    plan = WeightPlan(0, 3, made.slot_names.index(SUM), 0)  # in whichever shard it holds
    finding, view = convicted(day, job_id, partial(FaultySolver, plan=plan))
    assert isinstance(finding, WrongSegment) and finding.segment == 1
    assert (view.claim.kind, view.claim.round) == (Kind.TASK, 0)


def test_records_that_would_count_twice_are_refused() -> None:
    check_passes(RECORDS, BATCH, SHARDS, STEPS * ROUNDS)
    with pytest.raises(Stop, match="more than once"):
        check_passes(RECORDS - 1, BATCH, SHARDS, STEPS * ROUNDS)


SOURCE = """
import torch
from tests.unit.training.test_evaluation import Net, dataset
from assay.training.losses import cross_entropy
from assay.training.recipe import Recipe

def build():
    return Recipe(model=Net(), loss=cross_entropy, dataset=dataset())
"""


def job_file(folder: Path, **changes: str) -> JobFile:
    """The job file that `assay job init` writes for a user's model, with these lines changed."""
    (folder / "net.py").write_text(SOURCE)
    text = own_template(f"{folder / 'net.py'}:build", batch=BATCH, rounds=ROUNDS, times=LOCAL)
    lines = {
        "algorithm": '"evaluate"',
        "learning_rate": "0.0",
        "momentum": "0.0",
        "steps_per_round": str(STEPS),
    }
    for key, value in {**lines, **changes}.items():
        text, found = re.subn(rf"(?m)^{key} = \S+", f"{key} = {value}", text)
        assert found, key
    return parse_job_file(text, "it")


def test_a_job_file_asks_for_an_evaluation(tmp_path: Path) -> None:
    made, plain = build(job_file(tmp_path, shards="2", segment_steps="2")), files()
    assert made.slot_names == plain.slot_names and made.links == plain.links
    assert {node.op for node in made.inner.nodes} >= {Op.RECORD, Op.SHARD, Op.STEP}
    assert loops_of("evaluate") == len(made.tasks) == 1
    assert warnings_of(made, 1) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"learning_rate": "0.7"}, "trains nothing, so learning_rate cannot"),
        ({"micro_steps": "2"}, "micro_steps cannot"),
        ({"rounds": "3"}, "more than once"),
        ({"segment_steps": "3"}, "cannot be divided"),
    ],
)
def test_what_an_evaluation_has_no_use_for_is_refused(
    tmp_path: Path, changes: dict[str, str], why: str
) -> None:
    with pytest.raises(Stop, match=why):
        build(job_file(tmp_path, **changes))

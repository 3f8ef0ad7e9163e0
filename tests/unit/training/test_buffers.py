"""Running statistics in the settled model: the mean of the shards', proven with it; no other bit moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.client.verifying import verify
from assay.job.job_warnings import unsettled
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType
from assay.protocol.errors import Stop
from assay.training import buffers, job
from assay.training.catalogue import WHOLE
from assay.training.evaluate import with_parameters
from assay.training.job import JobArtifacts, build_job
from assay.training.losses import cross_entropy
from assay.training.optimisers import Sgd
from assay.training.outer import DiLoCo
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import staffed
from tests.unit.training.steps import images

STATISTICS = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]


class Net(nn.Module):
    """A batch norm, a table that no step changes, and an average of weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm, self.last = nn.Linear(64, 4), nn.BatchNorm1d(4), nn.Linear(4, 10)
        self.slow = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("table", torch.arange(4).float())
        self.table: Tensor

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.first(x)) + self.table
        if self.training:
            self.slow.bias.data = self.slow.bias.data * 0.5 + self.last.weight.data.mean(0) * 0.5
        made: Tensor = self.last(torch.relu(y) + self.slow(y))
        return made


def made(algorithm: str = WHOLE, slices: int | None = None, held_out: int = 0) -> JobArtifacts:
    data = images()
    data = type(data)(data.layout, data.records, data.records[: 4 * 65])
    outer = DiLoCo(0.7, 0.9)
    return build_job(
        Net(), cross_entropy, Sgd(lr=0.05), data, batch=4, shards=2, outer=outer, algorithm=algorithm,
        slices=slices, held_out=held_out,
    )  # fmt: skip


def played(folder: Path, files: JobArtifacts, rounds: int) -> tuple[Any, dict[str, Tensor]]:
    """The job's terms, and what its client fetched."""
    day = MarketDay(folder)
    job_id = day.post(files, rounds=rounds, max_unsettled=3, solver_stake=200)
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    model = day.fetch(job_id, folder / "model")
    assert verify(folder / "model").rounds == rounds
    return day.markets["client"].job(job_id).terms, model


@pytest.mark.long
def test_the_settled_model_has_the_mean_of_what_the_shards_end_with(tmp_path: Path) -> None:
    files = made()
    terms, model = played(tmp_path, files, 1)
    assert sorted(model) == sorted(
        [*(n for n, p in Net().named_parameters() if p.requires_grad), *STATISTICS, "slow.bias"]
    )
    ends = []
    for shard in range(2):
        state = list(files.genesis)
        for step in range(terms.main.steps):
            state = Executor(files.inner).step(state, StepContext(files.records, terms.seed, shard, step))
        ends.append(dict(zip(files.slot_names, state, strict=True)))
    for name in ("norm.running_mean", "norm.running_var", "slow.bias"):
        assert torch.equal(model[name], (ends[0][name] + ends[1][name]) / 2)
    assert model["norm.num_batches_tracked"] == terms.main.steps
    net = with_parameters(Net(), model)
    assert torch.equal(net.norm.running_var, model["norm.running_var"]) and not net.training  # type: ignore[arg-type]
    assert net.norm.num_batches_tracked == terms.main.steps


@pytest.mark.long
@pytest.mark.parametrize("algorithm", [WHOLE, "diloco-4bit", "streaming"])
def test_parameters_have_the_same_bits_as_without(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, model = played(tmp_path / "with", made(algorithm, held_out=4), 3)
    monkeypatch.setattr(job, "moving", lambda *_: [])
    _, plain = played(tmp_path / "without", made(algorithm, held_out=4), 3)
    assert {*model} - {*plain} == {*STATISTICS, "slow.bias"}
    assert all(torch.equal(model[name], plain[name]) for name in plain)
    assert not torch.equal(model["norm.running_mean"], torch.zeros(4))


def test_an_absent_shard_has_no_part_in_the_mean() -> None:
    program = buffers._mean([(DType.F32, (2,)), (DType.I32, ())], 3)
    sent = [t for k in range(3) for t in (torch.full((2,), float(k)), torch.tensor(k + 5, dtype=torch.int32))]
    start = [torch.zeros(2), torch.tensor(0, dtype=torch.int32), *sent]
    here = [torch.tensor(x) for x in (False, True, True)]
    after = Executor(program).step([*start, *here], StepContext(None, bytes(32), 0, 0))
    assert torch.equal(after[0], torch.full((2,), 1.5)) and after[1] == 6


def test_sliced_parameters_are_settled_alone() -> None:
    files = made(slices=3)
    assert files.inner.params == 3 and "norm.running_mean" in files.slot_names
    assert unsettled(files)[0].startswith("slow.bias, norm.running_mean, ") and not unsettled(made())


def test_what_no_step_changes_is_no_part_of_it() -> None:
    files = made()
    assert files.slot_names[4:10] == ["last.weight", "last.bias", "slow.bias", *STATISTICS]
    assert files.inner.params == 10 and len(files.outers) == 2


def test_tensors_of_another_model_are_refused() -> None:
    params = {name: p.detach() for name, p in Net().named_parameters() if p.requires_grad}
    with pytest.raises(Stop, match=r"do not have the same names: norm\.scale"):
        with_parameters(Net(), {**params, "norm.scale": torch.ones(4)})
    with pytest.raises(Stop, match=r"do not fit the model: norm.running_var is \(3,\)"):
        with_parameters(Net(), {**params, "norm.running_var": torch.ones(3)})

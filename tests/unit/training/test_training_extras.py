"""Extras of training besides an optimiser: averages of weights, epochs, mixtures, learning-rate schedules."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.program.execute import Executor, StepContext
from assay.protocol.errors import Stop
from assay.training import models
from assay.training.averaged import Averaged
from assay.training.datasets import Dataset, LabelledLayout, mixed
from assay.training.job import build_job
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW, Sgd
from assay.training.outer import DiLoCo
from assay.training.schedules import Schedule
from tests.unit.training.steps import SEED, batch_of, built, compare, images

ROOT = Path(__file__).resolve().parents[3]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 10))


def test_an_average_of_weights_follows_and_is_settled() -> None:
    made = compare(Averaged(net(), 0.9), Sgd(lr=0.1, momentum=0.0), images(), steps=2, relative=3e-2)
    start, state = dict(zip(made.slot_names, made.genesis, strict=True)), list(made.genesis)
    mean = start["average.0.weight"].clone()
    for step in range(3):
        held = dict(zip(made.slot_names, state, strict=True))
        mean = torch.lerp(mean, held["model.0.weight"], 0.1)
        state = Executor(made.inner).step(state, StepContext(made.records, SEED, 0, step))
        held = dict(zip(made.slot_names, state, strict=True))
        assert torch.allclose(held["average.0.weight"], mean, atol=1e-6)
        assert torch.equal(held["average.1.running_mean"], held["model.1.running_mean"])
    assert not torch.allclose(mean, held["model.0.weight"], atol=1e-3)
    settled = made.slot_names[: made.outer.params]
    assert {"average.0.weight", "average.1.running_var"} <= set(settled)


def test_the_average_answers_in_evaluation() -> None:
    model = Averaged(net())
    with torch.no_grad():
        for p in model.average.parameters():
            p.zero_()
    assert not model.eval()(torch.ones(2, 64)).any() and model.train()(torch.randn(2, 64)).any()


def numbered(count: int, epochs: bool = True) -> Dataset:
    """Records of their number and a label."""
    rows = bytes(byte for number in range(count) for byte in (number, number % 10))
    return Dataset(LabelledLayout(1, 1.0), rows, b"", epochs)


class Seen(nn.Module):
    """Keeps which records it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 10)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Any:
        self.seen.copy_(x[:, 0])
        return self.linear(x / 100)


def test_an_epoch_has_every_record_of_a_shard_once() -> None:
    made = build_job(Seen(), cross_entropy, Sgd(lr=0.0), numbered(26), batch=4, shards=2, outer=DiLoCo())
    place = made.slot_names.index("seen")
    for shard in range(2):
        seen: list[int] = []
        for step in range(6):
            held = Executor(made.inner).step(list(made.genesis), StepContext(made.records, SEED, shard, step))
            seen += [int(x) for x in held[place].tolist()]
        first = 13 * shard
        assert seen == [*range(first, first + 12)] * 2, "three steps an epoch, in order, then again"
    assert made.native_loss is None, "what a rehearsal compares with draws records otherwise"


def test_records_are_shuffled_once_and_by_the_seed() -> None:
    data = numbered(100)
    one, other = data.shuffled(1), data.shuffled(2)
    assert one.records != other.records != data.records and one.records == data.shuffled(1).records
    rows = [one.records[i : i + 2] for i in range(0, 200, 2)]
    assert sorted(rows) == [data.records[i : i + 2] for i in range(0, 200, 2)] and one.epochs


def test_too_few_records_for_an_epoch_are_refused() -> None:
    with pytest.raises(Stop, match="7 records give each of 2 shards 3, and one step reads 4"):
        build_job(Seen(), cross_entropy, Sgd(), numbered(7), batch=4, shards=2, outer=DiLoCo())


def test_datasets_are_mixed_by_weight() -> None:
    a, b = (Dataset(LabelledLayout(1, 1.0), bytes([n, n]) * 5, bytes([n, n]), False) for n in (1, 2))
    both = mixed([(a, 3), (b, 1)])
    assert Counter(both.records[::2]) == {1: 15, 2: 5} and both.held_out == bytes([1, 1, 2, 2])
    with pytest.raises(Stop, match="cannot be mixed"):
        mixed([(a, 1), (Dataset(LabelledLayout(3, 1.0), bytes(4), b""), 1)])


def test_courses_of_the_rate() -> None:
    def course(schedule: Schedule, *steps: float) -> list[float]:
        return [float(schedule.factor(torch.tensor(step))) for step in steps]

    wsd = Schedule(10, "wsd", 110, floor=0.5)
    assert course(wsd, 4.0, 10.0, 89.0, 100.0, 110.0) == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.5])
    falling = Schedule(0, "exponential", 100, floor=0.01)
    assert course(falling, 0.0, 50.0, 100.0, 500.0) == pytest.approx([1.0, 0.1, 0.01, 0.01], rel=1e-4)
    with pytest.raises(Stop, match="cannot end at 0"):
        Schedule(0, "exponential", 100)
    with pytest.raises(Stop, match="no decay 'plateau'") as caught:
        Schedule(0, "plateau", 100)  # type: ignore[arg-type]
    assert "exponential, wsd; for another" in caught.value.hint
    rule = Sgd(lr=0.1, momentum=0.0, schedule=Schedule(1, "wsd", 4, floor=0.1))
    compare(models.build(models.MlpConfig(hidden=8), 3), rule, images(), steps=4, relative=3e-2)


def test_the_documents_optimiser_of_ones_own() -> None:
    text = (ROOT / "docs" / "training.md").read_text()
    held: dict[str, Any] = {"__name__": __name__}
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code, held)

    class Headed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(64, 6), nn.Linear(6, 10)

        def forward(self, x: Tensor) -> Any:
            return self.head(torch.relu(self.body(x)))

    rule = held["HeadFaster"](AdamW(lr=1e-2, eps=1e-4, schedule=held["Milestones"]((1,))))
    made = compare(Headed(), rule, images(), steps=3, relative=5e-2)
    first, second = (
        Executor(made.inner).step(list(made.genesis), StepContext(made.records, SEED, 0, 0)) for _ in "12"
    )
    moved = {n: (x - y).abs().mean() for n, x, y in zip(made.slot_names, first, made.genesis, strict=True)}
    assert moved["head.weight"] > 5 * moved["body.weight"] and torch.equal(first[0], second[0])


def test_parameters_without_a_part_in_the_loss_are_frozen_and_told() -> None:
    from assay.job.job_warnings import idle

    class Leaves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.left = nn.Linear(64, 10), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Any:
            return self.used(x)

    made = built(Leaves(), AdamW(), images())
    assert made.idle == ("left.weight", "left.bias") and made.slot_names[:2] == ["used.weight", "used.bias"]
    assert made.inner.params == 2 and not [n for n in made.slot_names if n.startswith("exp_avg.left")]
    (line,) = idle(made)
    assert line.startswith("left.weight, left.bias have no part in the loss")
    assert idle(built(nn.Linear(64, 10), AdamW(), images())) == []
    after = Executor(made.inner).step(list(made.genesis), StepContext(made.records, SEED, 0, 0))
    at = made.slot_names.index("left.weight")
    assert torch.equal(after[at], made.genesis[at]) and batch_of(made, 0, 4).shape == (4, 65)


def test_spectral_norms_and_data_parallel() -> None:
    torch.manual_seed(2)
    inner = nn.utils.parametrizations.spectral_norm(nn.Linear(64, 10))
    compare(nn.DataParallel(inner), Sgd(), images(), steps=2, relative=3e-2)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda x, y: nn.functional.cross_entropy(x, y, reduction="none"), r"has the shape \(4,\)"),
        (lambda x, y: (cross_entropy(x, y), x), "is a tuple"),
        (lambda x, y: float(3), "is a float"),
        (lambda x, y: cross_entropy(x.detach(), y), "does not depend on any parameter"),
        (lambda x, y: (x.argmax(1) == y).sum(), "is torch.int64"),
    ],
)
def test_a_loss_that_is_none_says_what_it_has_to_be(loss: Any, says: str) -> None:
    with pytest.raises(Stop, match=f"the loss {says}, and it has to be one float32 number"):
        built(nn.Linear(64, 10), Sgd(), images(), loss=loss)


def test_lazy_layers_are_told_to_be_called_once() -> None:
    with pytest.raises(Stop, match="shapes of weight, bias are not known yet"):
        built(nn.LazyLinear(10), Sgd(), images())

"""Products with a chosen precision, and those found by rehearsing the first steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.job.rehearsal import warnings_of
from assay.program.accuracy import products_of
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.program.operand_parts import Precision
from assay.protocol.errors import Stop
from assay.training import job
from assay.training.datasets import Dataset
from assay.training.lora import adapt
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW, Sgd
from assay.training.outer import DiLoCo
from assay.training.precision import ADMITTED, Precisions
from tests.unit.training.steps import SEED, batch_of, images

OUTLIER = 30_000.0
WIDTH = 64


class Masked(nn.Module):
    """Three layers; one hidden feature is `outlier` times as large, the next weight of it is 0."""

    scale: Tensor
    mask: Tensor

    def __init__(self, outlier: float = OUTLIER) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle = nn.Linear(64, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 10)
        self.register_buffer("scale", torch.ones(WIDTH).index_fill(0, torch.tensor([5]), outlier))
        self.register_buffer("mask", torch.ones(WIDTH).index_fill(0, torch.tensor([5]), 0.0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x)) * self.scale
        weight = self.middle.weight * self.mask
        return self.last(torch.relu(functional.linear(hidden, weight, self.middle.bias)))


def made(precisions: Precisions | None, outlier: float = OUTLIER, rate: float = 0.1) -> job.JobArtifacts:
    return job.build_job(
        Masked(outlier),
        cross_entropy,
        Sgd(lr=rate, momentum=0.0),
        images(),
        batch=16,
        shards=1,
        outer=DiLoCo(),
        precisions=precisions,
    )


def losses(files: job.JobArtifacts, steps: int) -> list[float]:
    executor, state, found = Executor(files.inner, kernels=FAST), list(files.genesis), []
    for step in range(steps):
        state = executor.step(state, StepContext(files.records, SEED, 0, step))
        found.append(float(state[-1]))
    return found


def native_losses(files: job.JobArtifacts, steps: int) -> list[float]:
    """Those of fp32."""
    step_of = job.step_function(Masked(), cross_entropy, Sgd(lr=0.1, momentum=0.0), images().layout)
    state, found = list(files.genesis), []
    for step in range(steps):
        state = [x.detach() for x in step_of(state, batch_of(files, step, 16))]
        found.append(float(state[-1]))
    return found


def test_auto_takes_the_hidden_products_operand_in_parts_and_nothing_else() -> None:
    files = made(Precisions("auto"))
    concerned = [product for product in files.chosen if product.precision is not Precision.SINGLE]
    assert len(files.chosen) == len(files.sites) == 8
    assert [product.precision for product in concerned] == [Precision.LEFT]
    (product,) = concerned
    assert product.single.whole > 100 and product.error.within(ADMITTED) and product.within
    assert "test_precision.py:" in product.site.source and "gradient" not in product.site.source
    assert ": left: error 0" in str(product) and " instead of 4" in str(product)


def test_an_ordinary_network_is_left_as_it_is() -> None:
    files = made(Precisions("auto"), outlier=1.0)
    assert {product.precision for product in files.chosen} == {Precision.SINGLE}
    assert files.inner.root == made(None, outlier=1.0).inner.root


@pytest.mark.long
def test_training_with_an_outlier_follows_fp32_in_parts_and_not_without() -> None:
    steps = 60
    files = made(Precisions("auto"))
    wanted = sum(native_losses(files, steps)[-20:])
    assert abs(sum(losses(files, steps)[-20:]) / wanted - 1) < 0.01
    assert abs(sum(losses(made(None), steps)[-20:]) / wanted - 1) > 0.01, "the outlier was planted"


def test_the_clients_word_goes_for_all_products_or_for_those_of_a_line() -> None:
    files = made(Precisions("split"))
    assert {product.precision for product in products_of(files.inner)} == {Precision.SPLIT}
    assert not files.chosen
    line = next(site.source for site, _, _ in files.sites if "gradient" not in site.source)
    name = line.rpartition("/")[2]
    chosen = made(Precisions("single", {name: "split"}))
    split = [site.source for site, precision, _ in chosen.sites if precision is Precision.SPLIT]
    assert split and {source.partition(",")[0] for source in split} == {line}
    assert any(precision is Precision.SINGLE for _, precision, _ in chosen.sites)


def test_a_line_without_a_product_and_a_word_without_a_meaning_are_refused() -> None:
    with pytest.raises(Stop, match=r"the step has no product from 'test_precision\.py:1'") as refused:
        made(Precisions("single", {"test_precision.py:1": "split"}))
    assert "test_precision.py:" in (refused.value.hint or "")
    for wrong in (lambda: Precisions("double"), lambda: Precisions("single", {"a.py:1": "left"})):
        with pytest.raises(Stop, match="a product has no precision"):
            wrong()


class Frozen(nn.Module):
    """Given weights with an outlier feature, to be adapted."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Linear(64, WIDTH)
        self.head = nn.Linear(WIDTH, 10)
        with torch.no_grad():
            self.body.weight[7] *= OUTLIER
            self.head.weight[:, 7] = 0

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)))


def adapted(precisions: Precisions, dataset: Dataset) -> job.JobArtifacts:
    model = Frozen()
    adapt(model, ["*"], rank=4, alpha=8.0)
    with torch.no_grad():
        head: Any = model.head
        head.down[:, 7] = 0
    return job.build_job(
        model,
        cross_entropy,
        AdamW(lr=1e-3),
        dataset,
        batch=16,
        shards=1,
        outer=DiLoCo(),
        precisions=precisions,
    )


@pytest.mark.long
def test_adapters_are_judged_by_steps_in_which_they_have_gradients() -> None:
    files = adapted(Precisions("auto"), images())
    assert all(product.within for product in files.chosen), [str(p) for p in files.chosen]
    single = adapted(Precisions("single"), images())
    warnings = warnings_of(single, 1)
    assert warnings and all("times what bfloat16 does" in line for line in warnings)
    assert not warnings_of(files, 1)


def test_the_first_number_that_is_not_finite_is_told_with_its_step() -> None:
    found = warnings_of(made(None, outlier=1.0, rate=1e30), 1)
    assert found and found[0].startswith("after step ") and "of 3 rehearsed" in found[0]
    assert not warnings_of(made(None, outlier=1.0), 1)


def test_a_product_that_is_given_no_numbers_is_said_to_be_unknown() -> None:
    files = made(Precisions("auto"), outlier=float("inf"))
    unknown = [product for product in files.chosen if not product.measured]
    assert unknown, "inf x 0 is NaN, and the products after it were never given a number"
    for product in unknown:
        assert "nothing is known" in str(product) and " 0 times" not in str(product)
    known = [product for product in files.chosen if product.measured]
    assert known and all(" instead of " in str(product) for product in known)

"""Datasets are the same bytes every time; evaluation reads models by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.protocol.errors import Stop
from assay.training import datasets, evaluate, models
from assay.training.losses import cross_entropy


def test_the_standard_library_gives_the_same_records_twice() -> None:
    first, second = (datasets.standard_library(16, max_bytes=50_000) for _ in range(2))
    assert first == second
    assert len(first.records) % 17 == 0 == len(first.held_out) % 17
    assert 48_000 < len(first.records) + len(first.held_out) <= 50_000


def test_text_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"2" * 30)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "z.txt").write_bytes(b"1" * 30)
    (tmp_path / ".hidden").write_bytes(b"9" * 30)
    made = datasets.text(tmp_path, 9)
    assert made.records + made.held_out == b"1" * 30 + b"2" * 30
    assert len(made.held_out) == 10
    assert datasets.text(tmp_path / "b.txt", 9).records == b"2" * 20


def test_text_is_capped(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_bytes(bytes(range(256)) * 10)
    made = datasets.text(tmp_path, 9, max_bytes=105)
    assert made.records + made.held_out == bytes(range(100))


@pytest.mark.parametrize("content", [None, b"short"])
def test_too_little_text_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Stop):
        datasets.text(path, 64)


def test_text_targets_are_the_inputs_shifted() -> None:
    batch = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint8)
    inputs, targets = datasets.TextLayout(2).split(batch)
    assert inputs.tolist() == [[1, 2], [4, 5]] and targets.tolist() == [[2, 3], [5, 6]]


def test_digits_are_pixels_and_a_label() -> None:
    made = datasets.digits()
    rows = made.held_out_batch(1000)
    inputs, targets = made.layout.split(rows)
    assert rows.shape == (359, 65) and rows[:, :64].max() == 16
    assert inputs.max() == 1.0 and set(targets.tolist()) == set(range(10))


def test_a_model_is_rebuilt_from_its_description() -> None:
    config = models.GptConfig(n_layer=1, n_head=1, d_model=8, context=8, tied=True)
    params = models.build(config, 3).state_dict()
    entry = models.describe(config)
    dataset = datasets.standard_library(8, max_bytes=20_000)
    rows = dataset.held_out_batch(20)
    found = evaluate.evaluated(evaluate.loaded(params, entry), cross_entropy, dataset.layout, rows)
    assert found.records == 20 and found.loss == pytest.approx(5.545, abs=0.05)
    assert found.accuracy is not None and found.accuracy < 0.1
    written = evaluate.generate(params, entry, b"import ", 12, seed=1)
    assert len(written) == 12 and written == evaluate.generate(params, entry, b"import ", 12, seed=1)


class Sums(nn.Module):
    """One number for a record: a weighted sum."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.fixed = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(()), False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight * self.fixed


def test_evaluation_is_a_mean_over_records_and_counts_classes_only() -> None:
    model = evaluate.with_parameters(Sums(), {"weight": torch.tensor([1.0, 0.0, 2.0])})
    layout = datasets.LabelledLayout(3, 1.0)
    rows = torch.arange(4 * 70, dtype=torch.int64).remainder(7).view(70, 4).to(torch.uint8)
    found = evaluate.evaluated(model, lambda x, y: ((x - y) ** 2).mean(), layout, rows)
    whole = rows.double()
    wanted = ((whole[:, 0] + 2 * whole[:, 2] - whole[:, 3]) ** 2).mean()
    near: Any = pytest.approx(wanted.item())
    assert found == evaluate.Evaluation(70, near, None)


@pytest.mark.parametrize(
    "params", [{}, {"weight": torch.ones(2)}, {"weight": torch.ones(3), "x": torch.ones(1)}]
)
def test_parameters_of_another_module_are_refused(params: dict[str, torch.Tensor]) -> None:
    with pytest.raises(Stop, match=r"weight|x"):
        evaluate.with_parameters(Sums(), params)


def test_what_does_not_fit_is_refused() -> None:
    config = models.MlpConfig(hidden=4)
    params = models.build(config, 0).state_dict()
    for entry in ({"kind": "resnet"}, {"kind": "mlp", "hidden": 5}, {"kind": "mlp", "depth": 1}):
        with pytest.raises(Stop):
            evaluate.loaded(params, entry)
    with pytest.raises(Stop):
        evaluate.generate(params, models.describe(config), b"x", 1, seed=0)
    with pytest.raises(Stop):
        models.build(models.GptConfig(d_model=10, n_head=4), 0)
    with pytest.raises(Stop):
        models.build(models.CnnConfig(width=6), 0)


def test_the_training_loss_is_read_by_name() -> None:
    state = [torch.ones(2), torch.tensor(1.25)]
    assert evaluate.training_loss(["w", "metric.loss"], state) == 1.25
    with pytest.raises(Stop):
        evaluate.training_loss(["w", "b"], state)

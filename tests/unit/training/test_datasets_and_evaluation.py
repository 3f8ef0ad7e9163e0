"""Datasets are the same bytes every time; evaluation reads models by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from protocol.errors import Stop
from training import datasets, evaluate, models


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
    assert made.layout == evaluate.layout_of(models.describe(models.MlpConfig()))
    assert made.layout == evaluate.layout_of(models.describe(models.CnnConfig()))
    assert inputs.max() == 1.0 and set(targets.tolist()) == set(range(10))


def test_a_model_is_rebuilt_from_its_description() -> None:
    config = models.GptConfig(n_layer=1, n_head=1, d_model=8, context=8, tied=True)
    params = models.build(config, 3).state_dict()
    entry = models.describe(config)
    dataset = datasets.standard_library(8, max_bytes=20_000)
    rows = dataset.held_out_batch(20)
    assert evaluate.layout_of(entry) == dataset.layout
    loss = evaluate.held_out_loss(params, entry, dataset.layout, rows)
    assert loss == pytest.approx(5.545, abs=0.05)
    written = evaluate.generate(params, entry, b"import ", 12, seed=1)
    assert len(written) == 12 and written == evaluate.generate(params, entry, b"import ", 12, seed=1)


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

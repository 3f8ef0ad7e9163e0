"""Comparisons of training runs: differences have the right sign and scale, interrupted runs lose nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from scripts import bench_quality as bench
from scripts.bench_quality import EAGER, NATIVE, ORDER_FREE, Curve, Trainer
from training import models

TINY = replace(bench.QUICK["cnn"], config=models.CnnConfig(width=4), batch=4, steps=4, every=2, records=20)


def curve(loss: float, accuracy: float) -> Curve:
    return Curve([loss] * 60, [(60, loss, accuracy)])


def test_differences_are_to_native_by_seed_and_of_the_means() -> None:
    curves = {
        0: {ORDER_FREE: curve(1.01, 0.9), NATIVE: curve(1.0, 0.8), EAGER: curve(0.98, 0.7)},
        1: {ORDER_FREE: curve(3.0, 0.5), NATIVE: curve(3.0, 0.6)},
    }
    found = bench.compared(curves)
    loss, accuracy = found["held_out_loss"], found["accuracy"]
    assert loss[ORDER_FREE]["by_seed"] == pytest.approx([0.01, 0.0])
    assert loss[ORDER_FREE]["of_means"] == pytest.approx(0.0025)
    assert loss[EAGER]["by_seed"] == pytest.approx([-0.02])
    assert loss["seed_spread"] == pytest.approx(1.0)
    assert accuracy[ORDER_FREE]["by_seed"] == pytest.approx([0.1, -0.1])
    cells = bench.rows("x", found)
    assert [row[1] for row in cells] == ["0", "1", "mean"]
    assert cells[0][4:6] == ["+1.00", "-2.00"] and cells[1][5] == ""


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_curve_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    whole = Trainer("cnn", TINY, tmp_path / "whole", tmp_path).run(EAGER, 0)
    looked = Trainer._looked

    def killed(self: Trainer, *args: object) -> tuple[float, float]:
        if args[2]:
            raise KeyboardInterrupt
        return looked(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "_looked", killed)
    with pytest.raises(KeyboardInterrupt):
        Trainer("cnn", TINY, tmp_path / "cut", tmp_path).run(EAGER, 0)
    monkeypatch.setattr(Trainer, "_looked", looked)
    again = Trainer("cnn", TINY, tmp_path / "cut", tmp_path)
    assert list(tmp_path.glob("cut/*/*.pt"))
    resumed = again.run(EAGER, 0)
    assert (resumed.losses, resumed.held_out) == (whole.losses, whole.held_out)
    assert len(resumed.losses) == 4 and not list(tmp_path.glob("cut/*/*.pt"))
    kept = json.loads(next(tmp_path.glob("cut/*/*.json")).read_text())
    assert kept["losses"] == again.run(EAGER, 0).losses == whole.losses


def test_pictures_show_every_seed() -> None:
    def run(offset: float) -> Curve:
        losses = [3.0 - 0.01 * i + offset for i in range(100)]
        return Curve(losses, [(50, 2.5, 0.1), (100, 2.0, 0.2)])

    forms = {form: run(0.1 * i) for i, form in enumerate(bench.FORMS)}
    made = bench.pictures("gpt", dict.fromkeys(range(3), forms))
    assert set(made) == {"gpt.svg", "gpt-difference.svg"}
    assert made["gpt.svg"].count("<polyline") == 6

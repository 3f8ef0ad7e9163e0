"""Comparisons of training runs: differences have the right sign and scale, interrupted runs lose nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.training import models
from assay.training.datasets import digits
from scripts.bench import quality as bench
from scripts.bench.noisy_digits import noisy_digits
from scripts.bench.quality import EAGER, NATIVE, ORDER_FREE, Curve, Trainer

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
    assert loss[ORDER_FREE]["standard_error"] == pytest.approx(0.005)
    assert loss[EAGER]["standard_error"] is None
    assert loss["seed_spread"] == pytest.approx(1.0)
    assert accuracy[ORDER_FREE]["by_seed"] == pytest.approx([0.1, -0.1])
    cells = bench.rows("x", found)
    assert [row[1] for row in cells] == ["0", "1", "mean"]
    assert cells[0][4:6] == ["+1.00", "-2.00"] and cells[1][5] == ""
    assert cells[2][4:6] == ["+0.25 ± 0.50", "-2.00"]


def test_noisy_digits_share_no_image_between_training_and_holding_out() -> None:
    """Without noise each record is a digit moved by a pixel at most: those of 1,078 images, and of 719."""
    made, again = (noisy_digits(variants=2, noise=0) for _ in range(2))
    assert made == again != noisy_digits(variants=2, noise=0, seed=1)
    rows, held_out = (
        torch.frombuffer(bytearray(part), dtype=torch.uint8).view(-1, 65)
        for part in (made.records, made.held_out)
    )
    plain = digits()
    images = torch.frombuffer(bytearray(plain.records + plain.held_out), dtype=torch.uint8).view(-1, 65)
    assert (len(rows), len(held_out)) == (2 * 1078, 2 * 719)
    for part, source in ((rows, images[:1078]), (held_out, images[1078:])):
        assert torch.equal(part[:, 64], source[:, 64].repeat(2))
        inner = source[:, :64].view(-1, 8, 8)[:, 1:7, 1:7].sum((1, 2)).repeat(2)
        moved = part[:, :64].sum(1)
        assert (inner <= moved).all() and (moved <= source[:, :64].sum(1).repeat(2)).all()
    noisy = noisy_digits(variants=2, noise=5)
    assert noisy.records != made.records and max(noisy.records) == 16


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

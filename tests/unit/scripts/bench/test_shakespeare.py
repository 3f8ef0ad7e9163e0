"""nanoGPT's setting on a stand-in for its text: three arms that learn it, two of them the same steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.training import models
from assay.training.optimisers import AdamW
from scripts.bench import shakespeare as bench
from scripts.bench.arms import Bench


def test_the_setting_is_the_published_one() -> None:
    made, optimiser = bench.SETTING, bench.SETTING.optimiser
    assert (made.config.n_layer, made.config.n_head, made.config.d_model, made.config.context) == (
        4,
        4,
        128,
        64,
    )
    assert (made.batch, made.steps, made.warm, made.held_out) == (12, 2000, 0, 0.1)
    assert isinstance(optimiser, AdamW) and (optimiser.lr, optimiser.beta2, optimiser.clip_norm) == (
        1e-3,
        0.99,
        1,
    )


@pytest.mark.slow
def test_all_arms_learn_a_stand_in_text(tmp_path: Path) -> None:
    text = tmp_path / "input.txt"
    text.write_text("to be, or not to be, that is the question: " * 200)
    small = models.GptConfig(n_layer=1, n_head=2, d_model=16, context=16)
    schedule = replace(
        bench.SETTING, config=small, batch=4, steps=100, every=50, text=str(text), compiled=False
    )
    made = Bench(schedule, tmp_path / "work", tmp_path)
    losses = {name: made.run(name, arm, 0) for name, arm in bench.ARMS.items()}
    assert all(r.loss < r.curve[0][1] - 0.05 for r in losses.values()), "all fall"
    assert losses["order_free"].loss == pytest.approx(losses["native"].loss, rel=1e-2)
    assert losses["order_free"].digest != losses["native"].digest
    assert losses["diloco_x4"].fetched > 0 == losses["native"].fetched

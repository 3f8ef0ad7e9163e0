"""The low-communication bench: figures the right side up, bytes those of the wires."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.training import models
from scripts.bench import diloco as bench
from scripts.bench.diloco import H50, H64, MULOCO, PARALLEL, SINGLE, Bench, Result

TINY = replace(bench.QUICK, config=models.GptConfig(1, 1, 8, 8), warm=1, steps=4, every=2, records=4)


def result(loss: float, fetched: int = 0) -> Result:
    return Result(loss, 0.5, [], fetched // 12, fetched, 7, "", 1.0)


def test_ratios_are_to_data_parallel_and_the_single_worker() -> None:
    found = {
        SINGLE: [result(2.0)],
        PARALLEL: [result(1.0, 1200), result(3.0, 1200)],
        H50: [result(1.9, 24)],
        H64: [result(2.2, 2)],
        MULOCO: [result(1.71, 3)],
    }
    made = bench.figures(found)
    assert made["loss_ratio_h50"] == pytest.approx(0.95) and made["byte_ratio_h50"] == 50
    assert made["loss_ratio_h64_4bit"] == pytest.approx(1.1) and made["byte_ratio_h64_4bit"] == 600
    assert made["nats_below_single_h50"] == pytest.approx(0.1)
    assert made["nats_below_single_h64_4bit"] == pytest.approx(-0.2)
    assert made["loss_ratio_muloco_to_h50"] == pytest.approx(0.9)
    assert made["byte_ratio_muloco_to_h50"] == 8
    cells = {row[0]: row for row in bench.rows(found)}
    assert cells[PARALLEL][2:4] == ["2.0000", "1.0000"] and cells[H64][6] == "600.0"
    assert cells[SINGLE][6] == "", "nobody fetches from a single worker"


@pytest.mark.long
def test_bytes_are_those_of_the_wires_and_a_run_gives_the_same_bits_again(tmp_path: Path) -> None:
    arms = bench.arms(TINY)
    first = Bench(TINY, tmp_path, tmp_path)
    one = first.run(H64, arms[H64], 0)
    kept, first.folder = first.folder, tmp_path
    again, first.folder = first.run(H64, arms[H64], 0), kept
    assert (
        len(list(kept.iterdir())) == 1 and one.digest == again.digest and first.run(H64, arms[H64], 0) == one
    ), "read from disk"
    params = list(models.build(TINY.config, 0).parameters())
    how: Any = arms[H64].how
    wire = sum(-(-4 * p.numel() // 8) + 4 * -(-p.numel() // how.coding.block) for p in params)
    assert one.largest == wire and one.sent == wire * (TINY.steps // arms[H64].steps)
    assert one.fetched == one.sent * TINY.workers * (TINY.workers - 1)
    parallel = first.run(PARALLEL, arms[PARALLEL], 0)
    assert parallel.sent == 4 * sum(p.numel() for p in params) * TINY.steps
    assert first.run(SINGLE, arms[SINGLE], 0).fetched == 0
    assert len({one.digest, parallel.digest, first.run(SINGLE, arms[SINGLE], 0).digest}) == 3


@pytest.mark.slow
def test_every_arm_runs(tmp_path: Path) -> None:
    made = Bench(TINY, tmp_path, tmp_path)
    for name, arm in bench.arms(TINY).items():
        assert math.isfinite(made.run(name, arm, 0).loss), name

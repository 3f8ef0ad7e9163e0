"""The low-communication bench: figures the right side up, bytes those of the wires, faults that bite."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

from assay.training import models
from scripts.bench import diloco as bench
from scripts.bench.arms import Arm, Bench, Result
from scripts.bench.cluster import Faults, chance
from scripts.bench.diloco import H50, H64, MULOCO, PARALLEL, SINGLE

TINY = replace(bench.QUICK, config=models.GptConfig(1, 1, 8, 8), warm=1, steps=4, every=2, records=4)


def result(loss: float, fetched: int = 0, curve: tuple[float, ...] = ()) -> Result:
    return Result(loss, 0.5, list(enumerate(curve)), fetched // 12, fetched, 7, "", 1.0)


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


def test_failures_are_measured_beside_the_same_workers_when_all_is_well() -> None:
    worse = result(1.0 + math.log(1.021), curve=(2.0, 1.5, 1.75, 1.0))
    rows = bench.fault_rows({"all well": [result(1.0)], "half of the changes dropped": [worse]})
    assert rows[0][2] == "+0.0 %" and rows[1][2] == "+2.1 %" and rows[1][3] == "0.2500"
    assert "2.1 %" in rows[1][4]


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
    coding = arms[H64].how.coding  # type: ignore[union-attr]
    wire = sum(-(-4 * p.numel() // 8) + 4 * -(-p.numel() // coding.block) for p in params)
    assert one.largest == wire and one.sent == wire * (TINY.steps // arms[H64].steps)
    assert one.fetched == one.sent * TINY.workers * (TINY.workers - 1)
    parallel = first.run(PARALLEL, arms[PARALLEL], 0)
    assert parallel.sent == 4 * sum(p.numel() for p in params) * TINY.steps
    assert first.run(SINGLE, arms[SINGLE], 0).fetched == 0
    assert len({one.digest, parallel.digest, first.run(SINGLE, arms[SINGLE], 0).digest}) == 3


@pytest.mark.slow
def test_faults_bite(tmp_path: Path) -> None:
    """A worker's absence, a lost change and a bad worker each give other parameters."""
    made = Bench(TINY, tmp_path, tmp_path)
    plain = bench.arms(TINY)[H50]
    faults = {
        "well": Faults(),
        "away": Faults(absent=((1, 1, 2),)),
        "bad": Faults(byzantine=1),
        "lost": Faults(dropped=1.0),
    }
    digests = {n: made.run(n, replace(plain, faults=f), 0).digest for n, f in faults.items()}
    assert len(set(digests.values())) == 4
    lost = made.run("lost", replace(plain, faults=faults["lost"]), 0)
    assert lost.sent == 0 and lost.curve[0][1] == pytest.approx(lost.curve[-1][1]), "θ never moved"
    drops = [chance("dropped", 0, k, r) < 0.5 for k in range(6) for r in range(50)]
    assert 0.4 < sum(drops) / len(drops) < 0.6


def test_fragments_are_all_parameters_once() -> None:
    config = models.GptConfig(3, 1, 8, 8)
    parts = bench.blocks_of(config)
    assert sorted(i for p in parts for i in p) == list(range(len(list(models.build(config, 0).parameters()))))
    assert len(parts) == 5


@pytest.mark.slow
def test_every_arm_and_every_failure_runs(tmp_path: Path) -> None:
    made = Bench(TINY, tmp_path, tmp_path)
    results = {
        n: made.run(n, arm, 0)
        for n, arm in {**bench.arms(TINY), **bench.faulty(TINY), **bench.speeds(TINY)}.items()
    }
    bad = {n for n, r in results.items() if not math.isfinite(r.loss)}
    assert not bad - {"a Byzantine third, plain mean"}
    native = made.run("native", Arm(native=True), 0)
    assert native.loss == pytest.approx(results[SINGLE].loss, rel=1e-2)


@pytest.mark.long
def test_the_quick_arm_gives_its_keys_in_little_time(tmp_path: Path) -> None:
    """Less than 45 s of processor time; how long it takes depends on what else runs."""
    out = tmp_path / "out.json"
    command = [sys.executable, bench.__file__, "--quick", "--work", str(tmp_path), "--json", str(out)]
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    after = getrusage(RUSAGE_CHILDREN)
    made = json.loads(out.read_text())
    assert {"loss_ratio_h50", "loss_ratio_h64_4bit", "byte_ratio_h64_4bit"} <= made.keys()
    assert after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime < 45

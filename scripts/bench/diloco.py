"""Compares low-communication training with data parallel: held-out loss, and bytes that others fetch for it.

Every arm starts with the same parameters and AdamW state, from one worker's warm start, and trains as many
steps on as many workers (the single worker alone, so on a quarter of the tokens). All arithmetic of training
is order-free: inner steps compiled, compressions and outer steps by their programs; native fp32 only
evaluates. Bytes are those of the wires, each fetched by all other workers; data parallel is the equivalent
step on the joint batch, its bytes one f32 gradient per worker and step.

Usage: `python scripts/bench/diloco.py [--quick] [--arm NAME ...] [--seeds 3] [--work DIR] [--json [FILE]]
[--record]`. Completed arms are read from disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.numerics.encoding import to_bytes
from assay.program.execute import Executor
from assay.training import datasets, evaluate, job, models
from assay.training.algorithms import Algorithm, Sign
from assay.training.catalogue import RECIPES
from assay.training.codings import E3M0, Bins
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW, Muon, Optimiser, Sgd
from assay.training.outer import DiLoCo
from assay.training.schedules import Schedule
from scripts.bench.cluster import Cluster, in_rounds, ready_for
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

SMALL = models.GptConfig(n_layer=2, n_head=2, d_model=32, context=32)


@dataclass(frozen=True)
class Setting:
    """Model, duration and evaluation interval."""

    config: models.GptConfig = SMALL
    batch: int = 8
    workers: int = 4
    warm: int = 1000
    """Steps of one worker before any arm starts."""
    steps: int = 2560
    optimiser: Optimiser = field(
        default_factory=lambda: AdamW(lr=3e-3, schedule=Schedule(100), clip_norm=1.0)
    )
    every: int = 320
    """Approximate steps between evaluations."""
    records: int = 256
    """Held-out records per evaluation; the last one uses all."""
    max_bytes: int = 2 << 20
    compiled: bool = True


@dataclass(frozen=True)
class Arm:
    """A row of the table: an inner optimiser, and the algorithm that joins the workers."""

    how: Algorithm | None = None
    """None: one worker, or all in one step."""
    steps: int = 1
    """Inner steps per round."""
    optimiser: Optimiser | None = None
    """None: the warm start's AdamW, with its state."""
    together: bool = False
    flat: bool = False
    """All parameters are one tensor to the algorithm."""


@dataclass
class Result:
    """Result of an arm with one seed."""

    loss: float
    accuracy: float
    curve: list[tuple[int, float]]
    """(steps after the warm start, held-out loss on few records)."""
    sent: int
    """Average bytes of changes that one worker sent."""
    fetched: int
    """Bytes of changes that all workers fetched from others."""
    largest: int
    """Maximum bytes that one worker sent at once."""
    digest: str
    """Digest of the last parameters."""
    seconds: float


class Bench:
    """Arms of one setting; programs are traced once for all seeds."""

    def __init__(self, setting: Setting, work: Path, cache: Path) -> None:
        self.setting, self.cache = setting, cache if setting.compiled else None
        self.data = datasets.standard_library(
            setting.config.context, max_bytes=setting.max_bytes, held_out=0.05
        )
        key = hashlib.sha256(repr(setting).encode() + self.data.records).hexdigest()[:12]
        self.folder = work / key
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ready: dict[tuple[Optimiser, int], tuple[job.JobArtifacts, Executor]] = {}
        self._warm: dict[int, list[Tensor]] = {}

    def _program(self, optimiser: Optimiser, batch: int, seed: int) -> tuple[job.JobArtifacts, Executor]:
        """Job files with this seed's parameters, and the step's executor."""
        setting = self.setting
        made = job.build_job(
            models.build(setting.config, seed),
            cross_entropy,
            optimiser,
            self.data,
            batch=batch,
            shards=1,
            outer=DiLoCo(),
            description=models.describe(setting.config),
        )
        key = (optimiser, batch)
        if key not in self._ready:
            self._ready[key] = (made, ready_for(made.inner, self.cache))
        assert self._ready[key][0].inner.root == made.inner.root, "seeds differ in parameters only"
        return made, self._ready[key][1]

    def _look(self, theta: Sequence[Tensor], records: int) -> evaluate.Evaluation:
        made, _ = next(iter(self._ready.values()))
        params = dict(zip(made.slot_names[: len(theta)], theta, strict=True))
        model = evaluate.loaded(params, made.model)
        rows = self.data.held_out_batch(records)
        return evaluate.evaluated(model, cross_entropy, self.data.layout, rows)

    def _cluster(self, arm: Arm, workers: int, seed: int) -> Cluster:
        setting = self.setting
        if seed not in self._warm:
            made, ready = self._program(setting.optimiser, setting.batch, seed)
            before = Cluster(made, ready, 1, seed, 0, made.genesis, self.cache)
            before.train(0, 0, setting.warm)
            self._warm[seed] = before.states[0]
        batch = setting.batch * (setting.workers if arm.together else 1)
        optimiser = arm.optimiser or setting.optimiser
        made, ready = self._program(optimiser, batch, seed)
        warm = self._warm[seed]
        fresh = [*warm[: made.inner.params], *made.genesis[made.inner.params :]]
        start = warm if arm.optimiser is None else fresh
        return Cluster(made, ready, workers, seed, setting.warm, start, self.cache)

    def run(self, name: str, arm: Arm, seed: int) -> Result:
        """Runs an arm, or reads its result from disk."""
        key = hashlib.sha256(repr(arm).encode()).hexdigest()[:8]
        kept = self.folder / f"{'-'.join(name.replace('=', '').replace(',', '').split())}-{key}-{seed}.json"
        if kept.exists():
            read = Result(**json.loads(kept.read_text()))
            read.curve = [(int(done), loss) for done, loss in read.curve]
            return read
        setting, started = self.setting, time.perf_counter()
        alone = arm.how is None
        cluster = self._cluster(arm, 1 if alone else setting.workers, seed)
        curve = [(0, self._look(cluster.theta, setting.records).loss)]

        def look(done: int, theta: list[Tensor]) -> None:
            often = max(arm.steps, setting.every)
            if done // often > curve[-1][0] // often:
                curve.append((done, self._look(theta, setting.records).loss))

        _train(cluster, arm, setting.steps, setting.every, look)
        last = self._look(cluster.theta, 1 << 30)
        sent = cluster.sent
        if arm.together:
            workers, size = setting.workers, 4 * sum(t.numel() for t in cluster.theta)
            for _ in range(workers * setting.steps):
                sent.add(size, workers - 1)
        assert last.accuracy is not None
        result = Result(
            last.loss,
            last.accuracy,
            curve,
            sent.total // (setting.workers if alone else cluster.workers),
            sent.fetched,
            sent.largest,
            hashlib.sha256(b"".join(to_bytes(t) for t in cluster.theta)).hexdigest()[:16],
            time.perf_counter() - started,
        )
        kept.write_text(json.dumps(asdict(result)))
        print(f"seed {seed}, {name}: {last.loss:.4f} in {result.seconds:.0f} s", file=sys.stderr, flush=True)
        return result


def _train(
    cluster: Cluster, arm: Arm, steps: int, every: int, look: Callable[[int, list[Tensor]], None]
) -> None:
    if arm.how is None:
        for done in range(0, steps, every):
            cluster.train(0, done, min(every, steps - done))
            cluster.theta = cluster.local(0)
            look(min(done + every, steps), cluster.theta)
    else:
        in_rounds(cluster, arm.how, arm.steps, steps, look, arm.flat)


SINGLE, PARALLEL, H50, H64 = "single worker", "data parallel", "DiLoCo H=50", "DiLoCo H=64, 4 bits"
MULOCO = "MuLoCo H=50, 2 bits"


QUICKLY = (SINGLE, PARALLEL, H50, H64, MULOCO)
"""Arms of `--quick`."""
FULL = Setting()
QUICK = Setting(
    models.GptConfig(n_layer=1, n_head=2, d_model=16, context=16),
    batch=2,
    workers=2,
    warm=4,
    steps=16,
    every=8,
    records=16,
    max_bytes=1 << 16,
    compiled=False,
)


def arms(setting: Setting) -> dict[str, Arm]:
    """Rows of the table. A paper's round of 30 steps becomes 32 where it does not divide the total."""
    wide = E3M0(1024)  # a scale for 64 elements would cost an eighth of the bits
    short = setting.steps < 64
    h50, h64, h32 = (2, 4, 2) if short else (50, 64, 32)
    muon = Muon(lr=0.02, others=AdamW(lr=3e-3))
    return {
        SINGLE: Arm(),
        PARALLEL: Arm(together=True),
        H50: Arm(RECIPES["diloco"], h50),
        H64: Arm(replace(RECIPES["diloco-4bit"], coding=wide), h64),
        MULOCO: Arm(replace(RECIPES["muloco"], coding=Bins(2, 512)), h50, muon),
        "SparseLoCo H=32": Arm(RECIPES["sparseloco"], h32, flat=True),
        "FedAvg H=50": Arm(RECIPES["fedavg"], h50),
        "DeMo": Arm(replace(RECIPES["demo"], rule=Sign(1e-3)), 1, Sgd(lr=1.0, momentum=0.0), flat=True),
    }


Results = dict[str, list[Result]]


def _mean(results: Sequence[Result], key: str) -> float:
    return statistics.fmean(getattr(r, key) for r in results)


def figures(found: Results) -> dict[str, Any]:
    """The recorded figures, and each arm relative to data parallel: losses averaged over the seeds."""
    out: dict[str, Any] = {}
    losses = {name: _mean(results, "loss") for name, results in found.items()}
    if PARALLEL in found:
        base, bytes_ = losses[PARALLEL], _mean(found[PARALLEL], "fetched")
        ratios = {n: loss / base for n, loss in losses.items()}
        fewer = {n: bytes_ / _mean(r, "fetched") for n, r in found.items() if _mean(r, "fetched")}
        out |= {"loss_ratios": ratios, "byte_ratios": fewer}
        for key, name in (("h50", H50), ("h64_4bit", H64), ("muloco_2bit", MULOCO)):
            if name in found:
                out |= {f"loss_ratio_{key}": ratios[name], f"byte_ratio_{key}": fewer[name]}
    for key, name in (("h50", H50), ("h64_4bit", H64)):
        if name in found and SINGLE in found:
            out[f"nats_below_single_{key}"] = losses[SINGLE] - losses[name]
    if MULOCO in found and H50 in found:
        out["loss_ratio_muloco_to_h50"] = losses[MULOCO] / losses[H50]
        out["byte_ratio_muloco_to_h50"] = _mean(found[H50], "fetched") / _mean(found[MULOCO], "fetched")
    return out


def rows(found: Results) -> list[list[str]]:
    """A row per arm: means over the seeds, and the losses' spread."""
    base = found.get(PARALLEL)
    out = []
    for name, results in found.items():
        loss, losses = _mean(results, "loss"), [r.loss for r in results]
        fetched = _mean(results, "fetched")
        ratio = f"{loss / _mean(base, 'loss'):.4f}" if base else ""
        fewer = f"{_mean(base, 'fetched') / fetched:,.1f}" if base and fetched else ""
        out.append(
            [
                name,
                f"{loss:.4f}",
                f"{max(losses) - min(losses):.4f}",
                ratio,
                f"{100 * _mean(results, 'accuracy'):.2f}",
                f"{_mean(results, 'sent') / 1e6:.3f}",
                fewer,
                f"{_mean(results, 'largest') / 1e3:.2f}",
            ]
        )
    return out


HEAD = ["arm", "loss", "spread", "÷ parallel", "accuracy %", "MB sent a worker", "× fewer", "kB at once"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, a few steps of a tiny model")
    parser.add_argument("--arm", action="append", help="default: all")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--work", type=Path, default=ROOT / ".assay" / "diloco")
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    add_options(parser, "diloco")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "arm")
    torch.set_num_threads(1)
    setting = QUICK if chosen.quick else FULL
    bench = Bench(setting, chosen.work, chosen.cache)
    known = arms(setting)
    if chosen.quick:
        known = {name: arm for name, arm in known.items() if name in QUICKLY}
    if unknown := set(chosen.arm or []) - known.keys():
        parser.error(f"no arm {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    seeds = range(chosen.seeds or (1 if chosen.quick else 3))
    found: Results = {name: [] for name in chosen.arm or known}
    for seed in seeds:
        for name in found:
            found[name].append(bench.run(name, known[name], seed))
    text = table(HEAD, rows(found))
    results = {**figures(found), "arms": {n: [asdict(r) for r in rs] for n, rs in found.items()}}
    report(results, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

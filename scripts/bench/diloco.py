"""Low-communication training beside data parallel: held-out loss, and the bytes that others fetch for it.

Every arm begins with the same parameters and AdamW state, of one worker's warm start, and trains as many
steps on as many workers (the single worker: alone, so on a quarter of the tokens). All arithmetic of training
is order-free: inner steps compiled, compressions and outer steps by their programs; native fp32 only looks at
the results. Bytes are the packed changes, each fetched by all other workers; data parallel is the one step of
a joint batch that it equals, its bytes those of one f32 gradient of each worker a step.

Usage: `python scripts/bench/diloco.py [--quick] [--arm NAME ...] [--faults] [--speeds] [--seeds 3]
[--work DIR] [--plots DIR] [--json [FILE]] [--record]`. Arms that are done are read from disk.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.training import models
from assay.training.algorithms import CentredClip, DelayedNesterov, MedianNorm, Nesterov, Sign, Trimmed
from assay.training.catalogue import RECIPES
from assay.training.codings import E3M0, Bins
from assay.training.optimisers import AdamW, Muon, Sgd
from assay.training.overlap import Eager, Streaming
from scripts.bench.arms import Arm, Bench, Result, Setting
from scripts.bench.cluster import Faults
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table
from scripts.bench.svg import Series, plot

SINGLE, PARALLEL, H50, H64 = "single worker", "data parallel", "DiLoCo H=50", "DiLoCo H=64, 4 bits"
MULOCO = "MuLoCo H=50, 2 bits"


QUICKLY = (SINGLE, PARALLEL, H50, H64, MULOCO)
"""What `--quick` runs."""
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


def blocks_of(config: models.GptConfig) -> tuple[tuple[int, ...], ...]:
    """Fragments: embeddings, each transformer block, and what follows them."""
    names = [n for n, _ in models.build(config, 0).named_parameters()]
    keys = [
        n.split(".")[1] if n.startswith("blocks.") else str(n.startswith(("norm", "head"))) for n in names
    ]
    return tuple(tuple(i for i, k in enumerate(keys) if k == key) for key in dict.fromkeys(keys))


def arms(setting: Setting) -> dict[str, Arm]:
    """The table's rows. Where a paper's round of 30 does not divide the rest's, 32 is taken."""
    wide = E3M0(1024)  # a scale for 64 elements would cost an eighth of the bits
    short = setting.steps < 64
    h50, h64, h32 = (2, 4, 2) if short else (50, 64, 32)
    streaming = Streaming(blocks_of(setting.config), h64, 1 if short else 5)
    muon = Muon(lr=0.02, others=AdamW(lr=3e-3))
    return {
        SINGLE: Arm(),
        PARALLEL: Arm(together=True),
        H50: Arm(RECIPES["diloco"], h50),
        H64: Arm(replace(RECIPES["diloco-4bit"], coding=wide), h64),
        "Streaming H=64, 4 bits": Arm(
            replace(streaming, algorithm=replace(streaming.algorithm, coding=wide)), h64
        ),
        "eager updates H=50": Arm(Eager(Nesterov(0.7, 0.9)), h50),
        "eager, 0.4 and 0.6": Arm(Eager(Nesterov(0.4, 0.6)), h50),
        "one-step delay H=50": Arm(RECIPES["diloco"], h50, late=1),
        "delay, 0.7 and 0": Arm(replace(RECIPES["diloco"], rule=Nesterov(0.7, 0.0)), h50, late=1),
        MULOCO: Arm(replace(RECIPES["muloco"], coding=Bins(2, 512)), h50, muon),
        "SparseLoCo H=32": Arm(RECIPES["sparseloco"], h32, flat=True),
        "FedAvg H=50": Arm(RECIPES["fedavg"], h50),
        "DeMo": Arm(replace(RECIPES["demo"], rule=Sign(1e-3)), 1, Sgd(lr=1.0, momentum=0.0), flat=True),
    }


def faulty(setting: Setting) -> dict[str, Arm]:
    """The failures, of three halves as many workers; rounds of 50 steps."""
    steps = 2 if setting.steps < 64 else 50
    rounds = setting.steps // steps
    many = 3 * setting.workers // 2
    third, half, thirds = many // 3, rounds // 2, (rounds // 3, 2 * rounds // 3)
    lost = tuple((k, half, half + max(1, rounds // 10)) for k in range(third))
    moving = tuple((many - 1 - k, 0, thirds[0]) for k in range(third))
    moving += tuple((k, thirds[1], rounds) for k in range(third))

    def arm(mean: Any = None, **what: Any) -> Arm:
        rule = RECIPES["diloco"] if mean is None else replace(RECIPES["diloco"], mean=mean)
        return Arm(rule, steps, workers=many, faults=Faults(**what))

    return {
        "all well": arm(),
        "half of the changes dropped": arm(dropped=0.5),
        "a third lost midway, replaced": arm(absent=lost),
        "a third joins, another leaves": arm(absent=moving),
        "a Byzantine third, plain mean": arm(byzantine=third),
        "a Byzantine third, median norm": arm(MedianNorm(), byzantine=third),
        "a Byzantine third, trimmed mean": arm(Trimmed(third), byzantine=third),
        "a Byzantine third, centred clip": arm(CentredClip(), byzantine=third),
    }


def speeds(setting: Setting) -> dict[str, Arm]:
    """Half of the workers four times slower: rounds that wait for them, that do not, and delayed momentum,
    whose rate is that of N rounds together."""
    steps, by = (4, 2) if setting.steps < 64 else (64, 4)
    half, diloco = (setting.workers // 2, by), RECIPES["diloco"]
    every = (1, 2) if setting.steps < 64 else (2, 4)
    late = {n: replace(RECIPES["delayed-nesterov"], rule=DelayedNesterov(0.7 * n, 0.9, n)) for n in every}
    return {
        "all fast": Arm(diloco, steps),
        "all as slow": Arm(diloco, steps, slow=(setting.workers, by)),
        "half slow": Arm(diloco, steps, slow=half),
        **{f"half slow, delayed, N = {n}": Arm(how, steps, slow=half) for n, how in late.items()},
    }


Results = dict[str, list[Result]]


def _mean(results: Sequence[Result], key: str) -> float:
    return statistics.fmean(getattr(r, key) for r in results)


def figures(found: Results) -> dict[str, Any]:
    """The keys that have goals, and each arm beside data parallel: losses of means over the seeds."""
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
    """A row for each arm: means over the seeds, and the losses' spread."""
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


def spike(result: Result) -> float:
    """The most by which the held-out loss rose from one look to the next, in nats."""
    losses = [loss for _, loss in result.curve]
    return max([b - a for a, b in pairwise(losses)], default=0.0)


DIVERGED = 10.0
"""Nats above the loss when all is well, from which perplexities are no use."""
PAPERS = {
    "half of the changes dropped": "+2.1 % perplexity (DiLoCo)",
    "a third joins, another leaves": "no spike (PRIME)",
}


def fault_rows(found: Results) -> list[list[str]]:
    """A row for each failure: its loss beside that of the same workers when all is well."""
    well = _mean(found["all well"], "loss") if "all well" in found else float("nan")
    out = []
    for name, results in found.items():
        loss = _mean(results, "loss")
        more = "diverges" if loss - well > DIVERGED else f"{100 * math.expm1(loss - well):+.1f} %"
        out.append([name, f"{loss:.4f}", more, f"{max(spike(r) for r in results):.4f}", PAPERS.get(name, "")])
    return out


FAULT_HEAD = ["what fails", "loss", "perplexity", "largest rise between rounds", "the paper's"]


FAR = 1.25
"""Times data parallel's loss, from which an arm would press all others of the picture into one line."""


def pictures(found: Results) -> dict[str, str]:
    """SVG by file name: the held-out losses of the first seed, and loss against bytes, of arms that learn."""
    curves = [Series(n, r[0].curve) for n, r in found.items() if n in (SINGLE, PARALLEL, H50, H64, MULOCO)]
    base = _mean(found[PARALLEL], "loss") if PARALLEL in found else 1.0
    points = [
        Series(
            n,
            [(math.log10(_mean(r, "sent") / 1e6), 100 * (_mean(r, "loss") / base - 1))],
            line=False,
        )
        for n, r in found.items()
        if _mean(r, "sent") and _mean(r, "loss") < FAR * base
    ]
    return {
        "diloco.svg": plot(
            "held-out loss, first seed", "steps after the warm start", "nats", curves, zero=False
        ),
        "diloco-bytes.svg": plot(
            f"loss beside data parallel's, where it is below {FAR:g} times it",
            "log10 of MB sent a worker",
            "per cent",
            points,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, a few steps of a tiny model")
    parser.add_argument("--arm", action="append", help="default: all")
    parser.add_argument("--faults", action="store_true", help="the failures too")
    parser.add_argument("--speeds", action="store_true", help="workers of two speeds too")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--work", type=Path, default=ROOT / ".assay" / "diloco")
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    parser.add_argument("--plots", type=Path, help="directory for the pictures")
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
    if chosen.faults:
        broken = {name: [bench.run(name, arm, 0)] for name, arm in faulty(setting).items()}
        text += "\n\n" + table(FAULT_HEAD, fault_rows(broken))
        results["faults"] = {n: [asdict(r) for r in rs] for n, rs in broken.items()}
    if chosen.speeds:
        paced = {name: [bench.run(name, arm, 0)] for name, arm in speeds(setting).items()}
        text += "\n\n" + table(HEAD, rows(paced))
        results["speeds"] = {n: [asdict(r) for r in rs] for n, rs in paced.items()}
    if chosen.plots:
        chosen.plots.mkdir(parents=True, exist_ok=True)
        for file, drawn in pictures(found).items():
            (chosen.plots / file).write_text(drawn)
    report(results, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

"""nanoGPT's character-level Shakespeare on a CPU, in order-free arithmetic and in native fp32, and by DiLoCo.

4 layers, 4 heads, width 128, context 64, batch 12, 2,000 steps, no dropout; nanoGPT publishes a validation
loss of 1.88. Here the vocabulary is all 256 bytes, head and embedding are not tied, and records do not
overlap; a tenth of the text is held out, as there. The text is the user's.

Usage: `python scripts/bench/shakespeare.py --data input.txt [--seeds 1] [--json [FILE]] [--record]`. Keys
`order_free`, `native`, `diloco_x4`: held-out losses. Arms that are done are read from disk.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.training import models
from assay.training.catalogue import RECIPES
from assay.training.optimisers import AdamW
from assay.training.schedules import Schedule
from scripts.bench.arms import Arm, Bench, Setting
from scripts.bench.diloco import HEAD, rows
from scripts.bench.report import ROOT, add_options, report, table

PUBLISHED = 1.88
SETTING = Setting(
    models.GptConfig(n_layer=4, n_head=4, d_model=128, context=64),
    batch=12,
    workers=4,
    warm=0,
    steps=2000,
    optimiser=AdamW(lr=1e-3, beta2=0.99, schedule=Schedule(100, "cosine", 2000, 0.1), clip_norm=1.0),
    every=250,
    held_out=0.1,
)
ARMS = {
    "order_free": Arm(),
    "native": Arm(native=True),
    "diloco_x4": Arm(RECIPES["diloco"], 50),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="the text, such as input.txt")
    parser.add_argument("--arm", action="append", choices=list(ARMS), help="default: all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / ".assay" / "shakespeare")
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    add_options(parser, "shakespeare")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(replace(SETTING, text=chosen.data), chosen.work, chosen.cache)
    found = {n: [bench.run(n, ARMS[n], seed) for seed in range(chosen.seeds)] for n in chosen.arm or ARMS}
    losses = {n: sum(r.loss for r in results) / len(results) for n, results in found.items()}
    text = table(HEAD, rows(found)) + f"\n\nPublished for one worker: {PUBLISHED}."
    arms = {n: [asdict(r) for r in results] for n, results in found.items()}
    report({**losses, "published": PUBLISHED, "arms": arms}, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

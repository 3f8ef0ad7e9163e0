"""Measures the cost of verifiability: committing to states, tracing a step, replaying a sampled segment.

Baseline, in the same run: a segment of 16 compiled steps and one compiled step. Measured: the same segment
while its start state is hashed (a solver); a step with every node's output hashed under a key (a vote);
loading a segment's start, checking its root, and computing its end's root (a replay, besides the segment);
the root of a state alone; reading a published state back from the block store and computing its root (a
restarted solver, for each segment end). All take turns; the minimum of each counts, and CPU seconds cover all
threads. A trace runs node by node, so such a step is timed as well.

Usage: `python scripts/bench/proof.py [--quick] [--size gpt-512] [--turns 3] [--threads 1] [--json [FILE]]
[--record]`. Compiling takes minutes, once; forms are kept under `--cache` (those of
scripts/bench/numerics.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as the nodes do (cli/__init__.py)

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.blocks.blockstore import BlockStore
from assay.dispute.trace import trace_step
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.program.state import begin_tree, load_state, state_bytes, state_root
from scripts.bench.numerics import SEED, SIZES, built
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

SEGMENT_STEPS = 16
KEY = b"k" * 32
STEP, EAGER, SEGMENT, COMMITTING, ROOT_ALONE, TRACE, CHECKS, KEPT = (
    "compiled step",
    "step node by node",
    "segment of 16 steps",
    "segment, hashing the state before it",
    "root of a state, nothing beside",
    "step with its keyed trace",
    "loading a state, two roots",
    "reading a kept state, its root",
)
GOALS = {"commit_ratio": 0.03, "trace_ratio": 3.0, "replay_ratio": 1.05}


class Subject:
    """A job's program in both executors, from its genesis state."""

    def __init__(self, name: str, cache: Path, folder: Path) -> None:
        size = SIZES[name]
        made, _, _ = built(size)
        self.program, self.genesis = made.inner, made.genesis
        self._context = StepContext(made.records, SEED, 0, 0)
        self._compiled = CompiledExecutor(made.inner, cache_dir=cache)
        self._eager = Executor(made.inner, kernels=FAST)
        self.state: Sequence[Tensor] = self._compiled.step(made.genesis, self._context)
        self._bytes = state_bytes(self.state)
        self._root = state_root(self.state)
        self._store = BlockStore(folder)
        self._kept = self._store.add_file(self._bytes)

    def step(self) -> None:
        """One compiled step."""
        self._compiled.step(self.state, self._context)

    def eager_step(self) -> None:
        """One step, node by node."""
        self._eager.step(self.state, self._context)

    def segment(self) -> None:
        """A segment of compiled steps."""
        self._compiled.run(self.state, self._context, SEGMENT_STEPS)

    def committing(self) -> None:
        """A segment while its start state is hashed; ends when both are done."""
        tree = begin_tree(self.state)
        self.segment()
        assert tree().root == self._root

    def root(self) -> None:
        """Root of a state."""
        assert state_root(self.state) == self._root

    def trace(self) -> None:
        """A step with the keyed root of every node's output."""
        trace_step(self.program, self.state, self._context, KEY, executor=self._eager)

    def checks(self) -> None:
        """A replay's work besides its steps."""
        assert state_root(load_state(self.program, BytesIO(self._bytes))) == self._root
        assert state_root(self.state) == self._root

    def kept(self) -> None:
        """Verification of a state that an earlier process has stored."""
        data = self._store.read_file(self._kept, self.program.state_bytes)
        assert state_root(load_state(self.program, BytesIO(data))) == self._root


def timed(works: dict[str, Callable[[], None]], turns: int) -> dict[str, dict[str, float]]:
    """Minimum and median wall seconds, and minimum CPU seconds, of each; all take turns."""
    wall: dict[str, list[float]] = {name: [] for name in works}
    processor: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns):
        for name in list(works) if turn % 2 else list(reversed(works)):
            started, spent = time.perf_counter(), time.process_time()
            works[name]()
            wall[name].append(time.perf_counter() - started)
            processor[name].append(time.process_time() - spent)
    return {
        name: {
            "least_s": min(wall[name]),
            "median_s": statistics.median(wall[name]),
            "processor_s": min(processor[name]),
        }
        for name in works
    }


def measured(name: str, cache: Path, turns: int, folder: Path) -> dict[str, Any]:
    """All numbers of one size; `folder` is for blocks."""
    subject = Subject(name, cache, folder)
    works = {
        STEP: subject.step,
        EAGER: subject.eager_step,
        SEGMENT: subject.segment,
        COMMITTING: subject.committing,
        ROOT_ALONE: subject.root,
        TRACE: subject.trace,
        CHECKS: subject.checks,
        KEPT: subject.kept,
    }
    for work in (subject.step, subject.eager_step, subject.root, subject.trace):
        work()
    found = timed(works, turns)

    def ratio(a: str, b: str, key: str = "least_s") -> float:
        return found[a][key] / found[b][key]

    root = found[ROOT_ALONE]["processor_s"] / found[SEGMENT]["processor_s"]
    fifteen = found[SEGMENT]["least_s"] * (SEGMENT_STEPS - 1) / SEGMENT_STEPS
    vote = fifteen + found[TRACE]["least_s"] + found[CHECKS]["least_s"]
    return {
        "size": name,
        "parameters": sum(x.numel() for x in subject.genesis[: subject.program.params]),
        "state_bytes": subject.program.state_bytes,
        "trace_bytes": sum(node.bytes for node in subject.program.nodes),
        "seconds": found,
        "commit_ratio": ratio(COMMITTING, SEGMENT) - 1,
        "commit_alone_ratio": ratio(ROOT_ALONE, SEGMENT),
        "commit_processor_ratio": root,
        "trace_ratio": ratio(TRACE, STEP),
        "trace_processor_ratio": ratio(TRACE, STEP, "processor_s"),
        "trace_ratio_to_eager": ratio(TRACE, EAGER),
        "replay_ratio": 1 + ratio(CHECKS, SEGMENT),
        "kept_ratio": ratio(KEPT, SEGMENT),
        "vote_ratio": vote / found[SEGMENT]["least_s"],
    }


def rows(result: dict[str, Any]) -> list[list[str]]:
    """Table rows of one size."""
    seconds = result["seconds"]
    out = []
    for name, found in seconds.items():
        base = seconds[SEGMENT if name in (SEGMENT, COMMITTING, ROOT_ALONE, CHECKS, KEPT) else STEP]
        ratios = [f"{found[key] / base[key]:.3f}" for key in ("least_s", "processor_s")]
        cells = [f"{1e3 * found[key]:,.0f}" for key in ("least_s", "median_s", "processor_s")]
        out.append([result["size"], name, *cells, *ratios])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller model, two turns")
    parser.add_argument("--size", choices=sorted(n for n in SIZES if n.startswith("gpt")))
    parser.add_argument("--turns", type=int)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    add_options(parser, "proof")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "size")
    torch.set_num_threads(chosen.threads)
    name = chosen.size or ("gpt-256" if chosen.quick else "gpt-512")
    turns = chosen.turns or (2 if chosen.quick else 3)
    with tempfile.TemporaryDirectory(prefix="assay-blocks-") as folder:
        result = measured(name, chosen.cache, turns, Path(folder))
    head = ["size", "what", "ms (least)", "ms (median)", "CPU ms", "to step or segment", "of CPU"]
    goals = ", ".join(f"{key} {result[key]:.3f} (goal {goal})" for key, goal in GOALS.items())
    rest = ", ".join(f"{key} {x:.3f}" for key, x in result.items() if "ratio" in key and key not in GOALS)
    text = f"{table(head, rows(result))}\n\n{goals}\n{rest}"
    whole = {**{k: x for k, x in result.items() if "ratio" in k}, "goals": GOALS, **result}
    report(whole, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

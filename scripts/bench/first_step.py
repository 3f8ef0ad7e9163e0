"""How long a node that sees a job for the first time takes to train, and to train in compiled form.

The clock starts where a solver begins to examine a job: its files are read from the node's own block store
and checked (fetching them over a network is not in it), the first state is read, and steps run, eagerly at
first, while another process compiles the program (docs/decisions/0011-compiled-execution-in-use.md). No form
of the program is there at the start; the process has run no step before. The compiled form's first step runs
eagerly too and is compared, bit by bit. Beside it, in the same run, what native fp32 takes until its first
step by `torch.compile` has ended, with empty caches, on a machine that does nothing else meanwhile.

Usage: `python scripts/bench/first_step.py [--quick] [--size gpt-512 ...] [--threads N] [--json FILE]
[--record]`. Keys, in seconds: `first_step` (goal 10), `compiled` (goal 60), `native_compiled`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange
from assay.blocks.node import NodeBlocks
from assay.node.artifacts import ResourceLimits, load_job, publish_job
from assay.node.engine import Engine, ExecutorKind
from assay.node.slots import read_slot
from assay.program.compiled.warming import WarmingExecutor
from assay.program.execute import StepContext
from assay.protocol.types import Address
from scripts.bench.numerics import SIZES, Size, built, native_step
from scripts.bench.report import add_options, refuse_partial, report, table
from tests.fakes.jobs import tiny_terms

STEPS, SEGMENT, ROUNDS = 64, 16, 100
LIMITS = ResourceLimits(1 << 30, 1 << 33, 1 << 34, 1 << 50)
LONGEST_S = 900.0


def ours(size: Size, folder: Path) -> dict[str, Any]:
    """Seconds until the files are checked, until the first step, and until the first compiled one."""
    store = BlockStore(folder / "blocks")
    with Exchange(store, []) as exchange:
        blocks = NodeBlocks(store, exchange)
        published = publish_job(blocks, built(size)[0])
        round_ = {"rounds": ROUNDS, "steps_per_round": STEPS, "segment_steps": SEGMENT}
        terms = tiny_terms(published, Address("0x" + "11" * 20), **round_)
        engine = Engine(way=ExecutorKind.AUTO, forms=folder / "forms")
        begun = time.perf_counter()
        files = load_job(blocks, terms, LIMITS)
        examined = time.perf_counter() - begun
        executor = engine.executor(files.inner, ROUNDS * STEPS)
        assert isinstance(executor, WarmingExecutor)
        pairs = zip(files.genesis, files.inner.state, strict=True)
        state = [read_slot(blocks, slot, node) for slot, node in pairs]
        ends: list[float] = []
        while not executor.ready:
            context = StepContext(files.records, terms.seed, 0, len(ends))
            state = executor.step(state, context)
            ends.append(time.perf_counter() - begun)
            if ends[-1] > LONGEST_S:
                raise SystemExit(f"no compiled form within {LONGEST_S:g} s: see the log above")
        executor.close()
    return {"examined": examined, "first_step": ends[0], "compiled": ends[-1], "eager_steps": len(ends) - 1}


def natives(size: Size, folder: Path) -> float:
    """Seconds until the first native step by `torch.compile` has ended, with caches of its own."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    native, state, batch = native_step(size, *built(size))
    begun = time.perf_counter()
    torch.compile(native)(state, batch)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the smallest size alone")
    parser.add_argument("--size", action="append", choices=sorted(SIZES), help="default: gpt-512, gpt-256")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    add_options(parser, "first-step")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "size")
    torch.set_num_threads(chosen.threads)
    results = []
    for name in chosen.size or (["mlp"] if chosen.quick else ["gpt-512", "gpt-256"]):
        with tempfile.TemporaryDirectory() as folder:
            found = ours(SIZES[name], Path(folder))
            found |= {"native_compiled": natives(SIZES[name], Path(folder))}
        results.append({"size": name, "threads": chosen.threads, **found})
        print(results[-1], file=sys.stderr, flush=True)
    keys = ("examined", "first_step", "compiled", "native_compiled")
    head = ["size", "files checked, s", "first step", "first compiled", "native compiled", "eager steps"]
    rows = [[r["size"], *(f"{r[key]:.1f}" for key in keys), str(r["eager_steps"])] for r in results]
    report(
        {**{k: results[0][k] for k in keys}, "sizes": results}, table(head, rows), chosen.json, chosen.record
    )


if __name__ == "__main__":
    main()

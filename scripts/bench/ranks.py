"""What a training step costs each of several ranks, against one process alone.

The same step, eagerly, from the same state: by one process, then by a group of ranks on this machine, one
thread each. Counted is processor time, since ranks that share a core wait for each other: the least step of
the process alone over that of the first rank, and the mean of both over all steps of the busiest rank. The
states at the end are compared.

Usage: `python scripts/bench/ranks.py [--ranks 2] [--batch 16] [--width 256] [--context 128] [--steps 5]
[--json]`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.numerics import FAST
from assay.program.execute import Executor, StepContext
from assay.program.ranks.executor import RankExecutor
from assay.program.ranks.launch import LocalRanks
from assay.program.state import state_root
from assay.training import job, models

SEED = b"ranks".ljust(32, b"\0")


def processor_s(process: int) -> float:
    """Processor seconds that another process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def timed(executor: Executor, files: job.JobArtifacts, steps: int) -> tuple[list[float], bytes]:
    """Processor seconds of each step after a first one, and the last state's root."""
    context = StepContext(files.records, SEED, 0, 0)
    state, taken = executor.step(files.genesis, context), []
    for _ in range(steps):
        before = time.process_time()
        state = executor.step(state, context)
        taken.append(time.process_time() - before)
    return taken, state_root(state)


def compared(files: job.JobArtifacts, size: int, steps: int) -> dict[str, float]:
    """Processor seconds and ratios. Raises SystemExit where a bit differs."""
    alone, wanted = timed(Executor(files.inner, "cpu", FAST), files, steps)
    ranks = LocalRanks(size)
    together = RankExecutor(files.inner, size, ranks.join)
    together.step(files.genesis, StepContext(files.records, SEED, 0, 0))
    before = [processor_s(process) for process in ranks.processes]
    first, found = timed(together, files, steps)
    others = [processor_s(p) - b for p, b in zip(ranks.processes, before, strict=True)]
    ranks.close()
    if wanted != found:
        raise SystemExit("the ranks give other bits than one process")
    busiest = max([sum(first) / steps, *(taken / (steps + 1) for taken in others)])
    return {
        "alone_s": min(alone),
        "first_rank_s": min(first),
        "ratio": min(alone) / min(first),
        "ratio_of_means_to_busiest": sum(alone) / steps / busiest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("ranks", 2), ("batch", 16), ("width", 256), ("context", 128), ("steps", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = models.GptConfig(n_layer=4, n_head=8, d_model=options.width, context=options.context)
    files = job.gpt(config, batch=options.batch, max_bytes=1 << 17)
    found = compared(files, options.ranks, options.steps)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{options.ranks} ranks, batch {options.batch} × {options.context}, width {options.width}:")
    for name, value in found.items():
        print(f"  {name:28}{value:8.3f}")


if __name__ == "__main__":
    main()

"""What a vote replays beside training, by outer algorithm: the loops' steps in steps of the training.

Each template's job is built from its job file by the algorithm, and its loops are executed node by node in
one process, on the genesis state: a step of the training, a step of each other loop, and that step with its
keyed trace, whose sum is what a vote commits to. Least times of `--turns`, which the programs take in turn.
These are the figures of `labs/economics/experiments.py` (OTHER_LOOPS) and of docs/economics.md.

Usage: `python labs/economics/votes.py [ALGORITHM ...] [--templates gpt mlp cnn] [--turns 9] [--clock wall]`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.dispute.trace import trace_step
from assay.job.build import build
from assay.job.read import parse_job_file
from assay.job.templates import LOCAL, by_algorithm, template
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.training.catalogue import CATALOGUE, defined_with
from assay.training.job import JobArtifacts

TEMPLATES = {"gpt": "stdlib", "mlp": "digits", "cnn": "digits"}
"""By name: the data."""
KEY = bytes(range(32))
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def job(algorithm: str, name: str) -> JobArtifacts:
    """The template's job by the algorithm, as `assay job init` writes it."""
    text = template(name, source=TEMPLATES[name], rounds=1, times=LOCAL, optimiser=defined_with(algorithm))
    return build(parse_job_file(by_algorithm(text, algorithm), algorithm))


def measured(files: JobArtifacts, turns: int, clock: Callable[[], float]) -> tuple[float, float, float]:
    """Seconds of a step of the training, of one of each other loop, and of those with their keyed traces."""
    context = StepContext(files.records, bytes(32), 0, 0)
    runs = [Executor(program, kernels=FAST) for program in files.tasks]
    least = [[float("inf"), float("inf")] for _ in files.tasks]
    for _ in range(turns):
        for number, (program, run) in enumerate(zip(files.tasks, runs, strict=True)):
            began = clock()
            run.step(files.genesis, context)
            plain, began = clock() - began, clock()
            if number != files.main:
                trace_step(program, files.genesis, context, KEY, executor=run)
            least[number] = [min(x, y) for x, y in zip(least[number], (plain, clock() - began), strict=True)]
    beside = [times for number, times in enumerate(least) if number != files.main]
    return least[files.main][0], sum(t[0] for t in beside), sum(t[1] for t in beside)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("algorithms", nargs="*", default=[], metavar="ALGORITHM", help=", ".join(CATALOGUE))
    parser.add_argument("--templates", nargs="+", choices=TEMPLATES, default=list(TEMPLATES))
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for algorithm in options.algorithms or CATALOGUE:
        for name in options.templates:
            step, plain, traced = measured(job(algorithm, name), options.turns, CLOCKS[options.clock])
            print(
                f"{algorithm:16} {name}: a step {1e3 * step:.1f} ms, plain {plain / step:.2f}, traced"
                f" {traced / step:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Writes scripts/long_run.json: ten thousand steps, compiled and by the fast kernels, with equal roots.

The first thousand are also run by the definition, with the same roots. Takes minutes. Usage:
`scripts/generate/long_run.py [--check]`; `--check` compares all three with the file and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor
from assay.program.kernels import FAST
from scripts import long_run
from scripts.bench.report import ROOT

DEFINITION_STEPS = 1_000


def main() -> None:
    """Computes by each form, compares, writes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    checked = parser.parse_args().check
    torch.set_num_threads(1)
    sample = long_run.stored().sample if checked else long_run.traced()
    compiled = CompiledExecutor(sample.program, cache_dir=ROOT / ".assay" / "forms", self_check=False)
    forms = {
        "compiled": (compiled, long_run.STEPS[-1]),
        "fast": (Executor(sample.program, kernels=FAST), long_run.STEPS[-1]),
        "definition": (Executor(sample.program), DEFINITION_STEPS),
    }
    found = {}
    for name, (executor, steps) in forms.items():
        print(f"by {name}:", flush=True)
        done = long_run.run(sample, executor, partial(print, flush=True), steps)
        print(f"{done.seconds:.0f} s", flush=True)
        found[name] = done.roots
    wanted = long_run.stored().roots if checked else found["fast"]
    wrong = [name for name, roots in found.items() if any(wanted[n] != root for n, root in roots.items())]
    if wrong:
        raise SystemExit(f"other states by {', '.join(wrong)}: nothing was written\n{found}\n{wanted}")
    if not checked:
        long_run.write(long_run.LongRun(sample, wanted))
    print("every root is the same by all forms")


if __name__ == "__main__":
    main()

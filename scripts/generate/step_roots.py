"""Computes the state roots with which ``scripts/gpu_check.sh`` compares a GPU's large training step.

Contract: writes scripts/bench/step_roots.json, by number of layers the root of the state after one step of
``scripts.bench.gpu.LARGE`` on this processor, node by node. Weights and data are integer arithmetic, so every
machine has the same ones. Usage: `python scripts/generate/step_roots.py [LAYERS ...]` (minutes each).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.execute import Executor
from assay.program.kernels import FAST
from assay.program.state import state_root
from scripts.bench import gpu


def main() -> None:
    """Computes the roots of the layers named, and keeps the others."""
    roots = gpu.step_roots()
    for layers in map(int, sys.argv[1:] or roots):
        size = gpu.large(layers)
        work = gpu.job_of(size, size.model())
        roots[layers] = state_root(Executor(work.inner, "cpu", FAST).step(work.genesis, work.context)).hex()
        print(layers, roots[layers], flush=True)
        told = {str(number): root for number, root in sorted(roots.items())}
        gpu.STEP_ROOTS.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()

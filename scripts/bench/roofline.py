"""How near to this processor's peak a training step's products are.

The peaks are measured, one thread, by processor time: multiplications and additions a second of fp32 (FMA),
of bfloat16 (VDPBF16PS) and of i16 pairs in i32 sums (VPDPWSSD, else VPMADDWD and an addition), which is what
order-free products are made of. Beside them stands what each size's step has to multiply, the time that would
take at the peak, and the step as it is. No product of 14-bit integers beats the bfloat16 floor where both
instructions have the same rate; splitting operands for i8 takes four products, or three, of twice that rate.

Usage: `python scripts/bench/roofline.py [--size gpt-512 ...] [--turns 5] [--json FILE] [--record]`. Takes the
compiled forms of `scripts/bench/numerics.py`, or makes them.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from math import prod
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.numerics.native import ARITHMETIC_FLAGS, compiled
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import StepContext
from assay.program.isa import Op, Program
from scripts.bench.numerics import SEED, SIZES, Size, built
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

KINDS = ("f32", "bf16", "i16")


def peaks() -> dict[str, float]:
    """Multiplications a second of one thread, by kind of number; 0 where there is no instruction for it.
    Raises Unusable."""
    library = compiled(Path(__file__).with_suffix(".c"), ARITHMETIC_FLAGS)
    found = {}
    for kind in KINDS:
        rate = getattr(library, kind)
        rate.restype = ctypes.c_double
        found[kind] = rate()
    return found


def multiplications(program: Program) -> int:
    """Of all products of a step."""
    count = 0
    for node in program.nodes:
        if node.op is Op.PRODUCT:
            count += prod(node.shape) * program.nodes[node.inputs[0].ref].shape[-1]
    return count


def step_s(size: Size, cache: Path, turns: int) -> tuple[int, float]:
    """The step's multiplications, and the least processor seconds of the compiled order-free step."""
    made, _, _ = built(size)
    context = StepContext(made.records, SEED, 0, 0)
    executor = CompiledExecutor(made.inner, cache_dir=cache)
    executor.step(made.genesis, context)
    least = float("inf")
    for _ in range(turns):
        before = time.process_time()
        executor.step(made.genesis, context)
        least = min(least, time.process_time() - before)
    return multiplications(made.inner), least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", action="append", choices=sorted(SIZES), help="default: all")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    add_options(parser, "roofline")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "size")
    torch.set_num_threads(1)
    rates = peaks()
    results: list[dict[str, Any]] = []
    rows = []
    for name in chosen.size or list(SIZES):
        count, seconds = step_s(SIZES[name], chosen.cache, chosen.turns)
        floors = {kind: count / rate * 1e3 if rate else 0.0 for kind, rate in rates.items()}
        results.append({"size": name, "multiplications": count, "step_ms": seconds * 1e3, "floor_ms": floors})
        rows.append(
            [
                name,
                f"{count / 1e9:.2f}",
                *(f"{floors[kind]:.1f}" if floors[kind] else "" for kind in KINDS),
                f"{seconds * 1e3:.1f}",
                f"{floors['i16'] / seconds / 1e3:.2f}" if floors["i16"] else "",
            ]
        )
    head = ["size", "10^9 products", *(f"{kind} at peak, ms" for kind in KINDS), "step, ms", "i16 / step"]
    told = ", ".join(f"{kind} {rate / 1e9:.1f}" for kind, rate in rates.items() if rate)
    text = f"One thread, 10^9 multiplications and additions a second: {told}.\n\n{table(head, rows)}"
    report({"peaks": rates, "sizes": results}, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

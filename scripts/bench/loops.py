"""Measures where the processor time of a compiled step goes, on one thread.

Products are timed around each call of their kernel, which makes exponents and packs operands, too. The loops
that Inductor writes get a clock each, in the source before it is compiled, and are sorted by what they do. A
loop's or product's time is its least; `other` is what is left of the least step: Python, memory and clocks.
Times are the thread's processor time, so other work on the machine costs caches and clock rate, not turns.

Usage: `python scripts/bench/loops.py [--size gpt-512 ...] [--steps 20] [--json FILE] [--record]`. Each size
is compiled anew, which takes minutes.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.numerics import constants, product_kernel, windows_kernel
from assay.program.compiled import kernels
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import StepContext
from scripts.bench.numerics import SEED, SIZES, built
from scripts.bench.report import add_options, refuse_partial, report, table

MOST_LOOPS = 8192
ADDRESS = "ASSAY_LOOP_TIMES"
KINDS = ("products", "optimiser", "exponentials", "sums", "maxima", "copies", "elementwise", "other")
_CLOCK = f"""
#include <ctime>
typedef unsigned long long u64;
static u64* const loop_times = (u64*)std::strtoull(getenv("{ADDRESS}"), nullptr, 10);
static u64 loop_clock() {{
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}}
struct LoopTime {{
    u64* const at;
    u64 const begun = loop_clock();
    ~LoopTime() {{
        u64 taken = loop_clock() - begun;
        if (!at[1]++ || taken < at[0]) at[0] = taken;
    }}
}};
"""


class Loops:
    """Clocks of all loops that are compiled after `install`."""

    def __init__(self) -> None:
        self.times = (ctypes.c_uint64 * (2 * MOST_LOOPS))()
        """Least nanoseconds and number of runs of each."""
        self.kinds: list[str] = []
        os.environ[ADDRESS] = str(ctypes.addressof(self.times))

    def install(self) -> None:
        """Every library of loops that this process compiles gets clocks."""
        usual = kernels.library_source

        def clocked(group: Mapping[str, kernels.Asked]) -> str:
            made = {name: kernels.Asked(one.types, self._clocked(one.source)) for name, one in group.items()}
            begin, rest = usual(made).split("#include <stdexcept>\n", 1)
            return f"{begin}#include <stdexcept>\n{_CLOCK}{rest}"

        kernels.library_source = clocked

    def _clocked(self, source: str) -> str:
        """A function's source with a clock in each outermost block."""

        def begun(found: re.Match[str]) -> str:
            self.kinds.append(kind(found[0]))
            clock = f"LoopTime loop_time{{loop_times + {2 * (len(self.kinds) - 1)}}};"
            return f"    {{\n    {clock}\n{found[1]}    }}\n"

        return re.sub(r"^    \{\n(.*?)^    \}\n", begun, source, flags=re.MULTILINE | re.DOTALL)

    def seconds(self, steps: int) -> dict[str, float]:
        """Seconds of a step by kind."""
        found = dict.fromkeys(KINDS, 0.0)
        for i, name in enumerate(self.kinds):
            found[name] += self.times[2 * i] * 1e-9 * self.times[2 * i + 1] / steps
        return found


def kind(loop: str) -> str:
    """Kind of a loop, by its operations."""
    if str(constants.EXPM1[-3]) in loop:
        return "exponentials"
    if "tmp_acc" in loop:
        return "sums" if ".round()" in loop else "maxima"
    if "sqrt" in loop and loop.count(".store(") > 2:
        return "optimiser"
    return "copies" if not re.search(r"tmp[1-9]", loop) else "elementwise"


class Products:
    """Least seconds of each product of a step, and each plane of windows, in their order."""

    def __init__(self) -> None:
        self.least: list[float] = []
        self._now: list[float] = []
        self._inside = False

    def install(self) -> None:
        """All kernels of products that this process has are timed."""
        for kernel, name in (
            (product_kernel.Kernel, "product"),
            (windows_kernel.Kernel, "product"),
            (windows_kernel.Kernel, "plane"),
        ):
            setattr(kernel, name, self._timed(getattr(kernel, name)))

    def _timed(self, usual: Any) -> Any:
        def product(*given: Any) -> Tensor:
            if self._inside:  # of one on tiles
                inner: Tensor = usual(*given)
                return inner
            self._inside, begun = True, time.thread_time()
            made: Tensor = usual(*given)
            self._now.append(time.thread_time() - begun)
            self._inside = False
            return made

        return product

    def end_step(self) -> None:
        """Merges the step's times."""
        self.least = [min(pair) for pair in zip(self.least or self._now, self._now, strict=True)]
        self._now = []


def measured(name: str, steps: int, loops: Loops, products: Products) -> dict[str, float]:
    """Milliseconds of a step by kind, and of all."""
    made, _, _ = built(SIZES[name])
    context = StepContext(made.records, SEED, 0, 0)
    loops.kinds.clear()
    executor = CompiledExecutor(made.inner, self_check=False)
    executor.step(made.genesis, context)
    ctypes.memset(loops.times, 0, ctypes.sizeof(loops.times))
    products.least, products._now = [], []
    whole = float("inf")
    for _ in range(steps):
        begun = time.thread_time()
        executor.step(made.genesis, context)
        whole = min(whole, time.thread_time() - begun)
        products.end_step()
    found = loops.seconds(steps)
    found["products"] = sum(products.least)
    found["other"] = whole - sum(found.values())
    return {"whole": whole * 1e3, **{key: value * 1e3 for key, value in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", action="append", choices=sorted(SIZES), help="default: all")
    parser.add_argument("--steps", type=int, default=20)
    add_options(parser, "loops")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "size")
    torch.set_num_threads(1)
    loops, products = Loops(), Products()
    loops.install()
    products.install()
    found = {name: measured(name, chosen.steps, loops, products) for name in chosen.size or SIZES}
    rows = [
        [key, *(f"{each[key]:.1f} ({each[key] / each['whole']:.0%})" for each in found.values())]
        for key in ("whole", *KINDS)
    ]
    report({"sizes": found}, table(["ms (share)", *found], rows), chosen.json, chosen.record)


if __name__ == "__main__":
    main()

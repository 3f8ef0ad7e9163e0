"""Measures the cost of order-free arithmetic: a whole training step against native fp32, eager and compiled.

Five forms of the same step (forward, backward, optimiser) from the same state and batch: native eager, native
`torch.compile`, the same in bfloat16 (`torch.autocast`), the order-free reference, the order-free compiled
form. They take turns in one run, so that a busy machine slows all of them alike; the table gives the fastest
and the median turn, and ratios of the fastest. The first step of the compiled form is compared with the
reference, bit by bit. Memory is the peak of PyTorch's allocator in a step, including the input state.

Usage: `python scripts/bench/numerics.py [--quick] [--size gpt-512 ...] [--turns 15] [--threads 1 --threads 2]
[--json FILE] [--record]`. Compiling takes minutes, once; forms are kept under `--cache`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor, StepContext, read_data
from assay.program.isa import Op
from assay.program.kernels import FAST
from assay.program.state import state_root
from assay.training import datasets, job, models, optimisers
from assay.training.losses import cross_entropy
from assay.training.outer import DiLoCo
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

SEED = b"benchmark".ljust(32, b"\0")
CORPUS_BYTES = 1 << 17
Step = Callable[[], object]
NATIVE_EAGER, NATIVE, NATIVE_BF16, REFERENCE, COMPILED = (
    "native eager",
    "native compiled",
    "native bf16 compiled",
    "order-free reference",
    "order-free compiled",
)


@dataclass(frozen=True)
class Size:
    """A template's model and its batch."""

    config: models.GptConfig | models.MlpConfig | models.CnnConfig
    batch: int


SIZES = {
    "gpt-512": Size(models.GptConfig(n_layer=4, n_head=8, d_model=512, context=128), 8),
    "gpt-256": Size(models.GptConfig(n_layer=4, n_head=4, d_model=256, context=128), 8),
    "mlp": Size(models.MlpConfig(hidden=1024, layers=3), 512),
    "cnn": Size(models.CnnConfig(width=32), 128),
}


@dataclass
class Timing:
    """Wall and CPU seconds of each turn."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def built(size: Size, accumulate: int = 1) -> tuple[job.JobArtifacts, datasets.Layout, optimisers.Optimiser]:
    """A job of the size's model, its batch in so many passes, its record layout, and its optimiser."""
    rule: optimisers.Optimiser = optimisers.Sgd(lr=0.05)
    if isinstance(size.config, models.GptConfig):
        data, rule = (
            datasets.standard_library(size.config.context, max_bytes=CORPUS_BYTES),
            optimisers.AdamW(),
        )
    else:
        data = datasets.digits()
    model, outer = models.build(size.config, 0), DiLoCo()
    batch = size.batch // accumulate
    made = job.build_job(
        model, cross_entropy, rule, data, batch=batch, accumulate=accumulate, shards=2, outer=outer
    )
    return made, data.layout, rule


def forms(size: Size, cache: Path) -> tuple[dict[str, Step], dict[str, float]]:
    """The five steps, and figures known before timing."""
    made, layout, rule = built(size)
    context = StepContext(made.records, SEED, 0, 0)
    started = time.perf_counter()
    compiled = CompiledExecutor(made.inner, cache_dir=cache)
    prepared = time.perf_counter() - started
    reference = Executor(made.inner, kernels=FAST)
    wanted = state_root(reference.step(made.genesis, context))
    if state_root(compiled.step(made.genesis, context)) != wanted or not compiled.ready:
        raise SystemExit("the compiled step differs from the reference; the timings would mean nothing")
    native, state, batch = native_step(size, made, layout, rule)
    torch._dynamo.reset()  # of another size or number of threads nothing may be left
    fused = torch.compile(native)
    halved = torch.compile(_in_bf16(native))
    steps: dict[str, Step] = {
        NATIVE_EAGER: lambda: native(state, batch),
        NATIVE: lambda: fused(state, batch),
        NATIVE_BF16: lambda: halved(state, batch),
        REFERENCE: lambda: reference.step(made.genesis, context),
        COMPILED: lambda: compiled.step(made.genesis, context),
    }
    parameters = sum(x.numel() for x in made.genesis[: made.inner.params])
    state_bytes = sum(x.numel() * x.element_size() for x in state)
    return steps, {
        "parameters": parameters,
        "nodes": len(made.inner.nodes),
        "prepare_s": round(prepared, 2),
        "state_bytes": state_bytes,
    }


def native_step(
    size: Size, made: job.JobArtifacts, layout: datasets.Layout, rule: optimisers.Optimiser
) -> tuple[Callable[..., object], list[torch.Tensor], torch.Tensor]:
    """The template's step in PyTorch, its first state, and the first step's batch."""
    native = job.step_function(models.build(size.config, 0), cross_entropy, rule, layout)
    context = StepContext(made.records, SEED, 0, 0)
    batch = next(
        read_data(node, torch.device("cpu"), context) for node in made.inner.nodes if node.op is Op.DATA
    )
    return native, [x.clone() for x in made.genesis], batch


def _in_bf16(native: Callable[..., object]) -> Callable[..., object]:
    """The step with products in bfloat16, as in mixed-precision training: weights and sums stay fp32."""

    def step(state: list[torch.Tensor], batch: torch.Tensor) -> object:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return native(state, batch)

    return step


def timed(steps: dict[str, Step], turns: int, reference_turns: int) -> dict[str, Timing]:
    """Times every form once a turn, in alternating order; the reference only in the first turns.

    The order-free forms have run before, when they were compared.
    """
    found = {name: Timing() for name in steps}
    for name in (NATIVE_EAGER, NATIVE, NATIVE_BF16):
        steps[name]()
    for turn in range(turns):
        names = list(steps) if turn % 2 else list(reversed(steps))
        for name in names:
            if name == REFERENCE and turn >= reference_turns:
                continue
            wall, processor = time.perf_counter(), time.process_time()
            steps[name]()
            found[name].wall.append(time.perf_counter() - wall)
            found[name].processor.append(time.process_time() - processor)
    return found


def peak_bytes(step: Step) -> int:
    """Peak bytes that PyTorch's CPU allocator hands out during a step, beyond those before it."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        kept = step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    del kept
    return peak


def measured(name: str, size: Size, cache: Path, turns: int, quick: bool) -> dict[str, Any]:
    """All numbers of one size."""
    steps, known = forms(size, cache)
    found = timed(steps, turns, 1 if quick else 3)
    memory = {n: int(known["state_bytes"]) + peak_bytes(step) for n, step in steps.items() if n != REFERENCE}
    best = {n: min(t.wall) for n, t in found.items()}
    best_processor = {n: min(t.processor) for n, t in found.items()}
    return {
        "size": name,
        "threads": torch.get_num_threads(),
        **known,
        "step_ms": {n: round(s * 1e3, 1) for n, s in best.items()},
        "median_ms": {n: round(statistics.median(t.wall) * 1e3, 1) for n, t in found.items()},
        "processor_ms": {n: round(s * 1e3, 1) for n, s in best_processor.items()},
        "peak_bytes": memory,
        "ratio_vs_native_compiled": round(best[COMPILED] / best[NATIVE], 3),
        "ratio_vs_native_bf16": round(best[COMPILED] / best[NATIVE_BF16], 3),
        "ratio_vs_native_eager": round(best[COMPILED] / best[NATIVE_EAGER], 3),
        "processor_ratio_vs_native_compiled": round(best_processor[COMPILED] / best_processor[NATIVE], 3),
        "reference_ratio": round(best[REFERENCE] / best[NATIVE_EAGER], 3),
        "peak_memory_ratio": round(memory[COMPILED] / memory[NATIVE], 3),
    }


def rows(result: dict[str, Any]) -> list[list[str]]:
    """Table rows of one size."""
    native = result["step_ms"][NATIVE]
    return [
        [
            result["size"],
            str(result["threads"]),
            name,
            f"{ms:.1f}",
            f"{result['median_ms'][name]:.1f}",
            f"{result['processor_ms'][name]:.1f}",
            f"{ms / native:.2f}",
            f"{result['peak_bytes'][name] / 2**20:.0f}" if name in result["peak_bytes"] else "",
        ]
        for name, ms in result["step_ms"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one size, few turns: under 45 s once compiled")
    parser.add_argument(
        "--size", action="append", choices=sorted(SIZES), help="default: all (quick: gpt-512)"
    )
    parser.add_argument("--turns", type=int)
    parser.add_argument("--threads", type=int, action="append", help="default: as PyTorch chooses")
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    add_options(parser, "numerics")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "size")
    names = chosen.size or (["gpt-512"] if chosen.quick else list(SIZES))
    turns = chosen.turns or (3 if chosen.quick else 15)
    results = []
    for name in names:
        for threads in chosen.threads or [torch.get_num_threads()]:
            torch.set_num_threads(threads)
            results.append(measured(name, SIZES[name], chosen.cache, turns, chosen.quick))
            print(f"{name}, {threads} threads: {results[-1]['step_ms']}", file=sys.stderr, flush=True)
    head = ["size", "threads", "step", "ms (least)", "ms (median)", "CPU ms", "to native", "peak MiB"]
    first = {key: results[0][key] for key in results[0] if "ratio" in key}
    text = table(head, [row for result in results for row in rows(result)])
    report({**first, "sizes": results}, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

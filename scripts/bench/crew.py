"""Compares a crew with one process: state roots, memory of each member, bytes between members.

Each member runs in a process of its own on this machine, and so does the baseline. Memory is the peak minus
the memory before the state was loaded, plus the state. Steps run node by node. Wall time is not measured,
since all members share this machine's processors and no network lies between them.

How well members overlap is simulated, from the operations of each node: the same batch in 1 to 8 passes. The
ideal is m / (m + k − 1) for m passes and k members of equal load. The bound is that times the mean load of a
member to the heaviest.

Usage: `python scripts/bench/crew.py [--quick] [--members 3] [--steps 3] [--json [FILE]] [--record]`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.compute.inline import InlinePool
from assay.compute.member import TrainStage
from assay.compute.orders import WorkerConfig
from assay.program.execute import Executor, StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST
from assay.program.pipeline import schedule
from assay.program.record_excerpt import Steps, steps_of
from assay.program.stages import boundaries, cut
from assay.program.state import begin_roots, state_root
from assay.program.validate import measure
from scripts.bench.numerics import SEED, SIZES, built
from scripts.bench.report import add_options, refuse_partial, report, table
from tests.fakes.crews import crew_of

PATIENCE_S = 600.0
PASSES = (1, 2, 4, 8)


def _memory(name: str) -> int:
    """Bytes of this process in memory: now (VmRSS), or the most since the last reset (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def _peak(state: Sequence[torch.Tensor], work: Callable[[], list[bytes]]) -> dict[str, Any]:
    """Roots of a piece of work, its greatest memory with the state that it was given, its processor
    seconds."""
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: importing needed more than it left
    before, started = _memory("VmRSS"), time.process_time()
    roots = work()
    given = sum(x.numel() * x.element_size() for x in state)
    most = _memory("VmHWM") - before + given
    return {"roots": roots, "bytes": most, "processor_s": time.process_time() - started}


def alone(program: Program, state: list[torch.Tensor], steps: Steps) -> dict[str, Any]:
    """The steps in one process."""
    torch.set_num_threads(1)

    def work() -> list[bytes]:
        executor, now, roots = Executor(program, kernels=FAST), state, []
        context = steps.context(program)
        for step in range(steps.number):
            now = executor.step(now, StepContext(context.dataset, context.seed, context.shard, step))
            roots.append(state_root(now))
        return roots

    return _peak(state, work) | {"sent": 0}


def member(order: TrainStage) -> dict[str, Any]:
    """The steps of one stage."""
    torch.set_num_threads(1)
    sent = 0

    def work() -> list[bytes]:
        nonlocal sent
        segment = InlinePool(config=WorkerConfig(executor="eager")).submit(order).result()
        sent = segment.sent
        return list(segment.roots)

    return _peak(order.state, work) | {"sent": sent}


def measured(size: str, members: int, steps: int) -> dict[str, Any]:
    """One process, then a crew, on the same steps. Raises SystemExit where a root differs."""
    made, _, _ = built(SIZES[size])
    work = steps_of(made.inner, StepContext(made.records, SEED, 0, 0), steps)
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawned) as pool:
        one = pool.submit(alone, made.inner, made.genesis, work).result()
    plan, roots = cut(made.inner, members), begin_roots(made.genesis)()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(members, spawned) as pool:
        crews = crew_of(Path(folder), members, PATIENCE_S)
        orders = [
            TrainStage(plan, crew, [made.genesis[slot] for slot in stage.slots], roots, work, 1)
            for crew, stage in zip(crews, plan.stages, strict=True)
        ]
        each = list(pool.map(member, orders))
    if any(found["roots"] != one["roots"] for found in each):
        raise SystemExit("a member's roots are not those of one process")
    whole = measure(plan.whole)
    costs = [measure(stage.program) for stage in plan.stages]
    return {
        "size": size,
        "members": members,
        "steps": steps,
        "root": one["roots"][-1].hex(),
        "one_bytes": one["bytes"],
        "one_processor_s": one["processor_s"],
        "bytes": [found["bytes"] for found in each],
        "processor_s": [found["processor_s"] for found in each],
        "sent_a_step": [found["sent"] // steps for found in each],
        "planned_memory": [cost.peak_bytes / whole.peak_bytes for cost in costs],
        "operations": [cost.operations / whole.operations for cost in costs],
        "planned_sent": [sent for sent, _ in boundaries(plan)],
    }


def overlap(size: str, members: int) -> list[dict[str, Any]]:
    """Utilisation and memory of each member, for each number of passes."""
    found = []
    for passes in PASSES:
        plan = cut(built(SIZES[size], passes)[0].inner, members)
        done, peak = schedule(plan.stages), measure(plan.whole).peak_bytes
        ideal = passes / (passes + members - 1)
        found.append(
            {
                "passes": passes,
                "utilisation": done.utilisation,
                "ideal": ideal,
                "bound": ideal * sum(done.busy) / (members * max(done.busy)),
                "memory": [measure(stage.program).peak_bytes / peak for stage in plan.stages],
            }
        )
    return found


def overlap_rows(found: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each number of passes."""
    return [
        [
            str(one["passes"]),
            *(f"{one[key]:.2f}" for key in ("utilisation", "ideal", "bound")),
            ", ".join(f"{share:.2f}" for share in one["memory"]),
        ]
        for one in found
    ]


def rows(result: dict[str, Any]) -> list[list[str]]:
    """A row for one process, and one for each member."""
    one, cpu = result["one_bytes"], result["one_processor_s"]
    out = [["one process", "1.00", f"{one / 2**20:,.0f}", "1.00", "1.00", f"{cpu:.1f}", "0"]]
    for i, held in enumerate(result["bytes"]):
        out.append(
            [
                f"member {i}",
                f"{result['operations'][i]:.2f}",
                f"{held / 2**20:,.0f}",
                f"{held / one:.2f}",
                f"{result['planned_memory'][i]:.2f}",
                f"{result['processor_s'][i]:.1f}",
                f"{result['sent_a_step'][i] / 1e6:.2f}",
            ]
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller model")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    add_options(parser, "crew")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick")
    size = "gpt-256" if chosen.quick else "gpt-512"
    result = measured(size, chosen.members, chosen.steps) | {"overlap": overlap(size, chosen.members)}
    head = ["who", "operations", "peak MiB", "to one", "as planned", "CPU s", "MB sent a step"]
    last = f"{chosen.steps} steps; all roots equal, the last {result['root'][:16]}"
    heads = ["passes", "utilisation", "ideal", "bound", "planned memory of each to one"]
    overlapping = table(heads, overlap_rows(result["overlap"]))
    text = f"{table(head, rows(result))}\n\n{last}\n\n{overlapping}"
    report(result, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

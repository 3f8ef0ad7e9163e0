"""Compares a crew with one process: state roots, memory of each member, bytes between members.

Each member runs in a process of its own on this machine, and so does the baseline. Memory is the peak minus
the memory before the state was loaded, plus the state. Steps run node by node. Wall time is not measured,
since all members share this machine's processors and no network lies between them.

How well members overlap is simulated, from the operations of each node: the same batch in 1 to 8 passes. The
ideal is m / (m + k − 1) for m passes and k members of equal load. The bound is that times the mean load of a
member to the heaviest.

Rounding to 8 bits is measured by the bytes of the plan, and by the loss of a small GPT whose step is cut in
as many stages, beside the same one without rounding. The last table is simulated like the second, with the
operations a second of the one process and a network of 30 ms between members: utilisation in 8 passes.

With `--large` it is a GPT of 124.6M parameters, on one sequence of 128 tokens, and only the first table. It
takes 14 GiB. With `--paper` nothing is trained: the plan of a GPT of 1.2 billion parameters for eight members
is simulated, in 8 passes of 1,024 tokens, for members that compute 10^11 to 10^13 operations a second.

Usage: `python scripts/bench/crew.py [--quick | --large | --paper] [--members 3] [--steps 3] [--json [FILE]]
[--record]`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
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
from assay.program.boundary import with_rounded_boundaries
from assay.program.execute import Executor, StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST
from assay.program.lowering import lower
from assay.program.pipeline import Link, schedule
from assay.program.record_excerpt import Steps, steps_of
from assay.program.stages import boundaries, cut
from assay.program.state import begin_roots, state_root
from assay.program.validate import measure
from assay.training import datasets, job, models, optimisers
from assay.training.losses import LOSS_SLOT, cross_entropy
from assay.training.outer import DiLoCo
from scripts.bench.numerics import SEED, SIZES, Size, built
from scripts.bench.report import add_options, refuse_partial, report, table
from tests.fakes.crews import crew_of

PATIENCE_S = 600.0
PASSES = (1, 2, 4, 8)
SPEEDS, DELAY_S = (1e9, 1e8), 0.03
"""Bits a second of each member's connection, and seconds that a tensor takes besides."""
LARGE = Size(models.GptConfig(n_layer=12, n_head=16, d_model=928, context=128), 1)
PAPER = models.GptConfig(n_layer=24, n_head=16, d_model=2048, context=1024)
PAPER_MEMBERS, PAPER_RATES = 8, (1e11, 1e12, 1e13)
SMALL = models.GptConfig(n_layer=4, n_head=4, d_model=64, context=64)
LEARNED_STEPS = 300


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
    made = built(LARGE if size == "gpt-928" else SIZES[size])[0]
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
        "one_operations": whole.operations * steps,
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


def rounded(size: str, members: int) -> dict[str, Any]:
    """Bytes sent in a step, and the small GPT's loss, without and with rounding."""
    program = built(SIZES[size])[0].inner
    narrow, _ = with_rounded_boundaries(program, members)
    sent = [sum(sent for sent, _ in boundaries(cut(each, members))) for each in (program, narrow)]
    data = datasets.standard_library(SMALL.context, max_bytes=1 << 19)
    rule = optimisers.AdamW(lr=1e-3)
    made = job.build_job(models.build(SMALL, 0), cross_entropy, rule, data, batch=8, shards=1, outer=DiLoCo())
    losses = [learned(each, made) for each in (made.inner, with_rounded_boundaries(made.inner, members)[0])]
    return {"sent": sent, "losses": losses}


def networked(size: str, members: int, rate: float) -> list[dict[str, Any]]:
    """Utilisation over networks, in the most passes, if each member computes `rate` operations a second."""
    whole = built(SIZES[size], PASSES[-1])[0].inner
    found = []
    for bits, program in (("f32", whole), ("8", with_rounded_boundaries(whole, members)[0])):
        stages = cut(program, members).stages
        at = [schedule(stages, 0, Link(8 * rate / speed, DELAY_S * rate)).utilisation for speed in SPEEDS]
        found.append({"bits": bits, "alone": schedule(stages).utilisation, "at": at})
    return found


def on_paper(config: models.GptConfig, members: int) -> list[dict[str, Any]]:
    """Traffic, memory and utilisation of a plan in 32 and in 8 bits. No parameter has a value."""
    with torch.device("meta"):
        model = models.build(config, 0)
    layout = datasets.standard_library(config.context, max_bytes=1 << 17).layout
    _, graph, _ = job.traced(model, cross_entropy, optimisers.AdamW(), layout, 1, PASSES[-1])
    whole = lower(graph, params=len(list(model.parameters()))).program
    found = []
    for bits, program in (("f32", whole), ("8", with_rounded_boundaries(whole, members)[0])):
        plan = cut(program, members)
        links = [[Link(8 * rate / speed, DELAY_S * rate) for speed in SPEEDS] for rate in PAPER_RATES]
        found.append(
            {
                "bits": bits,
                "sent": sum(sent for sent, _ in boundaries(plan)),
                "memory": [measure(stage.program).peak_bytes for stage in plan.stages],
                "one_memory": measure(plan.whole).peak_bytes,
                "alone": schedule(plan.stages).utilisation,
                "at": [[schedule(plan.stages, 0, link).utilisation for link in each] for each in links],
            }
        )
    return found


def paper_table(found: Sequence[dict[str, Any]]) -> str:
    """A row for each kind of boundary and rate of a member."""
    speeds = [f"{speed / 1e6:,.0f} Mbit/s" for speed in SPEEDS]
    rows = [
        [
            one["bits"],
            f"{one['sent'] / 1e6:,.0f}",
            f"{max(one['memory']) / 2**30:.1f} of {one['one_memory'] / 2**30:.1f}",
            f"{rate:.0e}",
            *(f"{part:.2f}" for part in (one["alone"], *at)),
        ]
        for one in found
        for rate, at in zip(PAPER_RATES, one["at"], strict=True)
    ]
    heads = ["bits", "MB a step, of all", "GiB of a member, of one machine", "operations a second"]
    return table([*heads, "no delay", *speeds], rows)


def learned(program: Program, made: job.JobArtifacts) -> float:
    """Mean loss of the last quarter of some steps."""
    torch.set_num_threads(1)
    executor, state, losses = Executor(program, kernels=FAST), list(made.genesis), []
    for step in range(LEARNED_STEPS):
        state = executor.step(state, StepContext(made.records, SEED, 0, step))
        losses.append(float(state[made.slot_names.index(LOSS_SLOT)]))
    return statistics.fmean(losses[-LEARNED_STEPS // 4 :])


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
    parser.add_argument("--large", action="store_true", help="124.6 million parameters")
    parser.add_argument("--paper", action="store_true", help="1.2 billion parameters, by simulation")
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    add_options(parser, "crew")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick")
    if chosen.paper:
        found = on_paper(PAPER, PAPER_MEMBERS)
        section = f"{chosen.record}-paper" if chosen.record else None
        report({"paper": found}, paper_table(found), chosen.json, section)
        return
    size = "gpt-928" if chosen.large else "gpt-256" if chosen.quick else "gpt-512"
    result = measured(size, chosen.members, chosen.steps)
    head = ["who", "operations", "peak MiB", "to one", "as planned", "CPU s", "MB sent a step"]
    last = f"{chosen.steps} steps; all roots equal, the last {result['root'][:16]}"
    text = f"{table(head, rows(result))}\n\n{last}"
    if not chosen.large:
        result |= {"overlap": overlap(size, chosen.members), "rounded": rounded(size, chosen.members)}
        rate = result["one_operations"] / result["one_processor_s"]
        result["networked"] = networked(size, chosen.members, rate)
        text = f"{text}\n\n{simulated(result)}"
    section = f"{chosen.record}-large" if chosen.record and chosen.large else chosen.record
    report(result, text, chosen.json, section)


def simulated(result: dict[str, Any]) -> str:
    """Tables of what no process measured: overlap and rounding."""
    heads = ["passes", "utilisation", "ideal", "bound", "planned memory of each to one"]
    overlapping = table(heads, overlap_rows(result["overlap"]))
    narrow = table(
        ["between members", "MB a step, of all", f"loss of a small GPT, steps to {LEARNED_STEPS}"],
        [
            [bits, f"{sent / 1e6:.2f}", f"{loss:.4f}"]
            for bits, sent, loss in zip(("f32", "8 bits"), *result["rounded"].values(), strict=True)
        ],
    )
    speeds = [f"{speed / 1e6:,.0f} Mbit/s" for speed in SPEEDS]
    networks = table(
        ["bits between members", "no delay", *speeds],
        [
            [one["bits"], *(f"{part:.2f}" for part in (one["alone"], *one["at"]))]
            for one in result["networked"]
        ],
    )
    return f"{overlapping}\n\n{narrow}\n\n{networks}"


if __name__ == "__main__":
    main()

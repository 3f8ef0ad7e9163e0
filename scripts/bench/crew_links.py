"""Runs a crew of three processes over slow links, beside what the simulation of the plan says.

The GPT of 12.9M parameters in eight passes. Every link goes through a relay of 100 Mbit/s for each member's
uplink and 30 ms (`slow_links.py`). Members report their times (``compute.meter``): utilisation is the part of
a step in which a member waits for nobody. All that is not a wait counts as computing.

Members share this machine's processors, so their computing is paced: a member sleeps in place of each
operation, for the time of one process on one thread, and its tensors are zeros. Encryption, hashing and
sending are real and count as computing, which the simulation does not know. `--slowly 8` runs all of it
eight times as slowly, links too, and divides the times by that: then what else the machine does, and hashing,
weigh an eighth. `--compute` computes instead: then members hinder each other, and the roots are the job's.

Usage: `python scripts/bench/crew_links.py [--quick] [--compute | --slowly 8] [--step-s SECONDS]
[--steps 4] [--json [FILE]] [--record]`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.compute import member as members
from assay.compute.inline import InlinePool
from assay.compute.member import TrainStage
from assay.compute.meter import StepTimes, utilisation
from assay.compute.orders import WorkerConfig
from assay.compute.peers import Crew
from assay.program.boundary import with_rounded_boundaries
from assay.program.execute import StepContext
from assay.program.isa import Node
from assay.program.kernels import FAST, TORCH_DTYPES, Kernels
from assay.program.pipeline import Link, schedule
from assay.program.record_excerpt import steps_of
from assay.program.stage_executor import StageExecutor
from assay.program.stages import Plan, Stage, cut
from assay.program.state import begin_roots
from assay.program.validate import measure, operations
from assay.training import models
from assay.training.job import JobArtifacts
from scripts.bench.crew import alone
from scripts.bench.numerics import SEED, SIZES, built
from scripts.bench.report import add_options, refuse_partial, report, table
from scripts.bench.slow_links import SlowLinks
from tests.fakes.crews import crew_of

MEMBERS, PASSES, PATIENCE_S = 3, 8, 600.0
SPEED, DELAY_S = 1e8, 0.03
DOZE_S = 0.002
"""Least sleep in seconds: less is owed until later."""


class Paced(StageExecutor):
    """A stage that sleeps for each operation and gives zeros."""

    rate = 1.0
    """Operations a second."""

    def __init__(self, stage: Stage, device: str = "cpu", kernels: Kernels = FAST) -> None:
        super().__init__(stage, device, kernels)
        self._until_s = 0.0
        nodes = self.program.nodes
        self._tasks = [(at, self._slept(nodes[at]), *rest) for at, _, *rest in self._tasks]

    def _slept(self, node: Node) -> Any:
        zeros = torch.zeros(node.shape, dtype=TORCH_DTYPES[node.dtype])
        seconds = operations(node) / self.rate

        def compute(context: StepContext, tensors: Sequence[Tensor]) -> Tensor:
            now_s = time.monotonic()
            if self._until_s < now_s - DOZE_S:  # it has waited for others meanwhile
                self._until_s = now_s
            self._until_s += seconds
            if self._until_s > now_s + DOZE_S:
                time.sleep(self._until_s - now_s)
            return zeros

        return compute


def run(order: TrainStage, rate: float | None) -> dict[str, Any]:
    """One member: what it measured, and all time since it was connected. `rate`: of paced operations."""
    torch.set_num_threads(1)
    paced: AbstractContextManager[object] = nullcontext()
    if rate is not None:
        Paced.rate, paced = rate, patch.object(members, "StageExecutor", Paced)
    pool, began_s = InlinePool(config=WorkerConfig(executor="eager")), list[float]()

    def connected(done: int, total: int) -> None:
        if not began_s and not pool.context.crew["wait"]:
            began_s.extend((time.monotonic(), time.process_time()))

    with paced:
        segment = pool.submit(order, progress=connected).result()
    whole_s, processor_s = time.monotonic() - began_s[0], time.process_time() - began_s[1]
    times = StepTimes(**pool.context.crew["members"][order.crew.member])
    told = {"roots": segment.roots, "sent": segment.sent, "times": times}
    return told | {"whole_s": whole_s, "processor_s": processor_s}


def crew_over(folder: Path, slow: bool, slowly: float) -> list[Crew]:
    """A crew whose members reach each other through slow links, or directly."""
    crews = list(crew_of(folder, MEMBERS, PATIENCE_S))
    if not slow:
        return crews
    pairs = [(i, j) for i in range(MEMBERS) for j in range(MEMBERS) if i != j]
    routes = {(i, j): (socket.create_server(("127.0.0.1", 0)), crews[0].peers[j].port) for i, j in pairs}
    SlowLinks(routes, SPEED / slowly, DELAY_S * slowly)
    return [
        replace(
            crew,
            peers=tuple(
                peer if i == j else replace(peer, port=routes[i, j][0].getsockname()[1])
                for j, peer in enumerate(crew.peers)
            ),
        )
        for i, crew in enumerate(crews)
    ]


def measured(
    plan: Plan, made: JobArtifacts, steps: int, rate: float | None, slow: bool, slowly: float
) -> dict[str, Any]:
    """A crew's steps."""
    genesis, roots = made.genesis, begin_roots(made.genesis)()
    work = steps_of(plan.whole, StepContext(made.records, SEED, 0, 0), steps)
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(MEMBERS, multiprocessing.get_context("spawn")) as pool,
    ):
        orders = [
            TrainStage(plan, crew, [genesis[slot] for slot in stage.slots], roots, work, 1)
            for crew, stage in zip(crew_over(Path(folder), slow, slowly), plan.stages, strict=True)
        ]
        found = list(pool.map(run, orders, [rate and rate / slowly] * MEMBERS))
    if len({one["roots"] for one in found}) != 1:
        raise SystemExit("the members say different roots")
    times: list[StepTimes] = [one["times"] for one in found]
    return {
        "root": found[0]["roots"][-1].hex(),
        "step_s": statistics.fmean(one.seconds for one in times) / slowly,
        "utilisation": [utilisation(one) for one in times],
        "waited_s": [sum(one.waited) for one in times],
        "blocked_s": [sum(one.blocked) for one in times],
        "whole_s": [one["whole_s"] for one in found],
        "processor_s": [one["processor_s"] for one in found],
        "sent_a_step": sum(one["sent"] for one in found) // steps,
    }


def simulated(plan: Plan, rate: float, slow: bool) -> dict[str, Any]:
    """What the schedule of the plan says of it."""
    link = Link(8 * rate / SPEED, DELAY_S * rate) if slow else None
    done = schedule(plan.stages, 0, link)
    return {"step_s": done.end / rate, "utilisation": done.utilisation}


def step_s(made: JobArtifacts) -> float:
    """Processor seconds of a step in one process."""
    work = steps_of(made.inner, StepContext(made.records, SEED, 0, 0), 2)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return float(pool.submit(alone, made.inner, made.genesis, work).result()["processor_s"]) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller model")
    parser.add_argument("--compute", action="store_true", help="compute instead of sleeping")
    parser.add_argument("--slowly", type=float, default=1.0, help="this many times as slowly")
    parser.add_argument("--step-s", type=float, help="of a step in one process; default: measured")
    parser.add_argument("--steps", type=int, default=4)
    add_options(parser, "crew-links")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick")
    size = SIZES["gpt-256" if chosen.quick else "gpt-512"]
    made = built(size, PASSES)[0]
    rate = measure(made.inner).operations / (chosen.step_s or step_s(made))
    narrow, _ = with_rounded_boundaries(made.inner, MEMBERS)
    found = []
    for bits, program in (("f32", made.inner), ("8", narrow)):
        plan = cut(program, MEMBERS)
        for slow in (False, True):
            paced = None if chosen.compute else rate
            real = measured(plan, made, chosen.steps, paced, slow, chosen.slowly)
            found.append({"bits": bits, "slow": slow, **real, "simulated": simulated(plan, rate, slow)})
            print(found[-1], file=sys.stderr, flush=True)
    assert isinstance(size.config, models.GptConfig)
    tokens = size.batch * size.config.context
    head = ["links", "bits", "bytes a token", "s a step", "simulated"]
    head += ["utilisation", "mean", "simulated", "ideal"]
    ideal = PASSES / (PASSES + MEMBERS - 1)
    rows = [
        [
            "100 Mbit/s, 30 ms" if each["slow"] else "loopback",
            each["bits"],
            f"{each['sent_a_step'] / tokens:,.0f}",
            f"{each['step_s']:.2f}",
            f"{each['simulated']['step_s']:.2f}",
            ", ".join(f"{part:.2f}" for part in each["utilisation"]),
            f"{statistics.fmean(each['utilisation']):.2f}",
            f"{each['simulated']['utilisation']:.2f}",
            f"{ideal:.2f}",
        ]
        for each in found
    ]
    how = "computing" if chosen.compute else f"paced at {rate / 1e9:.2g}·10⁹ operations a second"
    alone_s = measure(made.inner).operations / rate
    slower = f", {chosen.slowly:g} times as slowly" * (chosen.slowly != 1)
    last = f"{chosen.steps} steps, {how}{slower}; a step takes one process {alone_s:.2f} s"
    text = f"{table(head, rows)}\n\n{last}"
    report({"rate": rate, "runs": found}, text, chosen.json, chosen.record)


if __name__ == "__main__":
    main()

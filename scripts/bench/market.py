"""Measures the market's overhead: a job on a devnet of processes, and the same rounds in one process.

The job is `assay job init --template gpt`'s by one algorithm, with its default sampling. The rounds run in
one process first, with the same executor and one thread, and the market starts with the forms compiled there.
Each solver's worker has a core; everybody else shares the last one. The output roots of every settled claim
and the fetched model are compared bit by bit. Clocks start at the end of the first segment and stop with the
last outer claim.

Usage: `scripts/bench/market.py [--quick] [--size SIZE] [--algorithm NAME] [--shards N] [--rounds N]
[--baseline N] [--speed PART] [--json [FILE]] [--record]`. `--baseline N`: run N rounds alone and extrapolate
the others. `--speed` gives computing, in the market and alone, this share of its core's time, with blocks
slower by the same factor, as if the others had more cores (cgroup v1, root). Keys `wall_ratio`,
`round_ratio`, `computing_share`, `same_bits_as_in_process`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.app.resource_limits import RESOURCE_LIMITS
from assay.app.wiring import open_storage
from assay.devnet.market import default_nodes
from assay.job.build import build
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, stated, template
from assay.job.terms import terms_of
from assay.node.artifacts import State, load_job, publish_job
from assay.node.engine import Engine, ExecutorKind
from assay.node.work import Work, put_together
from assay.program.compiled.executor import CompiledExecutor
from assay.program.state import state_root
from assay.protocol.loops import Place
from assay.protocol.types import ZERO_ADDRESS, Kind, Wei
from assay.training.catalogue import CATALOGUE, defined_with
from assay.training.job import JobArtifacts
from scripts.bench.devnet import Led, lead, slowed, threads_of
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

STAKE, OWNED = '"1600tok"', Wei(60_000 * 10**18)
"""Stake of a claim, enough for the most expensive algorithm with several shards; and tokens of a solver."""


@dataclass(frozen=True)
class Size:
    """A byte-level GPT, and the time limits of its claims."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    times: dict[str, str]


_LONG = {**LOCAL, "task": "600s", "outer": "60s", "vote": "300s", "move": "10m", "window": "20s"}
SIZES = {
    "gpt-32": Size(1, 2, 32, 32, 4, {**LOCAL, "window": "5s"}),
    "gpt-64": Size(2, 4, 64, 32, 4, {**LOCAL, "task": "300s", "vote": "120s", "window": "5s"}),
    "gpt-256": Size(4, 4, 256, 128, 8, _LONG),
    "gpt-512": Size(4, 8, 512, 128, 8, _LONG),
}


def job_of(size: Size, algorithm: str, rounds: int, shards: int) -> JobFile:
    """The template's job by the algorithm, with a model of this size."""
    optimiser = defined_with(algorithm)
    text = template("gpt", source="stdlib", rounds=rounds, times=size.times, optimiser=optimiser)
    text = by_algorithm(text, algorithm)
    changes = {
        "model.layers": size.layers,
        "model.heads": size.heads,
        "model.width": size.width,
        "model.context": size.context,
        "training.batch": size.batch,
        "training.shards": shards,
        "training.min_shards": shards,
        "money.solver_stake": STAKE,
        **({"training.steps_per_round": 1} if CATALOGUE[algorithm].one_step else {}),
    }
    for key, value in changes.items():
        text = stated(text, key, str(value))
    return parse_job_file(text, "the benchmark's job")


# -- in one process


@dataclass
class Alone:
    """The rounds in one process. Seconds count from the end of the first segment."""

    roots: dict[Place, bytes] = field(default_factory=dict)
    """Root of every claim's output, by kind, round and shard or slice."""
    ends: list[float] = field(default_factory=list)
    """End of each round."""
    params: State = field(default_factory=list)
    """The last round's parameters, if the outer step is one slice."""


def run_alone(body: JobFile, files: JobArtifacts, engine: Engine, rounds: int) -> Alone:
    """Runs the first `rounds` rounds. Inputs are assembled by the terms' links (rule 4.4) from outputs in
    memory.

    Nothing is hashed, stored, sent or paid while it is timed.
    """
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(Path(folder))
        terms = terms_of(body, publish_job(storage.blocks, files), bytes(32), ZERO_ADDRESS, 0)
        loaded = load_job(storage.blocks, terms, RESOURCE_LIMITS)
        storage.close()
        work = Work(terms, loaded, engine=engine)
        genesis = {Kind.TASK: files.genesis, Kind.OUTER: files.outer_genesis}
        made: dict[Place, State] = {}

        def slot_of(at: Place, slot: int) -> torch.Tensor:
            return made[at][slot]

        found, began = Alone(), 0.0
        lags = max(link.lag for link in (*terms.links, *terms.outer_links))
        for round_ in range(rounds):
            places = [(Kind.TASK, round_, shard) for shard in range(terms.shards)]
            places += [(Kind.OUTER, round_, unit) for unit in range(terms.slices)]
            for place in places:
                kind = place[0]
                state = put_together(terms, place, lambda *_: True, slot_of, genesis[kind])
                for segment in range(work.segments(kind)):
                    state = work.run(*place, segment, state)
                    began = began or time.perf_counter()
                made[place] = state
            paused = time.perf_counter()
            found.ends.append(paused - began)
            found.roots |= {place: state_root(made[place]) for place in places}
            found.params = made[Kind.OUTER, round_, 0][: files.inner.params]
            for place in [place for place in made if place[1] < round_ - lags]:
                del made[place]
            print(f"in process: round {round_ + 1} of {rounds}", file=sys.stderr, flush=True)
            began += time.perf_counter() - paused
    return found


@contextmanager
def on_core(core: int, speed: float) -> Iterator[None]:
    """Pins this process to one core, with this share of it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        with slowed(speed) as slow:
            for thread in threads_of(os.getpid()):
                slow(thread)
            yield
    finally:
        os.sched_setaffinity(0, before)


# -- beside one another


def ratio_of_rounds(led: list[float], alone: list[float]) -> float:
    """Duration of a further round in the market relative to alone, by the commit of its last task; of the
    only round, if one."""
    if min(len(led), len(alone)) < 2:
        return led[-1] / alone[-1]
    return ((led[-1] - led[0]) / (len(led) - 1)) / ((alone[-1] - alone[0]) / (len(alone) - 1))


def reckoned(ends: list[float], rounds: int) -> float:
    """Seconds of this many rounds alone: those that were run, plus their mean for each further one."""
    if len(ends) < 2 or rounds <= len(ends):
        return ends[-1]
    return ends[-1] + (rounds - len(ends)) * (ends[-1] - ends[0]) / (len(ends) - 1)


def compared(alone: Alone, led: Led, body: JobFile) -> dict[str, Any]:
    """The figures. Bits are compared for the rounds in `alone`."""
    rounds, shards, slices = body.training.rounds, body.training.shards, body.outer.slices or 1
    places = {(v.claim.kind, v.claim.round, v.claim.shard): v.claim.output_root for v in led.settled}
    whole = len(places) == rounds * (shards + slices)
    same = whole and all(places[place] == root for place, root in alone.roots.items())
    if len(alone.ends) == rounds and slices == 1:
        same = same and all(map(torch.equal, list(led.params.values()), alone.params))
    seconds, computing = ([spent[what] for spent in led.spent.values()] for what in ("all", "computing"))
    return {
        "algorithm": body.outer.algorithm,
        "parameters": sum(x.numel() for x in led.params.values()),
        "rounds": rounds,
        "rounds_in_process": len(alone.ends),
        "shards": shards,
        "settled": len(places),
        "same_bits_as_in_process": same,
        "wall_s": led.ends[-1],
        "wall_s_in_process": reckoned(alone.ends, rounds),
        "wall_ratio": led.ends[-1] / reckoned(alone.ends, rounds),
        "round_ratio": ratio_of_rounds(led.tasks[shards - 1 :: shards], alone.ends),
        "computing_share": sum(computing) / sum(seconds) if sum(seconds) else 0.0,
        "spent_s": led.spent,
    }


def told(found: dict[str, Any]) -> str:
    """The table."""
    head = ["algorithm", "parameters", "shards", "rounds", "settled claims", "bits as in process"]
    head += ["market, s", "in process, s", "÷", "a further round ÷", "computing, %"]
    keys = ("algorithm", "parameters", "shards", "rounds", "settled", "same_bits_as_in_process")
    row = [f"{found[key]:,}" if key == "parameters" else str(found[key]) for key in keys]
    row += [f"{found[key]:.1f}" for key in ("wall_s", "wall_s_in_process")]
    row += [f"{found[key]:.3f}" for key in ("wall_ratio", "round_ratio")]
    return table(head, [[*row, f"{100 * found['computing_share']:.1f}"]])


def main() -> None:
    """Runs both, compares and prints; fails if the bits differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tiny model and two rounds")
    parser.add_argument("--size", choices=sorted(SIZES))
    parser.add_argument("--algorithm", choices=list(CATALOGUE), default="diloco-4bit")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--baseline", type=int, help="rounds in one process, where not as many as the job's")
    parser.add_argument("--speed", type=float, default=1.0, help="what computing has of a core's time")
    parser.add_argument("--forms", type=Path, default=ROOT / ".assay" / "forms", help=argparse.SUPPRESS)
    add_options(parser, "market")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "size", "rounds", "baseline")
    size = SIZES[chosen.size or ("gpt-32" if chosen.quick else "gpt-512")]
    rounds = 1 if CATALOGUE[chosen.algorithm].one_round else chosen.rounds or (2 if chosen.quick else 5)
    if not 0.05 <= chosen.speed <= 1:
        parser.error("--speed is a part of a core from 0.05 to 1")
    baseline = chosen.baseline or rounds
    if not 1 <= baseline <= rounds:
        parser.error(f"--baseline is 1 to {rounds} rounds")
    torch.set_num_threads(1)
    body = job_of(size, chosen.algorithm, rounds, chosen.shards)
    files = build(body)
    cores = sorted(os.sched_getaffinity(0))
    with on_core(cores[0], chosen.speed):
        CompiledExecutor(files.inner, cache_dir=chosen.forms)
        engine = Engine("cpu", ExecutorKind.COMPILED, chosen.forms)
        alone = run_alone(body, files, engine, baseline)
    nodes = [
        replace(node, arguments=("--max-shards", "1"), tokens=OWNED, stake=OWNED)
        if node.role == "solver"
        else node
        for node in default_nodes(chosen.shards, 2, 0)
    ]
    with tempfile.TemporaryDirectory() as folder:
        led = lead(
            body,
            nodes,
            Path(folder) / "home",
            600.0 + 900.0 * rounds,
            files=files,
            executor="compiled",
            forms=chosen.forms,
            cores=cores,
            speed=chosen.speed,
        )
    found = compared(alone, led, body)
    report(found, told(found), chosen.json, chosen.record)
    if not found["same_bits_as_in_process"]:
        raise SystemExit("the market's bits are not those of one process")


if __name__ == "__main__":
    main()

"""Every outer algorithm through a market of processes, and a job whose solvers are killed: the same bits.

Each arm is `assay job init --template gpt --algorithm NAME`'s job with several shards, led through a devnet
of processes: a chain, a solver a shard, verifiers. Its rounds are then run in one process, by the terms' own
links (``scripts.bench.market_alone``), and the output root of every settled claim, task or outer step, is
compared with what came of it there, and the fetched model too: no tolerance.

With `--killed` the process of a solver is killed with SIGKILL amid each of the rounds `KILLED`, for good,
while solvers without a shard stand by: once its task is overdue one of these takes the shard, from the
round's start; a task that comes too late all the same is left out, in one process too. The loss on held-out
text stands beside that of the same job in which nobody is missing.

Usage: market_arms.py [--only NAME ...] [--killed] [--json [FILE]] [--record]. Keys `same_bits_as_in_process`,
`claims`, `loss`. Fails where bits differ.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from assay.app.devnet_record import recorded
from assay.app.invocation import App
from assay.app.wiring import Connection
from assay.devnet.market import NodeSpec, default_nodes, make_account
from assay.job.build import build
from assay.job.parts import recipe_of
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, stated, template
from assay.node.artifacts import State
from assay.node.engine import Engine, ExecutorKind
from assay.program.state import state_root
from assay.protocol.types import ZERO_ADDRESS, ClaimView, JobId, Kind, Wei
from assay.training.catalogue import CATALOGUE, defined_with
from assay.training.evaluate import evaluated, with_parameters
from assay.training.job import JobArtifacts
from scripts.bench.market import Size, job_text, sized
from scripts.bench.market_alone import rounds_of
from scripts.bench.market_jobs import through_market
from scripts.bench.report import add_options, refuse_partial, report, table

TIMES = {**LOCAL, "task": "300s", "vote": "120s", "window": "5s"}
MODEL = Size(2, 4, 64, 32, 4, TIMES)
SHARDS, ROUNDS, STEPS = 3, 4, 16
STAKE, OWNED = '"1600tok"', Wei(60_000 * 10**18)
"""Of a claim, enough for the dearest of the algorithms with four shards; and of a solver."""
FOUR = frozenset({"dipaco"})
"""Whose shards are all paths through two levels of two modules."""
LONG_ROUNDS, KILLED = 12, (4,)
"""Of the job with deaths; a solver dies amid each of these rounds."""
DUE, STRAGGLER = {"task": "30s", "vote": "10s"}, "100s"
"""How long a round waits there for who is dead: its task, then the votes, for whose delays solvers accept no
less."""
PLAIN = "all well"
DIED = "a third killed, replaced"
EXECUTOR = ExecutorKind.EAGER
"""Of nodes and in process: for so small models compiling takes longer than it saves."""
Place = tuple[Kind, int, int]


@dataclass(frozen=True)
class Arm:
    """What one job came to."""

    shards: int
    rounds: int
    claims: int
    """Settled ones, each of which was compared."""
    absent: int
    """Tasks that rounds were closed without."""
    same: bool
    loss: float
    """Held out, nats a byte, after the last round."""
    seconds: float


def job_of(name: str) -> JobFile:
    """The template's job by this algorithm, small."""
    shards = 4 if name in FOUR else SHARDS
    rounds = 1 if CATALOGUE[name].one_round else ROUNDS
    text = template("gpt", source="stdlib", rounds=rounds, times=TIMES, optimiser=defined_with(name))
    text = by_algorithm(text, name)
    text = sized(text, MODEL, shards, 1 if CATALOGUE[name].one_step else STEPS)
    text = stated(text, "money.solver_stake", STAKE)
    return parse_job_file(text, f"the benchmark's job by {name}")


def long_job(deaths: bool) -> JobFile:
    """The job with deaths, or the same without."""
    model = replace(MODEL, times={**TIMES, **DUE}) if deaths else MODEL
    text = job_text(model, LONG_ROUNDS, SHARDS, STEPS)
    text = stated(text, "training.min_shards", str(SHARDS - 1 if deaths else SHARDS))
    text = stated(text, "money.solver_stake", STAKE)
    if deaths:
        text = stated(text, "times.straggler", f'"{STRAGGLER}"')
    return parse_job_file(text, "the benchmark's job with deaths")


def cast(shards: int, spares: int = 0) -> list[NodeSpec]:
    """A solver a shard, some more, and three verifiers."""
    nodes = default_nodes(shards + spares, 3, 0)
    one = ("--max-shards", "1")
    return [
        replace(node, arguments=one, tokens=OWNED, stake=OWNED) if node.role == "solver" else node
        for node in nodes
    ]


class Deaths:
    """Kills the solver of a shard once its round has begun, and is told of nothing else."""

    def __init__(self) -> None:
        self.left = list(enumerate(KILLED))
        self.dead: list[str] = []

    def __call__(self, app: App, connection: Connection, job_id: JobId) -> None:
        if not self.left or connection.market.job(job_id).progress.round < self.left[0][1]:
            return
        shard = self.left[0][0]
        holder = connection.market.holder(job_id, shard).solver
        devnet = recorded(app.settings.home)
        if holder == ZERO_ADDRESS or devnet is None:
            return
        solvers = (node for node in devnet.nodes if node.role == "solver")
        name, pid = next((x.name, x.pid) for x in solvers if make_account(app, x.name) == holder)
        os.kill(pid, signal.SIGKILL)
        self.left.pop(0)
        self.dead.append(name)
        print(f"{name}, which holds shard {shard}, was killed", file=sys.stderr, flush=True)


def key(view: ClaimView) -> Place:
    """Kind, round and shard (of an outer claim: its slice)."""
    return view.claim.kind, view.claim.round, view.claim.shard


def alone(
    body: JobFile, files: JobArtifacts, absent: frozenset[tuple[int, int]]
) -> tuple[dict[Place, bytes], State]:
    """Output roots of all claims that are made in one process, and the last round's outer state, slice after
    slice."""
    roots: dict[Place, bytes] = {}
    last: State = []
    with rounds_of(body, files, Engine("cpu", EXECUTOR), absent) as rounds:
        terms = rounds.terms
        for round_ in range(terms.rounds):
            for shard in range(terms.shards):
                if (round_, shard) not in absent:
                    roots[Kind.TASK, round_, shard] = state_root(rounds.claim(Kind.TASK, round_, shard))
            outer = [rounds.claim(Kind.OUTER, round_, unit) for unit in range(terms.slices)]
            roots |= {(Kind.OUTER, round_, unit): state_root(state) for unit, state in enumerate(outer)}
            last = outer[0]
    return roots, last


def loss_of(body: JobFile, files: JobArtifacts, outer: State) -> float:
    """Of the parameters in an outer state of one slice, on held-out text."""
    made, names = recipe_of(body), files.slot_names[: files.inner.params]
    model = with_parameters(made.model, dict(zip(names, outer, strict=False)))
    rows = made.dataset.held_out_batch(256)
    return evaluated(model, made.loss, made.dataset.layout, rows).loss


def played(body: JobFile, nodes: Sequence[NodeSpec], deaths: Deaths | None = None) -> Arm:
    """Through the market, then in one process."""
    files = build(body)
    with tempfile.TemporaryDirectory() as folder:
        closed = through_market(body, files, nodes, Path(folder) / "home", 1_800.0, deaths, EXECUTOR)
    if deaths is not None and len(deaths.dead) != len(KILLED):
        raise SystemExit(f"{len(deaths.dead)} of {len(KILLED)} solvers were killed")
    settled = {key(view): view.claim.output_root for view in closed.settled}
    shards, rounds = body.training.shards, body.training.rounds
    every = {(round_, shard) for round_ in range(rounds) for shard in range(shards)}
    absent = frozenset(place for place in every if (Kind.TASK, *place) not in settled)
    if absent and deaths is None:
        raise SystemExit(f"{len(absent)} tasks are absent, and nobody died")
    tasks = [view.claim for view in closed.settled if view.claim.kind == Kind.TASK]
    for shard in range(len(deaths.dead) if deaths else 0):
        if len({claim.claimant for claim in tasks if claim.shard == shard}) < 2:
            raise SystemExit(f"nobody took shard {shard} from its dead solver")
    roots, last = alone(body, files, absent)
    fetched = list(closed.params.values())
    model = len(fetched) >= files.inner.params and all(map(torch.equal, fetched, last))
    same, loss = settled == roots and model, loss_of(body, files, last)
    return Arm(shards, rounds, len(settled), len(absent), same, loss, closed.seconds)


def arms(names: Sequence[str]) -> dict[str, Arm]:
    """By algorithm."""
    found: dict[str, Arm] = {}
    for name in names:
        body = job_of(name)
        found[name] = played(body, cast(body.training.shards))
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def deadly() -> dict[str, Arm]:
    """The job in which all is well, and the one with deaths."""
    found = {PLAIN: played(long_job(False), cast(SHARDS))}
    print(found[PLAIN], file=sys.stderr, flush=True)
    found[DIED] = played(long_job(True), cast(SHARDS, len(KILLED)), Deaths())
    return found


def told(found: dict[str, Arm]) -> str:
    """The table."""
    head = ("job", "shards", "rounds", "settled claims", "absent tasks", "bits as in process", "loss", "s")
    rows = []
    for name, x in found.items():
        counts = (x.shards, x.rounds, x.claims, x.absent, x.same)
        rows.append((name, *map(str, counts), f"{x.loss:.4f}", f"{x.seconds:.0f}"))
    return table(head, rows)


def main() -> None:
    """Lead, compare, print; fail where bits differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=CATALOGUE, help="of the algorithms, this one")
    parser.add_argument("--killed", action="store_true", help="a job in which solvers are killed, instead")
    add_options(parser, "market-arms")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "only")
    if chosen.killed and chosen.only:
        parser.error("--killed is of one algorithm, so not with --only")
    torch.set_num_threads(1)
    found = deadly() if chosen.killed else arms(chosen.only or CATALOGUE)
    results: dict[str, Any] = {
        name: {**vars(arm), "same_bits_as_in_process": arm.same} for name, arm in found.items()
    }
    record = chosen.record and ("market-killed" if chosen.killed else chosen.record)
    report(results, told(found), chosen.json, record)
    if not all(arm.same for arm in found.values()):
        raise SystemExit("the market's bits are not those of one process")


if __name__ == "__main__":
    main()

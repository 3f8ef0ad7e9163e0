"""What leading a job through the market costs its solver: wall time with and without, and where it goes.

The job is `assay job init --template gpt`'s with `[outer] algorithm = "diloco-4bit"`, one shard and its
default sampling, led through a devnet of real processes: a chain, two verifiers, a solver. The same rounds
run in one process with the same executor and one thread, half of them before and half of them after. The
solver's computing has a core of its own, in the market and alone; everybody else shares the last core (two
cores are enough), and what the solver does besides, which is to decide, store and serve, unless `--one-core`
keeps it beside its computing. There the solver's own comes first, as on a machine that has no verifiers. Bits
are compared: the output root of every settled outer claim. Clocks begin at the end of the first segment and
end with the last outer claim.

`--baseline N`: of a long job only N rounds are run alone, and the others are reckoned as long as these.

`--speed` leaves computing, in the market and alone, this part of its core's time, with blocks as much rarer:
where the other core has more to do than it can, this is as if there were more of them (cgroup v1, root).

`--links` leads a job over links with a rate, a delay and a loss (``scripts.bench.market_links``; Linux and
root), with forms that a run without links has compiled; where cores are too few, solvers share them.

Usage: `scripts/bench/market.py [--quick] [--links [--only LINK ...] [--shards N] [--steps N]] [--size SIZE]
[--rounds N] [--baseline N] [--speed PART] [--json [FILE]] [--record]`. Keys `wall_ratio`, `round_ratio`,
`computing_share`, `same_bits_as_in_process`."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, stated, template
from scripts.bench.market_alone import Alone
from scripts.bench.market_devnet import Led, cores, lead
from scripts.bench.market_links import GRID, Line, lead_over
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table
from scripts.bench.slowed import slowed

GOAL_RATIO, GOAL_SHARE = 1.10, 0.95
COMPUTING = "computing"


@dataclass(frozen=True)
class Size:
    """A byte-level GPT, and how long its claims may take."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    times: dict[str, str]


_LONG = {**LOCAL, "task": "600s", "outer": "60s", "vote": "300s", "move": "10m"}
SIZES = {
    "gpt-32": Size(1, 2, 32, 32, 4, {**LOCAL, "window": "5s"}),
    "gpt-128": Size(4, 4, 128, 64, 4, {**LOCAL, "window": "10s"}),
    "gpt-256": Size(4, 4, 256, 128, 8, {**_LONG, "window": "20s"}),
    "gpt-512": Size(4, 8, 512, 128, 8, {**_LONG, "window": "20s"}),
}


STEPS = 64
"""Inner steps a round, of the template."""


def job_text(size: Size, rounds: int, shards: int, steps: int = STEPS) -> str:
    """The template's job file with a model of this size, and so many steps a round."""
    text = template("gpt", source="stdlib", rounds=rounds, times=size.times)
    return stated(sized(text, size, shards, steps), "outer.algorithm", '"diloco-4bit"')


def sized(text: str, size: Size, shards: int, steps: int) -> str:
    """A job file of the GPT with a model of this size, so many shards and so many steps a round."""
    changes = {
        "model.layers": size.layers,
        "model.heads": size.heads,
        "model.width": size.width,
        "model.context": size.context,
        "training.batch": size.batch,
        "training.steps_per_round": steps,
        "training.shards": shards,
        "training.min_shards": shards,
    }
    for key, value in changes.items():
        text = stated(text, key, str(value))
    return text


def job_of(size: Size, rounds: int, shards: int, steps: int = STEPS) -> JobFile:
    """The same, read."""
    return parse_job_file(job_text(size, rounds, shards, steps), "the benchmark's job")


@contextmanager
def in_process(
    text: str, rounds: int, folder: Path, forms: Path, kept: Path | None, speed: float = 1.0
) -> Iterator[Callable[[], Alone]]:
    """The job's rounds in a process of its own, on a solver's core: half of them on entry, the others when
    what is given is called, since a machine's speed may drift by more than what is measured in between; or
    those of an earlier run of at least as many, where they were kept."""
    if kept is not None and kept.exists():
        there = Alone(**json.loads(kept.read_text()))
        lists = (there.roots[:rounds], there.ends[:rounds], there.processor[:rounds])
        yield lambda: Alone(there.parameters, there.state_bytes, *lists)
        return
    job = folder / "job.toml"
    job.write_text(text)
    core = cores(1).solvers[0]
    words = [sys.executable, "-m", "scripts.bench.market_alone", str(job), str(forms), "halves"]
    with slowed(speed) as slow:

        def begin() -> None:
            os.sched_setaffinity(0, {core})
            slow(os.getpid())

        with subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=begin,
        ) as process:
            assert process.stdout is not None
            if rounds > 1 and process.stdout.readline() != "half\n":
                raise SystemExit("the job did not run in one process")

            def others() -> Alone:
                said, _ = process.communicate("go on\n")
                if process.returncode:
                    raise SystemExit("the job did not run in one process")
                if kept is not None:
                    kept.write_text(said)
                return Alone(**json.loads(said))

            try:
                yield others
            finally:
                process.kill()


def ratio_of_rounds(led: list[float], alone: list[float]) -> float:
    """How long a further round takes in the market over what it takes alone, by when their tasks were
    committed; of one round the whole. Outer claims would flatter a short job: the first waits for its votes
    beside training, and the last beside nothing."""
    if min(len(led), len(alone)) < 2:
        return led[-1] / alone[-1]
    return ((led[-1] - led[0]) / (len(led) - 1)) / ((alone[-1] - alone[0]) / (len(alone) - 1))


def shares(spent: dict[str, float]) -> dict[str, float]:
    """What each of a solver's activities has of all its time."""
    whole = sum(spent.values())
    return {what: seconds / whole for what, seconds in spent.items()} if whole else {}


def reckoned(ends: list[float], rounds: int) -> float:
    """Seconds of so many rounds alone: of those that were run, and of each more what a further one of them
    took."""
    if len(ends) < 2 or rounds <= len(ends):
        return ends[-1]
    return ends[-1] + (rounds - len(ends)) * (ends[-1] - ends[0]) / (len(ends) - 1)


def compared(alone: Alone, led: Led, rounds: int) -> dict[str, Any]:
    """The figures of a job of one shard and so many rounds, of which `alone` may have fewer: bits are
    compared of these."""
    spent, whole = led.spent["solver-1"], reckoned(alone.ends, rounds)
    settled = len(led.roots) == rounds and led.roots[: len(alone.roots)] == alone.roots
    return {
        "parameters": alone.parameters,
        "state_bytes": alone.state_bytes,
        "rounds": rounds,
        "rounds_in_process": len(alone.roots),
        "same_bits_as_in_process": settled,
        "wall_s": led.ends[-1],
        "wall_s_in_process": whole,
        "wall_ratio": led.ends[-1] / whole,
        "round_ratio": ratio_of_rounds(led.tasks, alone.ends),
        "processor_s_solver": led.processor["solver-1"],
        "processor_s_in_process": alone.processor[-1],
        "processor_ratio": led.processor["solver-1"] / reckoned(alone.processor, rounds),
        "computing_share": shares(spent).get(COMPUTING, 0.0),
        "shares": shares(spent),
        "processor_s": led.processor,
        "ends_s": led.ends,
        "tasks_s": led.tasks,
        "ends_s_in_process": alone.ends,
        "events": led.events,
        "bytes": led.bytes_moved,
    }


def play(
    size: str, rounds: int, forms: Path, whole: bool, kept: Path | None, speed: float, baseline: int
) -> dict[str, Any]:
    """Both runs of a job, the market's between the halves of the other, of `baseline` rounds: it takes the
    forms that that has compiled."""
    text = job_text(SIZES[size], baseline, 1)
    with tempfile.TemporaryDirectory() as folder:
        body = job_of(SIZES[size], rounds, 1)
        home = Path(folder) / "home"
        with in_process(text, baseline, Path(folder), forms, kept, speed) as others:
            led = lead(body, home, forms, helpers_apart=not whole, speed=speed, block_s=math.ceil(1 / speed))
            alone = others()
    setting = {"size": size, "steps_per_round": STEPS, "solver_on_one_core": whole, "speed": speed}
    return {**setting, **compared(alone, led, rounds)}


def told(found: dict[str, Any]) -> str:
    """The table of one job."""
    head = (
        "parameters",
        "rounds",
        "bits as in process",
        "market, s",
        "in process, s",
        "÷",
        "a further round ÷",
    )
    row = (
        f"{found['parameters']:,}",
        str(found["rounds"]),
        str(found["same_bits_as_in_process"]),
        f"{found['wall_s']:.1f}",
        f"{found['wall_s_in_process']:.1f}",
        f"{found['wall_ratio']:.3f}",
        f"{found['round_ratio']:.3f}",
    )
    order = sorted(found["shares"].items(), key=lambda item: -item[1])
    where = ", ".join(f"{what} {100 * share:.1f} %" for what, share in order)
    used = ", ".join(f"{name} {seconds:.0f}" for name, seconds in found["processor_s"].items())
    fewer = found["rounds_in_process"] < found["rounds"]
    alone = (
        f"In process {found['rounds_in_process']} rounds were run, and the others reckoned. " if fewer else ""
    )
    return (
        f"{table(head, [row])}\n\n{alone}The solver's time: {where}. Processor seconds: {used}; in process"
        f" {found['processor_s_in_process']:.0f}."
    )


def over(lines: Sequence[Line], body: JobFile, forms: Path) -> list[dict[str, Any]]:
    """A job over each of these links, one after another."""
    found = []
    for line in lines:
        led, carried = lead_over(line, body, forms)
        spent = [shares(seconds) for seconds in led.spent.values()]
        found.append(
            {
                **asdict(line),
                "steps_per_round": body.training.steps_per_round,
                "rounds": body.training.rounds,
                "a_round_s": (led.ends[-1] - led.ends[0]) / max(len(led.ends) - 1, 1),
                "computing_share": sum(share.get(COMPUTING, 0.0) for share in spent) / len(spent),
                "shares": spent,
                "bytes": led.bytes_moved,
                **asdict(carried),
                "events": led.events,
                "ends_s": led.ends,
            }
        )
        print(f"{line}: {100 * found[-1]['computing_share']:.1f} % computing", file=sys.stderr, flush=True)
    return found


def told_over(found: list[dict[str, Any]]) -> str:
    """The table of the links."""
    head = (
        "steps a round",
        "Mbit/s",
        "round trip, ms",
        "loss, %",
        "a round, s",
        "computing, %",
        "MB for proof a round",
    )
    rows = [
        (
            str(one["steps_per_round"]),
            f"{one['mbit_per_s']:,}",
            str(one["round_trip_ms"]),
            f"{one['loss_percent']:g}",
            f"{one['a_round_s']:.1f}",
            f"{100 * one['computing_share']:.1f}",
            f"{one['bytes'].get('out_proof', 0) / one['rounds'] / 1e6:.1f}",
        )
        for one in found
    ]
    return table(head, rows)


def main() -> None:
    """Lead, compare, print; fail where the bits differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tiny model and two rounds")
    parser.add_argument("--size", choices=sorted(SIZES))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--links", action="store_true", help="over links with a rate, a delay and a loss")
    parser.add_argument("--only", action="append", help="of the links, this one: MBIT:MS:PERCENT")
    parser.add_argument(
        "--one-core", action="store_true", help="what the solver stores and serves by is on its core too"
    )
    parser.add_argument("--alone", type=Path, help="where the rounds in one process are kept, or were")
    parser.add_argument("--baseline", type=int, help="rounds in one process, where not as many as the job's")
    parser.add_argument("--speed", type=float, help="what computing has of a core's time")
    parser.add_argument("--shards", type=int, default=1, help="of the job over links")
    parser.add_argument("--steps", type=int, default=STEPS, help="a round, of the job over links")
    parser.add_argument(
        "--forms", type=Path, default=ROOT / ".cache" / "bench-market", help=argparse.SUPPRESS
    )
    add_options(parser, "market")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))  # so that what was started is ended
    refuse_partial(
        parser, chosen, "quick", "size", "rounds", "only", "one_core", "alone", "speed", "baseline"
    )
    size = chosen.size or ("gpt-32" if chosen.quick else "gpt-512")
    rounds = chosen.rounds or (2 if chosen.quick else 5)
    if chosen.baseline is not None and not 2 <= chosen.baseline <= rounds:
        parser.error(f"--baseline is 2 to {rounds} rounds, of which a machine's drift is seen")
    speed = 1.0 if chosen.speed is None else chosen.speed
    if not 0.05 <= speed <= 1 or (speed != 1 and (chosen.one_core or chosen.links)):
        parser.error("--speed is a part of a core from 0.05 to 1, neither over links nor with --one-core")
    if chosen.links:
        lines = [Line.parse(text) for text in chosen.only or ()] or GRID[: 1 if chosen.quick else None]
        if os.geteuid():
            raise SystemExit("network namespaces need root")
        found = over(lines, job_of(SIZES[size], rounds, chosen.shards, chosen.steps), chosen.forms)
        record = chosen.record and f"{chosen.record}-links"
        report({"size": size, "links": found}, told_over(found), chosen.json, record)
        return
    one = play(size, rounds, chosen.forms, chosen.one_core, chosen.alone, speed, chosen.baseline or rounds)
    report(one, told(one), chosen.json, chosen.record)
    if not one["same_bits_as_in_process"]:
        raise SystemExit("the market's bits are not those of one process")


if __name__ == "__main__":
    main()

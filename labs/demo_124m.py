"""GPT-2 small, 124 million parameters, through the whole market on this machine: two solvers train it on real
text, one of them lies about one weight by one unit in the last place, the lie is convicted on chain, and the
model is fetched and checked.

Usage: demo_124m.py [--tiny] [--json] [--rounds N] [--shards N] [--steps N] [--context N] [--home FOLDER]
[--minutes N]. By hand, with 24 GB of memory and 10 GB of disk; docs/scale.md has what was measured. Steps are
plain gradient descent on one sequence each, so that the state is 0.5 GB and not 1.5: what is shown is the
market at this size, not what the model learns. GPT2_TOKENS names a file of tokens of your own
(examples/gpt2). `--tiny` is the same of a model of 0.2 million parameters. Exit status 0 only if all of it
happened; memory is what all processes together had resident, shared pages counted once, at the most.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.app.traffic import totals_by_node
from assay.devnet.folder import wipe_data
from assay.devnet.market import NodeSpec, take_down
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import own_template
from drills.lineups import covered, told
from drills.outcome import Outcome, judge, report, report_of
from drills.promises import falls
from drills.run import Run
from drills.scenarios import Scenario

MODEL = Path(__file__).resolve().parents[1] / "examples" / "gpt2" / "model.py"
TIMES = {
    "seed_delay": "2",
    "task": "30m",
    "straggler": "80m",
    "outer": "10m",
    "vote": "10m",
    "window": "240s",
    "move": "10m",
}
"""Upper bounds on a slow machine, but for the window, in which a whistleblower has to recheck a claim."""
TINY_WINDOW = "15s"
FAULT = "0:1:6:777"
"""Round 0, step 1, an element of the first block's attention weight."""
SAMPLE_S = 2.0
LARGE_BYTES = 100_000_000


def job(rounds: int, shards: int, steps: int, window: str = TIMES["window"]) -> JobFile:
    """Rounds of `steps` steps, each a segment of its own."""
    source, times = f"{MODEL}:without_optimiser", {**TIMES, "window": window}
    text = own_template(source, batch=1, rounds=rounds, times=times, optimiser="sgd", precision="single")
    stated = {
        "learning_rate = 0.1": "learning_rate = 0.004",
        "momentum = 0.9\nnesterov = true": "momentum = 0.0\nnesterov = false",
        "min_shards = 2": f"min_shards = {shards}",
        "\nshards = 2": f"\nshards = {shards}",
        "steps_per_round = 64": f"steps_per_round = {steps}",
        "segment_steps = 4": "segment_steps = 1",
        "verifiers = 2": "verifiers = 1",
        "state_bytes = 8589934592": "state_bytes = 4294967296",
        "step_bytes = 17179869184": "step_bytes = 8589934592",
    }
    for usual, ours in stated.items():
        assert text.count(usual) == 1, usual
        text = text.replace(usual, ours)
    return parse_job_file(text, "the job of 124 million parameters")


MEMORY = "9GB"
"""Of a step, for each node: all of them run on this one machine."""


def nodes() -> list[NodeSpec]:
    """Who takes part."""
    taking_part = covered("--fault", FAULT, verifiers=1)()
    return [told(spec, "--memory", MEMORY) for spec in taking_part]


SCENARIO = Scenario(
    "one-ulp-124m",
    (5, 15),
    "a solver changes a weight of GPT-2 small by one unit in the last place, and its verifier covers for it",
    nodes,
    falls("task", 0, "WrongSegment", "arithmetic"),
)


class Watch:
    """The most memory that this process and all below it have had resident together."""

    def __init__(self) -> None:
        self.most_bytes = 0
        self.parts: dict[str, int] = {}
        """Of each process at that moment, by its command."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            found = {pid: _resident(pid) for pid in family(os.getpid())}
            if (total := sum(found.values())) > self.most_bytes:
                self.most_bytes = total
                self.parts = {_named(pid): size for pid, size in found.items() if size > LARGE_BYTES}


def family(pid: int) -> list[int]:
    """A process and all that it has started, and they, and so on."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _named(pid: int) -> str:
    """A process's number, and the node that it is."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        named = [value for option, value in pairwise(words) if option == "--account"]
        return f"{named[0] if named else Path(words[0]).name} ({pid})"
    return str(pid)


def _resident(pid: int) -> int:
    """Bytes, of shared pages its part."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def summary(home: Path, outcome: Outcome, missing: list[str], seconds: float, watch: Watch) -> dict[str, Any]:
    """What it came to, for a machine."""
    traffic = totals_by_node(home)
    own, below = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        **report_of(SCENARIO.name, outcome, missing),
        "seconds": round(seconds),
        "processorSeconds": round(own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime),
        "memoryBytes": watch.most_bytes,
        "memoryByProcess": watch.parts,
        "diskBytes": sum(path.stat().st_size for path in home.glob("*/**/*") if path.is_file()),
        "sentBytes": sum(n["out_training"] + n["out_proof"] for n in traffic.values()),
        "gasTotal": sum(sum(used) for used in outcome.gas.values()),
    }


def play(home: Path, options: argparse.Namespace) -> bool:
    """The whole run and its report; whether all happened that is promised."""
    began = time.monotonic()
    app = App(Flags(home=str(home)), Output(as_json=options.json, quiet=False), True, False, None)
    take_down(home)
    wipe_data(home)
    body = job(options.rounds, options.shards, options.steps, *([TINY_WINDOW] if options.tiny else []))
    limits = {"limit_s": 60.0 * options.minutes, "held_out_rows": 8}
    run = Run(app, SCENARIO, body, home / "model", **limits)
    with Watch() as watch:
        try:
            outcome = run.play()
        finally:
            take_down(home)
    missing = judge(SCENARIO.promised, outcome)
    found = summary(home, outcome, missing, time.monotonic() - began, watch)
    if options.json:
        print(json.dumps(found, default=str))
        return not missing
    report(app, SCENARIO.attackers, SCENARIO.name, outcome, missing)
    parts = ("memoryBytes", "diskBytes", "sentBytes")
    memory, disk, sent = (f"{found[part] / 1e9:,.1f} GB" for part in parts)
    took = f"{found['seconds']} s, {found['processorSeconds']} s of processors"
    print(f"{found['parameters']:,} parameters, {took},")
    print(", ".join(f"{who} {size / 1e9:.1f} GB" for who, size in sorted(found["memoryByProcess"].items())))
    print(f"at most {memory} of memory, {disk} on all disks, {sent} sent, {found['gasTotal']:,} gas")
    return not missing


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tiny", action="store_true", help="a model of 0.2 million parameters")
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2, help="of a task")
    parser.add_argument("--context", type=int, default=64, help="tokens of a sequence")
    parser.add_argument(
        "--home", type=Path, default=Path(".assay/demo-124m"), help="an earlier run is removed"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="after which it gives up")
    options = parser.parse_args()
    os.environ["GPT2_CONTEXT"] = str(options.context)
    os.environ["GPT2_SIZE"] = "tiny" if options.tiny else "small"
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(0 if play(options.home.resolve(), options) else 1)


if __name__ == "__main__":
    main()

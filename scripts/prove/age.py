"""Load and age: a thousand jobs of ten tasks by 200 accounts on the real contracts, over a simulated day.

    PYTHONPATH=. python scripts/prove/age.py [--quick] [--json FILE]

The accounts act by direct calls (`tests.adversaries.crowd`), since it is the contracts and what a node knows
of them that is measured: a task's gas at the beginning and at the end; how many events a second a node takes
in, and how long one takes that starts from genesis, or again from its disk; the memory and disk of a node's
view while the market goes on, and while a day of empty blocks passes, of which it looks at each. A figure
that misses its bound ends with status 1. `--quick`: 40 jobs, 40 accounts, no bounds on time.

Not guaranteed: seconds on a machine that is busy with something else.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.view import ChainView
from assay.chain.eth.rpc import HttpRpc
from assay.protocol.types import (
    ZERO_ADDRESS,
    Address,
    Kind,
    Seconds,
    Terms,
    Wei,
)
from tests.adversaries.crowd import Crowd, Made, draft, parts
from tests.fakes.classes import of_its_class
from tests.fakes.shapes import with_steps
from tests.property.markets import TERMS

DAY_S = 86_400
BLOCK_S = 12
BLOCKS = 60
"""Empty blocks between two waves of jobs, spread over their part of the day."""
SHARDS, ROUNDS = 5, 2
TASKS = SHARDS * ROUNDS
LEAST_EVENTS = 2_000
LONGEST_START_S = 60.0
MOST_DRIFT = 0.03
"""How far the gas of the last tasks may lie from that of the first."""
MOST_IDLE_BYTES = 4 << 20
"""What an idle day may add to memory, and to disk."""
MOST_TASK_BYTES = 16 << 10
"""What a settled task may leave in memory, and on disk, for good."""


@dataclass(frozen=True)
class Size:
    """How much of it is done."""

    jobs: int
    accounts: int
    waves: int
    compared: int
    idle: int


WHOLE = Size(jobs=1_000, accounts=200, waves=20, compared=500, idle=DAY_S // BLOCK_S)
QUICK = Size(jobs=40, accounts=40, waves=4, compared=100, idle=300)


# -- a node's view, in a process of its own


class Observer:
    """A process that follows the market as a node does, and says what it needs."""

    def __init__(self, crowd: Crowd, folder: Path, deployment: Path) -> None:
        command = [sys.executable, __file__, "--observe", str(folder), "--deployment", str(deployment)]
        self._process = subprocess.Popen(
            [*command, "--url", crowd.chain.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.started = self._answer()

    def look(self) -> dict[str, Any]:
        """Follow to the head and look as a node does."""
        assert self._process.stdin is not None
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError("the observer has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def observe(folder: Path, deployment: Path, url: str) -> None:
    """The observer's process: what it takes to start, then one answer for each line."""
    rpc = HttpRpc(url, timeout_s=120)
    at, artifacts = Deployment.load(deployment, rpc), load_artifacts()
    before = _resident()
    began = time.monotonic(), time.process_time()
    view = ChainView(rpc, at, artifacts, ZERO_ADDRESS, folder / "events.db", max_age_s=0.0)
    _say(view, folder, began, before)
    for _ in sys.stdin:
        began = time.monotonic(), time.process_time()
        with view.snapshot():
            for job in view.jobs():
                if not job.progress.closed:
                    view.claims(job.job_id)
            view.games()
            view.gateways()
        _say(view, folder, began, before)


def _say(view: ChainView, folder: Path, began: tuple[float, float], before: int) -> None:
    seconds, processor = time.monotonic() - began[0], time.process_time() - began[1]
    gc.collect()
    told = {
        "block": view.block,
        "seconds": seconds,
        "processor": processor,
        "resident": _resident() - before,
        "disk": sum(path.stat().st_size for path in folder.rglob("*") if _lasts(path)),
        "jobs": len(view.job_ids()),
        "claims": len(view.claim_ids()),
    }
    print(json.dumps(told), flush=True)


def _lasts(path: Path) -> bool:
    """Whether a file is what a node keeps: a write-ahead log has some 4 MB from its first full turn on, and
    never more, however long it runs."""
    return path.is_file() and not path.name.endswith(("-wal", "-shm"))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


# -- the market's load


def terms_of(client: Address, nonce: int) -> Terms:
    """A job of ten tasks, five shards in two rounds, whose amounts cover what a conviction may waste."""
    terms = replace(
        with_steps(TERMS, steps=8, segment_steps=2, samples=1, shards=SHARDS),
        client=client,
        nonce=nonce,
        min_shards=SHARDS,
        rounds=ROUNDS,
        samples=1,
        verifiers=2,
        max_unsettled=ROUNDS,
        task_time=Seconds(10_000),
        straggler_time=Seconds(10_000),
        solver_stake=Wei(100_000),
    )
    return of_its_class(terms)


def wave(crowd: Crowd, clients: Sequence[Address], solvers: Sequence[Address], jobs: range) -> list[bytes]:
    """So many jobs from post to close; the ids of their tasks."""
    posted = [terms_of(clients[number % len(clients)], number) for number in jobs]
    ids = crowd.post(posted)
    holders = {
        (job_id, shard): solvers[(number * SHARDS + shard) % len(solvers)]
        for number, job_id in zip(jobs, ids, strict=True)
        for shard in range(SHARDS)
    }
    crowd.do([crowd.call(by, "Tasks", "takeShard", *place, 0) for place, by in holders.items()])
    tasks: list[Made] = []
    outers: list[Made] = []
    last = {job_id: terms.genesis_root for job_id, terms in zip(ids, posted, strict=True)}
    for round in range(ROUNDS):
        made = crowd.commit(
            [
                (by, *draft(job_id, Kind.TASK, round, shard, last[job_id], posted[0].segments))
                for (job_id, shard), by in holders.items()
            ]
        )
        tasks += crowd.attest(made, posted[0].samples)
        drafts = [draft(job_id, Kind.OUTER, round, 0, last[job_id], 1) for job_id in ids]
        outers += crowd.commit([(holders[d.job_id, round % SHARDS], d, roots) for d, roots in drafts])
        last = {claim.job_id: claim.output_root for claim, _ in drafts}
    crowd.pass_time(posted[0].challenge_window + posted[0].vote_time + 1)
    for round in range(ROUNDS):
        crowd.settle([one for one in tasks if one.claim.round == round])
        crowd.settle([one for one in outers if one.claim.round == round])
    crowd.do([crowd.call(t.client, "Jobs", "close", job_id) for job_id, t in zip(ids, posted, strict=True)])
    return [one.claim_id for one in tasks]


def load(size: Size, folder: Path) -> dict[str, Any]:
    """The whole load, with a node that looks after each wave, and what nodes need that start then."""
    with Crowd(folder, size.accounts) as crowd:
        clients, rest = crowd.accounts[:10], crowd.accounts[10:]
        half = len(rest) // 2
        crowd.settle_in(rest[:half], rest[half:], terms_of(clients[0], 0))
        deployment = folder / "deployment.json"
        crowd.deployment.save(deployment)
        observer = Observer(crowd, folder / "observer", deployment)
        looks, tasks, took = [], list[bytes](), 0.0
        for jobs in parts(range(size.jobs), size.jobs // size.waves):
            began = time.monotonic()
            tasks += wave(crowd, clients, rest[:half], jobs)
            crowd.pass_time(DAY_S // size.waves, blocks=BLOCKS)
            took += time.monotonic() - began
            looks.append(observer.look() | {"tasks": len(tasks)})
            _tell(f"{len(tasks)} tasks, block {crowd.height()}: {looks[-1]}")
        fresh = Observer(crowd, folder / "fresh", deployment)
        fresh.close()
        again = Observer(crowd, folder / "fresh", deployment)
        events = again_events(folder / "fresh", crowd, deployment)
        again.close()
        observer.close()
        return {
            "tasks": len(tasks),
            "jobs": size.jobs,
            "accounts": size.accounts,
            "calls": crowd.sent,
            "events": events,
            "seconds": took,
            "gas": compared(crowd.gas, tasks, size.compared),
            "looks": looks,
            "genesis": fresh.started,
            "restart": again.started,
        }


def again_events(folder: Path, crowd: Crowd, deployment: Path) -> int:
    """How many events a view's file has."""
    at = Deployment.load(deployment, crowd.rpc)
    view = ChainView(crowd.rpc, at, crowd.artifacts, ZERO_ADDRESS, folder / "events.db")
    try:
        return len(view.events())
    finally:
        view.disconnect()


def compared(gas: Mapping[bytes, Mapping[str, int]], tasks: Sequence[bytes], each: int) -> dict[str, Any]:
    """Mean gas of the first and of the last tasks, by what was called, and of all of it."""

    def means(some: Sequence[bytes]) -> dict[str, float]:
        names = gas[some[0]]
        found = {name: mean(gas[task].get(name, 0) for task in some) for name in names}
        return found | {"all": mean(sum(gas[task].values()) for task in some)}

    first, last = means(tasks[:each]), means(tasks[-each:])
    return {"first": first, "last": last, "drift": last["all"] / first["all"] - 1}


def idle_day(size: Size, folder: Path) -> dict[str, Any]:
    """Empty blocks after a little work, of which a node looks at each: what that leaves."""
    folder.mkdir()
    with Crowd(folder, 30) as crowd:
        clients, solvers, verifiers = (crowd.accounts[at : at + 10] for at in (0, 10, 20))
        crowd.settle_in(solvers, verifiers, terms_of(clients[0], 0))
        deployment = folder / "deployment.json"
        crowd.deployment.save(deployment)
        wave(crowd, clients, solvers, range(10))
        observer = Observer(crowd, folder / "observer", deployment)
        before = after = observer.look()
        for _ in range(size.idle):
            crowd.pass_time(BLOCK_S)
            after = observer.look()
        observer.close()
    grown = {what: after[what] - before[what] for what in ("resident", "disk")}
    return {"blocks": size.idle} | grown


# -- the verdict


def missed(found: Mapping[str, Any], timed: bool) -> list[str]:
    """What is not within its bounds."""
    faults = []
    if abs(found["gas"]["drift"]) > MOST_DRIFT:
        faults.append(f"a task's gas drifts by {found['gas']['drift']:+.1%}")
    start = found["genesis"]["seconds"]
    rate = found["events"] / found["genesis"]["processor"]
    if timed and rate < LEAST_EVENTS:
        faults.append(f"{rate:,.0f} events a second of its processor")
    if timed and start > LONGEST_START_S:
        faults.append(f"{start:.0f} s from genesis")
    for what in ("resident", "disk"):
        if found["idle"][what] > MOST_IDLE_BYTES:
            faults.append(f"an idle day adds {found['idle'][what]:,} bytes, {what}")
        grown = _grown(found["looks"], what)
        if timed and grown > MOST_TASK_BYTES:
            faults.append(f"a task leaves {grown:,.0f} bytes, {what}")
    return faults


def _grown(looks: Sequence[Mapping[str, Any]], what: str) -> float:
    """Bytes that each task has left, from the first quarter of the load to its end."""
    first, last = looks[len(looks) // 4], looks[-1]
    return (last[what] - first[what]) / (last["tasks"] - first["tasks"])


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    for name in ("--observe", "--deployment"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.observe is not None:
        observe(chosen.observe, chosen.deployment, chosen.url)
        return 0
    torch.set_num_threads(1)
    size = QUICK if chosen.quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="assay-age-") as name:
        folder = Path(name)
        found = load(size, folder) | {"idle": idle_day(size, folder / "idle")}
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    looks = found["looks"]
    print(
        f"{found['tasks']:,} tasks of {found['jobs']:,} jobs, {found['calls']:,} calls by {found['accounts']}"
    )
    print(
        f"gas of a task: {found['gas']['first']['all']:,.0f} first, {found['gas']['last']['all']:,.0f} last"
    )
    start = found["genesis"]["seconds"]
    for what, told in (("from genesis", found["genesis"]), ("again from its disk", found["restart"])):
        print(f"{what}: {told['seconds']:.1f} s, {told['processor']:.1f} s of a processor")
    print(f"{found['events']:,} events, {found['events'] / start:,.0f} a second from genesis")
    for what in ("resident", "disk"):
        each = _grown(looks, what)
        print(f"{what}: {looks[-1][what]:,} bytes, {each:,.0f} a task; an idle day {found['idle'][what]:,}")
    faults = missed(found, timed=not chosen.quick)
    for fault in faults:
        print(f"MISSED: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs a job on a devnet to its end, and measures where its solvers' time went.

Contract: the nodes are unchanged. Times are read from the solvers' events and status.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from torch import Tensor

from assay.app.devnet_record import Devnet, NodeRecord
from assay.app.invocation import App, event_of
from assay.app.output import Output
from assay.app.resource_limits import FORMS_FOLDER, RESOURCE_LIMITS
from assay.app.settings import Flags
from assay.app.units import parse_amount
from assay.app.web import serve_blocks
from assay.client.fetching import fetch
from assay.client.verifying import verify
from assay.devnet.market import NodeSpec, bring_up, fund_account, node_events, take_down
from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.post import agreed, publish_and_post
from assay.job.read import JobFile
from assay.job.terms import conditions_of
from assay.protocol.types import ClaimView, Kind, Phase
from assay.training.job import JobArtifacts
from drills.market_run import children_of

GROUPS, PERIOD_US = Path("/sys/fs/cgroup/cpu"), 10_000
PER_CLAIM = 60
"""Budget in tokens per task."""
Spent = dict[str, dict[str, float]]
"""Seconds by solver and activity."""


@dataclass
class Led:
    """Result of a run. `tasks` and `ends` are seconds since the end of the first segment."""

    settled: list[ClaimView]
    params: dict[str, Tensor]
    """Parameters of the fetched and verified model, by name."""
    seconds: float
    """From posting to the last settlement."""
    tasks: list[float]
    """Commit time of each task."""
    ends: list[float]
    """Commit time of each round's outer claims."""
    spent: Spent
    """From the end of the first segment to the last outer claim: `computing`, while workers ran orders, and
    `all`."""


@dataclass
class _Watch:
    """Observes the solvers of a devnet from outside."""

    home: Path
    solvers: list[NodeRecord]
    claims: int
    """Number of outer claims of the whole job."""
    first: Spent = field(default_factory=dict)
    last: Spent = field(default_factory=dict)

    def events(self) -> list[dict[str, Any]]:
        """Events of all solvers, by time."""
        paths = [node_events(self.home, node.name) for node in self.solvers]
        lines = [line for path in paths if path.exists() for line in path.read_bytes().splitlines()]
        return sorted(filter(None, map(event_of, lines)), key=lambda event: event["time"])

    def times(self, event: str, kind: Kind | None = None) -> list[float]:
        """Times of such events."""
        found = (one for one in self.events() if one["event"] == event)
        return [one["time"] for one in found if kind is None or one["kind"] == kind.name]

    def look(self) -> None:
        """Records the solvers' times at the first segment's end and at the last outer claim."""
        if not self.first and self.times("trained"):
            self.first = self._spent()
        if not self.last and len(self.times("committed", Kind.OUTER)) >= self.claims:
            self.last = self._spent()

    def _spent(self) -> Spent:
        found = {}
        for node in self.solvers:
            url = node.url.rstrip("/") + "/status"
            counters = httpx.get(url, timeout=30, trust_env=False).json()["counters"]
            found[node.name] = {"computing": counters["seconds_computing"], "all": time.monotonic()}
        return found

    def spent(self) -> Spent:
        """Difference of the two."""
        return {
            name: {what: s - self.first[name][what] for what, s in seconds.items()}
            for name, seconds in self.last.items()
        }


@contextmanager
def slowed(share: float) -> Iterator[Callable[[int], None]]:
    """Yields a function that limits a thread to this share of a CPU, shared with others (cgroup v1, root). A
    share of 1 is no limit."""
    if share == 1:
        yield lambda _: None
        return
    group = Path(tempfile.mkdtemp(prefix="assay-bench-", dir=GROUPS))
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
    try:
        yield lambda thread: _move(thread, group)
    finally:
        for thread in (group / "tasks").read_text().split():
            _move(int(thread), GROUPS)
        group.rmdir()


def _move(thread: int, group: Path) -> None:
    with suppress(OSError):  # the thread has ended
        (group / "tasks").write_text(str(thread))


def place(devnet: Devnet, cores: Sequence[int], slow: Callable[[int], None]) -> None:
    """Pins the computing thread of each solver's worker, slowed, to a core of its own, and everything else to
    the last one.

    That includes the chain, other nodes, this process, the solver itself, and the thread that stores states.
    """
    own, rest = cores[:-1] or cores, cores[-1]
    others = [node.pid for node in devnet.nodes if node.role != "solver"]
    on_rest = [thread for pid in (*others, devnet.chain_pid, os.getpid()) for thread in threads_of(pid)]
    solvers = [node.pid for node in devnet.nodes if node.role == "solver"]
    for number, pid in enumerate(solvers):
        on_rest += threads_of(pid)
        for worker in children_of(pid):
            on_rest += [thread for thread in threads_of(worker) if thread != worker]
            _put(worker, own[number % len(own)])
            slow(worker)
    for thread in on_rest:
        _put(thread, rest)
        _move(thread, GROUPS)  # a thread begins in the group of the one that has started it


def _put(thread: int, core: int) -> None:
    with suppress(OSError):  # the thread has ended
        os.sched_setaffinity(thread, {core})


def threads_of(pid: int) -> list[int]:
    """Threads of a process; empty if it has ended."""
    with suppress(OSError):
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    return []


def lead(
    body: JobFile,
    nodes: Sequence[NodeSpec],
    home: Path,
    limit_s: float,
    *,
    files: JobArtifacts | None = None,
    executor: str = "auto",
    forms: Path | None = None,
    cores: Sequence[int] = (),
    speed: float = 1.0,
) -> Led:
    """Runs the job on a devnet in `home`. Raises SystemExit if it does not end in time.

    `forms`: folder of existing compiled forms; `cores`: as in `place`, with one thread each; `speed`: as in
    `slowed`, with blocks slower by the same factor.
    """
    flags = Flags(home=str(home), executor=executor, threads="1" if cores else None)
    app = App(flags, Output(as_json=False, quiet=True), True, False, None)
    try:
        with slowed(speed) as slow:
            return _led(app, body, nodes, limit_s, files or build(body), forms, cores, slow, speed)
    finally:
        take_down(home)
        app.close()


def _led(
    app: App,
    body: JobFile,
    nodes: Sequence[NodeSpec],
    limit_s: float,
    files: JobArtifacts,
    forms: Path | None,
    cores: Sequence[int],
    slow: Callable[[int], None],
    speed: float,
) -> Led:
    home, training = app.settings.home, body.training
    devnet = bring_up(app, list(nodes), math.ceil(1 / speed) if cores else 0.5, conditions_of(body))
    if forms is not None:
        shutil.copytree(forms, home / FORMS_FOLDER, dirs_exist_ok=True)
    fund_account(app, "client", parse_amount("100000tok"))
    connection, storage = app.connect("client"), app.storage("client")
    solvers = [node for node in devnet.nodes if node.role == "solver"]
    watch = _Watch(home, solvers, training.rounds * (body.outer.slices or 1))
    with serve_blocks("client", connection, storage):
        budget = parse_amount(f"{training.rounds * training.shards * PER_CLAIM}tok")
        began, market = time.perf_counter(), connection.market
        job = agreed(app, connection, body, files, drafted(body, files), budget)
        job_id = publish_and_post(connection, storage, job)
        while not market.job(job_id).progress.closed:
            if cores:
                place(devnet, cores, slow)
            watch.look()
            if time.perf_counter() - began > limit_s:
                raise SystemExit(f"the job is in round {market.job(job_id).progress.round}: out of time")
            time.sleep(0.5)
            market.refresh()
        seconds = time.perf_counter() - began
        watch.look()
        storage.follow(market)
        at = connection.chain, market.block
        params = fetch(market, storage.blocks, job_id, home / "model", RESOURCE_LIMITS, *at)
        verify(home / "model")
        settled = [view for view in market.claims(job_id) if view.status.phase == Phase.SETTLED]
    start = watch.times("trained")[0]
    tasks = [at - start for at in watch.times("committed", Kind.TASK)]
    ends = [at - start for at in watch.times("committed", Kind.OUTER)]
    return Led(settled, params, seconds, tasks, ends, watch.spent())

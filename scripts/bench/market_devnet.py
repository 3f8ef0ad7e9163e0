"""A job through a devnet of processes: when each round was over, and where its solvers' time went.

Contract: nothing of the nodes is changed. Solvers, with the processes that compute for them, are pinned to a
core each, in their order, everybody else to the last one (the chain, the verifiers, the client, this process
and the switch between hosts), nodes that are no solvers `BEHIND`. What a solver did is what its own status
says (``node.time_spent``), looked at when its first segment was trained and when the last outer claim was
committed; processor times are the kernel's of the whole process, and of the one that computes for it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from assay.app import web
from assay.app.devnet_record import Devnet, NodeRecord, recorded
from assay.app.invocation import App, event_of
from assay.app.machine import FORMS_FOLDER
from assay.app.output import Output
from assay.app.settings import Flags
from assay.app.traffic import totals_by_node
from assay.app.units import parse_amount
from assay.devnet import market as devnet_market
from assay.devnet.market import (
    bring_up,
    default_nodes,
    fund_account,
    node_command,
    node_events,
    start_process,
    take_down,
)
from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.post import agreed, publish_and_post
from assay.job.read import JobFile
from assay.job.terms import conditions_of
from assay.protocol.types import Kind, Phase
from scripts.bench.slowed import put, slowed

LOOK_S = 0.1
BEHIND = 15
"""Niceness of who is no solver: on the shared core a solver's own threads come first."""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class Led:
    """What a market gave. Seconds are from the end of a solver's first segment."""

    roots: list[str] = field(default_factory=list)
    """Of the settled outer claims' outputs, in hex, by round."""
    ends: list[float] = field(default_factory=list)
    """When the outer claim of each round was committed."""
    tasks: list[float] = field(default_factory=list)
    """When each task was committed."""
    spent: dict[str, dict[str, float]] = field(default_factory=dict)
    """By solver, what its seconds went to."""
    processor: dict[str, float] = field(default_factory=dict)
    """By process, its processor seconds meanwhile."""
    events: dict[str, int] = field(default_factory=dict)
    """How many of each kind the solvers told."""
    bytes_moved: dict[str, int] = field(default_factory=dict)
    """Bodies of blocks that left the solvers, by purpose."""


@dataclass(frozen=True)
class Cores:
    """Which core a solver has, and which all the others share."""

    solvers: tuple[int, ...]
    rest: int

    def of(self, name: str, role: str) -> int:
        """The core of a node."""
        if role != "solver":
            return self.rest
        number = int(name.rsplit("-", 1)[1]) - 1
        return self.solvers[number % len(self.solvers)]


def cores(solvers: int) -> Cores:
    """A core for each solver and one for the rest, as far as this process has so many."""
    there = sorted(os.sched_getaffinity(0))
    return Cores(tuple(there[: max(min(solvers, len(there) - 1), 1)]), there[-1])


@contextmanager
def pinned(
    chosen: Cores, command: Callable[[App, NodeRecord], list[str]], slow: Callable[[int], None]
) -> Iterator[None]:
    """Nodes start on their cores, solvers after `slow`; this process, and what it starts otherwise, on the
    shared one."""
    kept, before = (devnet_market.start_node, devnet_market.nursery_for), os.sched_getaffinity(0)

    def start(app: App, spec: NodeRecord, _: object = None) -> int:
        pid = start_process(app, spec.name, command(app, spec))
        os.sched_setaffinity(pid, {chosen.of(spec.name, spec.role)})
        if spec.role == "solver":
            slow(pid)
        else:
            _behind(pid)
        return pid

    devnet_market.start_node = start
    devnet_market.nursery_for = lambda _: nullcontext()
    os.sched_setaffinity(0, {chosen.rest})
    try:
        yield
    finally:
        devnet_market.start_node, devnet_market.nursery_for = kept
        os.sched_setaffinity(0, before)


def _behind(pid: int) -> None:
    """A process that others come before, also where the kernel shares processors among sessions first."""
    os.setpriority(os.PRIO_PROCESS, pid, BEHIND)
    with suppress(OSError):  # no such kernel, or one that asks for more rights
        Path(f"/proc/{pid}/autogroup").write_text(str(BEHIND))


@contextmanager
def apart(home: Path, chosen: Cores, slow: Callable[[int], None] | None) -> Iterator[None]:
    """Threads of solvers that do not compute go to the shared core: those that decide, store, hash and serve,
    and are not `slow`. Where no other process computes for a solver, its first thread does. Looked at once a
    second, as they come and go."""
    stopped = threading.Event()

    def sweep() -> None:
        while not stopped.wait(1.0):
            devnet = recorded(home)
            for node in devnet.nodes if devnet is not None else ():
                if node.role == "solver":
                    place(node.pid, chosen.of(node.name, node.role), chosen.rest, slow)

    thread = threading.Thread(target=sweep, name="cores", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def place(pid: int, core: int, rest: int, slow: Callable[[int], None] | None) -> None:
    """What computes for a solver goes to its core, `slow`; its other threads to the shared one, and fast."""
    with suppress(OSError):  # a thread, or the process, may have ended
        computing = [child for child in _children(pid) if computes_for_another(child)]
        for process in computing:
            for thread in threads_of(process):
                os.sched_setaffinity(thread, {core})
                if slow is not None:
                    slow(thread)
        for thread in threads_of(pid):
            if thread != pid or computing:
                os.sched_setaffinity(thread, {rest})
                if slow is not None:
                    put(thread)


def threads_of(pid: int) -> list[int]:
    """Of a process, by their numbers. Raises OSError where it has ended."""
    return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]


def on_loopback(app: App, spec: NodeRecord) -> list[str]:
    """A node's command on this machine."""
    return [*node_command(app, spec), "--host=127.0.0.1", "--announce-url=auto"]


def processor_seconds(pid: int) -> float:
    """Of a process, its threads and its children, those that it has waited for and those that run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_A_SECOND + sum(map(processor_seconds, _children(pid)))


def computes_for_another(pid: int) -> bool:
    """Whether a process does what a solver orders (``program.apart.worker``)."""
    try:
        return b"program.apart.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False


def _children(pid: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                yield int(path.parent.name)


@dataclass(frozen=True)
class _Look:
    """What the processes have used, and what the solvers say that they did."""

    processor: dict[str, float]
    spent: dict[str, dict[str, float]]


class _Devnet:
    """The processes of one devnet, seen from outside."""

    def __init__(self, home: Path, devnet: Devnet) -> None:
        self.home, self.devnet = home, devnet
        self.solvers = [node for node in devnet.nodes if node.role == "solver"]

    def look(self) -> _Look:
        pids = {node.name: node.pid for node in self.devnet.nodes} | {"chain": self.devnet.chain_pid}
        used = {name: processor_seconds(pid) for name, pid in pids.items()}
        return _Look(used, {node.name: self._spent(node) for node in self.solvers})

    def _spent(self, node: NodeRecord) -> dict[str, float]:
        status = httpx.get(node.url.rstrip("/") + "/status", timeout=30, trust_env=False).json()
        return {
            k.removeprefix("seconds_"): v for k, v in status["counters"].items() if k.startswith("seconds_")
        }

    def events(self) -> list[dict[str, Any]]:
        """Of all solvers, by time."""
        found = []
        for node in self.solvers:
            path = node_events(self.home, node.name)
            lines = path.read_bytes().splitlines() if path.exists() else []
            found += [event for event in map(event_of, lines) if event]
        return sorted(found, key=lambda event: event["time"])

    def await_events(self, count: int, wanted: Callable[[dict[str, Any]], bool], until: float) -> list[float]:
        """Times of so many events. Raises SystemExit where they do not come."""
        while True:
            found = [event["time"] for event in self.events() if wanted(event)]
            if len(found) >= count:
                return found
            if time.time() > until:
                tail = json.dumps(self.events()[-5:])
                raise SystemExit(f"{len(found)} of {count} events in time; the solvers' last: {tail}")
            time.sleep(LOOK_S)


def _committed(kind: Kind, event: dict[str, Any]) -> bool:
    return event["event"] == "committed" and event["kind"] == kind.name


def lead(
    body: JobFile,
    home: Path,
    forms: Path,
    *,
    verifiers: int = 2,
    block_s: float = 1.0,
    limit_s: float = 3_000.0,
    command: Callable[[App, NodeRecord], list[str]] = on_loopback,
    helpers_apart: bool = False,
    to_end: bool = True,
    speed: float = 1.0,
) -> Led:
    """The job on a devnet of processes in `home`; `command`: how a node is started; `helpers_apart`: as
    `apart` says; `to_end`: until it is closed, or else while there is work for solvers: no outer claim is
    told, each round ends with its last task's commit, and time is counted until the last segment is trained;
    `speed`: what solvers' computing has of a core's time. Raises SystemExit where the job's end does not come
    in time."""
    flags = Flags(home=str(home), executor="compiled", threads="1")
    app = App(flags, Output(as_json=False, quiet=True), True, False, None)
    shards, rounds = body.training.shards, body.training.rounds
    cores_there = cores(shards)
    try:
        with ExitStack() as stack:
            slow = stack.enter_context(slowed(speed))
            stack.enter_context(pinned(cores_there, command, slow))
            if helpers_apart:
                stack.enter_context(apart(home, cores_there, slow if speed != 1 else None))
            specs = default_nodes(shards, verifiers, 0)
            devnet = _Devnet(home, bring_up(app, specs, block_s, conditions_of(body)))
            shutil.copytree(forms, home / FORMS_FOLDER, dirs_exist_ok=True)
            fund_account(app, "client", parse_amount("100000tok"))
            connection, storage = app.connect("client"), app.storage("client")
            with web.serve_blocks("client", connection, storage):
                budget, until = parse_amount(f"{rounds * 60 * shards}tok"), time.time() + limit_s
                files = build(body)
                job = agreed(app, connection, body, files, drafted(body, files), budget)
                job_id = publish_and_post(connection, storage, job)
                began = devnet.await_events(1, lambda event: event["event"] == "trained", until)[0]
                first = devnet.look()
                kind, each = (Kind.OUTER, 1) if to_end else (Kind.TASK, shards)
                if not to_end:
                    segments = rounds * shards * connection.market.job(job_id).terms.segments
                    devnet.await_events(segments, lambda event: event["event"] == "trained", until)
                at_work = None if to_end else devnet.look()
                ends = devnet.await_events(rounds * each, partial(_committed, kind), until)[each - 1 :: each]
                last = at_work or devnet.look()
                tasks = devnet.await_events(rounds * shards, partial(_committed, Kind.TASK), until)
                while to_end and not connection.market.job(job_id).progress.closed:
                    if time.time() > until:
                        raise SystemExit("the job did not close in time")
                    time.sleep(0.5)
                    connection.market.refresh()
                outer = {
                    view.claim.round: view.claim.output_root.hex()
                    for view in connection.market.claims(job_id)
                    if to_end and view.claim.kind == Kind.OUTER and view.status.phase == Phase.SETTLED
                }
        return _led(devnet, began, (ends, tasks), outer, (first, last), traffic_of(home))
    finally:
        take_down(home)
        app.close()


def traffic_of(home: Path) -> dict[str, int]:
    """Bytes that left the solvers."""
    sums: dict[str, int] = {}
    for name, totals in totals_by_node(home).items():
        for purpose, count in totals.items() if name.startswith("solver") else ():
            sums[purpose] = sums.get(purpose, 0) + count
    return sums


def _led(
    devnet: _Devnet,
    began: float,
    times: tuple[list[float], list[float]],
    outer: dict[int, str],
    looks: tuple[_Look, _Look],
    moved: dict[str, int],
) -> Led:
    first, last = looks
    counted: dict[str, int] = {}
    for event in devnet.events():
        counted[event["event"]] = counted.get(event["event"], 0) + 1
    return Led(
        [outer[round_] for round_ in sorted(outer)],
        *([time_ - began for time_ in found] for found in times),
        {
            name: {what: s - first.spent[name].get(what, 0.0) for what, s in spent.items()}
            for name, spent in last.spent.items()
        },
        {name: used - first.processor[name] for name, used in last.processor.items()},
        counted,
        moved,
    )

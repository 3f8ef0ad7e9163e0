"""Runs a role as a process: HTTP server, peers, signals, event log.

Contract: a node announces where it serves its blocks, follows the other nodes' announcements, and stops on
SIGTERM and SIGINT, within ten seconds (`end_when_told`). Nothing else from outside ends it, neither the
chain's node nor a full disk. Its pending transactions are in its journal; a restart resumes them.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from assay.app.crew_activity import long_waits
from assay.app.invocation import EVENTS_FILE, App, event_of
from assay.app.network_addresses import Reaches, reach_of
from assay.app.output import plain, visible
from assay.app.web import WebServer, node_app
from assay.app.wiring import Connection, NodeStorage
from assay.app.worker_status import shown
from assay.blocks.blockstore import BlockStore
from assay.blocks.traffic import PROOF, TRAINING, Traffic
from assay.chain.eth.clock import ChainClock
from assay.cli.node.alarms import BLIND_S, CLOCKS_FILE, Tell, Watch
from assay.cli.node.duplicate_node import Taken
from assay.compute.inline import InlinePool
from assay.compute.pool import Pool
from assay.node.deadlines import LATE
from assay.node.report import LOOK, Status
from assay.node.retention import Retention
from assay.node.role import Node
from assay.node.roles import NODE_ROLES
from assay.protocol.errors import AssayError, Retry

_LOG = logging.getLogger(__name__)
PEERS_EVERY_S = 2.0
LAST_BYTES = 1 << 20
"""Number of bytes read from the end of an earlier process's events."""
ENDS_S = 8.0
"""Seconds after which a stopping node is killed, whatever it waits for: an unreachable chain, a pending
transaction, a device."""
WAS_KILLED = (
    "the process before this one ended without a word: it was killed, as for want of memory, or the machine"
    " lost power; it goes on where that one was"
)
MOST_PAUSE_S = 16.0
"""Maximum pause in seconds between tries to reach the chain at the start."""
SENDING = 16
"""Maximum number of concurrent sends: more than a node has at once, so that a move never waits behind calls
whose gas has become too expensive."""
"""Purpose of a role's fetches, if it is not training."""


class EventLog:
    """A node's events: JSON lines in a file, and on standard error JSON for log collectors or text at a
    terminal.

    Events that cannot be written are counted in `lost`: they are no reason to stop.
    """

    def __init__(self, path: Path, echo: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.lost = 0
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._whole = True
        self._echo, self._terminal = echo, sys.stderr.isatty()
        self._lock = threading.Lock()

    def __call__(self, event: dict[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **plain(event)}) + "\n"
        with self._lock:
            self._keep(line.encode())
            if self._echo:
                with suppress(OSError, ValueError):
                    sys.stderr.write(in_words(event) if self._terminal else line)

    def _keep(self, line: bytes) -> None:
        """Writes a line; a partially written one is terminated before the next."""
        data = line if self._whole else b"\n" + line
        try:
            written = os.write(self._file, data)
        except OSError:
            written = 0
        if written:
            self._whole = written == len(data)
        self.lost += written < len(data)


def killed_at(path: Path) -> float | None:
    """Time of the last event of the previous process, if it did not stop regularly."""
    try:
        with path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LAST_BYTES, 0))
            lines = file.read().splitlines()
    except OSError:
        return None
    events = [event for event in map(event_of, lines) if event]
    lives = [event["event"] for event in events if event.get("event") in ("started", "stopping")]
    return float(events[-1].get("time", 0.0)) if lives and lives[-1] == "started" else None


def in_words(event: Mapping[str, Any]) -> str:
    """Formats an event: ``20:08:15 committed  round=0 shard=1``."""
    rest = {k: v for k, v in plain(event).items() if k not in ("event", "role", "address")}
    told = visible(" ".join(f"{name}={value}" for name, value in rest.items())).replace("\n", " ")
    return f"{time.strftime('%H:%M:%S')} {event.get('event', '')}  {told}\n"


class Logged(logging.Handler):
    """Log handler that turns log records into events."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(logging.WARNING)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        level, text = record.levelname.lower(), record.getMessage()
        self._emit({"event": "log", "level": level, "logger": record.name, "text": text})


@dataclass(frozen=True)
class NodeParts:
    """Constructor arguments of a role."""

    connection: Connection
    storage: NodeStorage
    clock: ChainClock
    emit: EventLog
    home: Path


def end_when_told(stop: Callable[[], None], ends_s: float = ENDS_S) -> None:
    """Calls `stop` at SIGTERM and SIGINT, and kills this process if it has not ended `ends_s` later.

    A node's files survive that at any moment, as they do a power failure.
    """
    told = SimpleQueue[int]()  # which a handler may use that interrupts another one

    def tell(number: int, frame: object) -> None:
        told.put(number)
        stop()

    def end() -> None:
        told.get()
        time.sleep(ends_s)
        os._exit(0)

    threading.Thread(target=end, name="ending", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, tell)


def run_node(
    app: App,
    port: int,
    make: Callable[[NodeParts], Node],
    *,
    tell: Sequence[Tell] = (),
    serve: bool = True,
    take_over: bool = False,
    offer: Callable[[], Mapping[str, Any]] = dict,
    connect: Callable[[], Connection] | None = None,
) -> None:
    """Runs one role until stopped; `tell`: alert channels. Unless it `serves`, nobody gets its blocks.

    `offer`: more fields of the status; `connect`: opens the account, if it is not the chosen one's own.
    Raises DuplicateNode, unless told to `take_over`.
    """
    name = app.settings.account
    home, reach = app.node_home(name), reach_of(app.settings, port)
    connection, storage = connected(app, tell, connect=connect), app.storage(name)
    end_when_told(connection.clock.stop)
    killed = killed_at(home / EVENTS_FILE)
    emit = EventLog(home / EVENTS_FILE, echo=not app.output.quiet)
    logging.getLogger().addHandler(Logged(emit))
    deleting = ThreadPoolExecutor(1, thread_name_prefix="deleting")
    sending = ThreadPoolExecutor(SENDING, thread_name_prefix="sending")
    service = make(NodeParts(connection, storage, connection.clock, emit, home))
    service.actions.sender = sending
    retention = Retention(connection.market, storage.store, service.unclaimed, executor=deleting)
    service.retention = retention
    served = storage.store if serve else BlockStore(home / "served")
    storage.traffic.purpose = PROOF if NODE_ROLES[service.status.role].fetches_proof else TRAINING
    role = service.status.role
    taken = Taken(connection.writer)
    watch = Watch(
        connection.market,
        connection.clock.now,
        name,
        role,
        emit,
        tell,
        kept=home / CLOCKS_FILE.format(role),
        status=lambda: service.status,
        unheard=connection.market.unheard,
        duties=service.duties,
    )
    connection.writer.sender.told = watch.raise_alarm
    began_s = time.monotonic()

    def status() -> Status:
        said = _status(service, connection, emit, storage.traffic, watch)
        return replace(said, up_s=int(time.monotonic() - began_s), **offer())

    reaches = Reaches(connection.market.announced, storage.exchange.answers)
    face = node_app(served, status, role, storage.traffic, reaches, reach.names)
    server = WebServer(face, reach.host, reach.port)
    url = server.start()
    announced = reach.announced(url)
    service.loop.housekeeping = Housekeeping(connection, storage, announced, watch, taken)
    try:
        if not begun(partial(taken.begin, take_over), service, watch):
            return
        with suppress(Retry):  # it is announced once the chain answers
            service.loop.housekeeping()
        if killed is not None:
            emit({"event": "was-killed", "name": name, "last": killed, "why": WAS_KILLED})
        where = {"name": name, "url": url, "announced": announced}
        emit({"event": "started", "role": service.status.role, **where})
        service.run()
        emit({"event": "stopping", "role": service.status.role, "name": name})
    finally:
        server.stop()
        service.pool.close()
        retention.stop()
        sending.shutdown(wait=False, cancel_futures=True)  # what was not begun is decided anew
        deleting.shutdown(wait=True, cancel_futures=True)  # the store is closed after it
        watch.close()
        storage.close()


def connected(
    app: App,
    tell: Sequence[Tell] = (),
    sleep: Callable[[float], None] = time.sleep,
    connect: Callable[[], Connection] | None = None,
) -> Connection:
    """Connects the account once the chain answers, without sending anything. Raises an alarm if that takes
    long."""
    pause_s, waited_s = 1.0, 0.0
    while True:
        try:
            return (connect or app.connect)()
        except Retry as error:
            again = f"the node starts once the chain answers: {error.message}; {error.hint}"
            app.output.say(f"{again} (tried again in {pause_s:g} s)")
        if waited_s < BLIND_S <= waited_s + pause_s:
            name = app.settings.account
            for each in tell:
                each({"node": name, "role": "", "owes": "", "share": LATE, "text": f"{name}: {again}"})
        sleep(pause_s)
        pause_s, waited_s = min(2 * pause_s, MOST_PAUSE_S), waited_s + pause_s


def begun(begin: Callable[[], None], service: Node, watch: Watch) -> bool:
    """Starts once the market can be read; until then shows the error and raises alarms. False if told to stop
    meanwhile."""
    while True:
        try:
            begin()
            service.report.mended(LOOK)
            return True
        except Retry as error:
            service.report.broken(LOOK, error)
        with suppress(Retry):
            watch()
        if not service.clock.wait(PEERS_EVERY_S):
            return False


def _status(service: Node, connection: Connection, emit: EventLog, traffic: Traffic, watch: Watch) -> Status:
    """Status of the service, its workers, chain endpoints, event file and traffic."""
    status = service.status
    health = {f"rpc_{name}": count for name, count in connection.rpc.counters.items()}
    unsaid = {"events_lost": emit.lost, "unsaid": service.loop.unsaid}
    bytes_ = {f"bytes_{name}": count for name, count in traffic.totals().items()}
    unsaid = {name: n for name, n in unsaid.items() if n}
    counters = {
        **status.counters,
        **computing(service.pool),
        **health,
        **bytes_,
        **watch.counters(),
        **unsaid,
    }
    workers = shown(service.pool.status())
    return replace(
        status,
        counters=counters,
        endpoints=connection.rpc.troubles() | connection.writer.sender.troubles(),
        alarms=watch.standing,
        lost=watch.lost,
        sleep=watch.sleep,
        at_risk=status.at_risk or watch.at_risk,
        workers=workers,
        waiting=long_waits(workers),
    )


def computing(pool: Pool | InlinePool) -> dict[str, int]:
    """Seconds that workers have been busy and their share of all, for status and metrics."""
    busy_s, all_s = pool.busy_s()
    return {"seconds_computing": round(busy_s), "computing_percent": round(100 * busy_s / max(all_s, 1e-9))}


class Housekeeping:
    """Periodic work between polls: announces the URL, cares for transactions, follows peers.

    Calls within `PEERS_EVERY_S` of the last do nothing.
    """

    def __init__(
        self, connection: Connection, storage: NodeStorage, url: str, watch: Watch, taken: Taken
    ) -> None:
        self._connection, self._storage, self._url, self._watch = connection, storage, url, watch
        self._taken = taken
        self._last = -PEERS_EVERY_S
        self._announcement = ""
        """Intent of the announcement; once signed, `resume` takes care of it."""
        self._announced = False

    def __call__(self) -> None:
        """Runs each part, also after another failed. Raises the first part's error; others are logged."""
        if time.monotonic() - self._last < PEERS_EVERY_S:
            return
        self._last = time.monotonic()
        errors: list[Exception] = []
        resume, save = self._connection.writer.sender.resume, self._storage.traffic.save
        for part in (self._watch, save, resume, self._announce, self._check_duplicate_node, self._follow):
            try:
                part()
            except Exception as error:  # noqa: BLE001 - a bug in one part must not keep the others waiting
                errors.append(error)
        for other in errors[1:]:
            if not isinstance(other, AssayError):
                _LOG.error("a part of the housekeeping failed", exc_info=other)
        if errors:
            raise errors[0]

    def _announce(self) -> None:
        """Announces this node's URL unless the chain has it."""
        market = self._connection.writer
        if not self._announced and market.endpoints().get(market.speaker, "") != self._url:
            self._announcement = self._announcement or self._connection.intent("endpoint", self._url)
            market.set_endpoint(self._announcement, self._url)
        self._announced = True

    def _check_duplicate_node(self) -> None:
        """Raises an alarm if another node has announced itself for this account."""
        if self._announced and (where := self._taken.elsewhere()):
            self._watch.raise_alarm("account-elsewhere", f"{where.message}; {where.hint}")

    def _follow(self) -> None:
        self._storage.follow(self._connection.market)

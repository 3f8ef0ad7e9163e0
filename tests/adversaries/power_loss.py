"""Cuts the power of a sending node after each of its writes, and checks what it does when it starts again.

A node that sends transactions runs in its own process, under a recorder of system calls (recorder.c); the
chain notes what it received. For each point of the record, the node's folder is put into a state that a loss
of power could have left, and a node starts on it and sends the same intents again. It must send each exactly
once in all, and find its journal sound.

What a loss of power leaves, by mode: `strict`: only what was synced, and only names whose folder was synced;
`some`: as `strict`, plus a random part of the other writes and names, with one write torn in the middle;
`late`: everything that was written, as after a kill.

Contract: the same seed gives the same cuts. Not guaranteed: anything for disks that lie about syncs
(flipped_bits.py loses such writes).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from eth_account import Account

from assay.chain.eth.journal import Call, Journal
from assay.chain.eth.rpc import RpcFailed
from assay.chain.eth.sender import FeePolicy, Sender
from tests.unit.chain.eth.fake_node import FakeNode

HERE = Path(__file__).resolve()
ACCOUNT = Account.from_key(b"\x01" * 32)
TARGET = "0x" + "11" * 20
INTENTS = ("commit", "vote", "settle", "open")
BATCH = ("tally", "poke")
HANDED = "handed to the chain"
"""The file whose writes are no node's, but what the chain was handed."""
MODES = ("strict", "some", "late")


# -- the node


class Notary(FakeNode):
    """A chain that notes what it was handed, before it answers."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def eth_sendRawTransaction(self, raw: str) -> str:
        os.write(self._notes, raw.encode() + b"\n")
        return super().eth_sendRawTransaction(raw)


def sender(node: FakeNode, folder: Path) -> Sender:
    """A node's sender, with a clock that no test waits for."""
    ticks = iter(range(1_000_000))
    policy = FeePolicy(poll_s=1.0, final_blocks=2)
    journal = Journal(folder / "journal.db")
    return Sender(
        node, ACCOUNT, journal, policy=policy, clock=lambda: float(next(ticks)), sleep=lambda _: None
    )


def work(node: FakeNode, folder: Path) -> None:
    """All that the node means to do, from where it was left."""
    one = sender(node, folder)
    try:
        one.resume()
        for number, key in enumerate(INTENTS):
            one.send(key, Call(TARGET, key.encode(), f"to {key}", number))
            if number == 1:  # a restart, which tidies the journal up
                one.journal.close()
                one = sender(node, folder)
        one.send_batch("batch", BATCH, Call(TARGET, b"batch", "two at once"))
    finally:
        one.journal.close()


def record(folder: Path) -> list[Entry]:
    """The node's writes to its folder, in order."""
    library, written = folder / "recorder.so", folder / "record"
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE.with_name("recorder.c"))]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    (folder / "node").mkdir()
    settings = {"RECORDED": str(folder / "node"), "RECORD": str(written), "LD_PRELOAD": str(library)}
    paths = os.pathsep.join([str(HERE.parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **settings, "PYTHONPATH": paths}
    subprocess.run([sys.executable, str(HERE), str(folder / "node")], check=True, env=environment)
    return list(entries(written.read_bytes(), str(folder / "node")))


# -- the record


@dataclass(frozen=True)
class Entry:
    """One call: `name` relative to the folder; what `at` and `data` are, recorder.c says."""

    what: str
    name: str
    at: int
    data: bytes


def entries(record: bytes, root: str) -> Iterator[Entry]:
    """The recorded calls, in order."""
    start = 0
    while start < len(record):
        end = record.index(b"\n", start)
        what, rest = record[start:end].decode().split(" ", 1)
        path, at, size = rest.rsplit(" ", 2)
        start = end + 1 + int(size)
        data = record[end + 1 : start]
        if what == "rename":
            data = os.path.relpath(data.decode(), root).encode()
        yield Entry(what, os.path.relpath(path, root), int(at), data)


@dataclass
class Inode:
    """A file's content: as it is synced, and what was done to it since."""

    synced: bytes = b""
    since: list[Entry] = field(default_factory=list)

    def content(self, entries: Sequence[Entry]) -> bytes:
        data = bytearray(self.synced)
        for entry in entries:
            if entry.what == "truncate":
                data = data[: entry.at].ljust(entry.at, b"\0")
            else:
                data = data.ljust(entry.at, b"\0")
                data[entry.at : entry.at + len(entry.data)] = entry.data
        return bytes(data)


Names = dict[str, Inode]


def left_after(record: Sequence[Entry], mode: str, rng: random.Random) -> dict[str, bytes]:
    """The folder's files, if the power is cut after these calls."""
    now: Names = {}
    durable: Names = {}
    names: list[Entry] = []
    made: dict[int, Inode] = {}
    for entry in record:
        if entry.name == HANDED:
            continue
        if entry.what in ("write", "truncate"):
            now[entry.name].since.append(entry)
        elif entry.what == "sync":
            inode = now[entry.name]
            inode.synced, inode.since = inode.content(inode.since), []
        elif entry.what == "syncdir":
            for done in names:
                _rename(durable, done, made[id(done)])
            names = []
        else:
            made[id(entry)] = now[entry.name] if entry.what != "create" else Inode()
            _rename(now, entry, made[id(entry)])
            names.append(entry)
    if mode == "late":
        return {name: inode.content(inode.since) for name, inode in now.items()}
    if mode == "some":
        for done in names[: rng.randint(0, len(names))]:
            _rename(durable, done, made[id(done)])
    return {name: inode.content(_kept(inode.since, mode, rng)) for name, inode in durable.items()}


def _rename(names: Names, entry: Entry, inode: Inode) -> None:
    names.pop(entry.name, None)
    if entry.what != "unlink":
        names[entry.data.decode() if entry.what == "rename" else entry.name] = inode


def _kept(since: Sequence[Entry], mode: str, rng: random.Random) -> list[Entry]:
    if mode == "strict":
        return []
    kept = [entry for entry in since if rng.random() < 0.5]
    if kept and rng.random() < 0.5:
        torn = rng.randrange(len(kept))
        entry = kept[torn]
        kept[torn] = Entry(entry.what, entry.name, entry.at, entry.data[: rng.randint(0, len(entry.data))])
    return kept


# -- what must hold


def faults_of(record: Sequence[Entry], mode: str, rng: random.Random, folder: Path) -> list[str]:
    """Faults of a node that starts again after these calls; empty if there are none."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in left_after(record, mode, rng).items():
        if not name.endswith("-shm"):  # memory that processes share; SQLite creates it again
            (folder / name).write_bytes(data)
    node = FakeNode()
    handed = b"".join(e.data for e in record if e.name == HANDED and e.what == "write").decode().split()
    for raw in handed:
        try:
            node.eth_sendRawTransaction(raw)
        except RpcFailed as failure:
            assert "already known" in failure.text or "nonce too low" in failure.text, failure.text
    before = len(node.mined())
    work(node, folder)
    sent = Counter(tx.data for tx in node.mined())
    wanted = Counter([*(key.encode() for key in INTENTS), b"batch"])
    if sent != wanted:
        return [f"{before} were handed over before the cut; mined in the end: {dict(sent)}"]
    return []


def cuts(record: Sequence[Entry], mode: str, step: int, seed: int, folder: Path) -> Iterator[tuple[int, str]]:
    """(point, fault) of every `step`-th cut of the record."""
    for point in range(0, len(record) + 1, step):
        rng = random.Random(f"{seed}/{point}")
        try:
            faults = faults_of(record[:point], mode, rng, folder)
        except Exception as error:  # noqa: BLE001 - whatever a node that starts again raises is a fault
            faults = [f"{type(error).__name__}: {error}"]
        yield from ((point, fault) for fault in faults or [""])


if __name__ == "__main__":  # the node whose calls are recorded
    work(Notary(Path(sys.argv[1]) / HANDED), Path(sys.argv[1]))

"""Kinds of files that a node keeps on disk, each as a subject of damage: how it is written and read.

Contract: `write` makes the files of a kind as a node does, and keeps each of their intermediate states;
`read` reads them as a starting node does and returns everything found. `lost` says whether the result of a
read after damage is true except for what the node recovers by itself: segments are trained again, ballots
replayed, events read from the chain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eth_account import Account

from assay.app import devnet_record
from assay.app.invocation import event_of
from assay.blocks.blockstore import BlockStore
from assay.blocks.traffic import Traffic
from assay.chain.contracts import deploy
from assay.chain.eth.abi import topic
from assay.chain.eth.events import EventFollower
from assay.chain.eth.journal import Attempt, Call, Journal, Receipt
from assay.chain.eth.keystore import Keystore
from assay.cli.node import fitness
from assay.protocol.errors import Retry
from tests.adversaries.role_records import (
    Snap,
    chosen_again,
    fewer,
    read_audited,
    read_ballots,
    read_convictions,
    read_demands,
    read_drained,
    read_left_class,
    read_progress,
    read_released,
    read_replays,
    told_again,
    write_audited,
    write_ballots,
    write_convictions,
    write_demands,
    write_drained,
    write_left_class,
    write_progress,
    write_released,
    write_replays,
)
from tests.unit.chain.eth.fake_node import FakeNode

_ASIDE: dict[str, Path] = {}
"""Undamaged files that a kind needs."""
SENDER = Account.from_key(b"\x01" * 32).address
CONTRACT = "0x" + "Aa" * 20
EVENT = {
    "type": "event",
    "name": "Moved",
    "inputs": [{"name": "game", "type": "uint256", "indexed": True}],
}


@dataclass(frozen=True)
class Subject:
    """One kind of record."""

    name: str
    write: Callable[[Path, Snap], None]
    read: Callable[[Path], Any]
    lost: Callable[[Any, Any], bool] = lambda truth, found: False
    """Whether `found` is true, except for what a node recovers by itself."""


# -- the chain


def write_journal(folder: Path, snap: Snap) -> None:
    """The journal of a killed node: its latest changes are in the log next to the file."""
    journal = Journal(folder / "journal.db")
    journal.remember("chain", "31337:0xabc")
    for i in range(8):
        journal.record(f"commit/{i}", SENDER, Call(CONTRACT, b"call" * 40, "commit a claim", i))
        snap()
        attempt = Attempt(f"0x{i:064x}", b"raw" * 60, 90_000 + i, 10**9 + i, 10**8)
        journal.sign(f"commit/{i}", 5, lambda nonce, made=attempt: made)  # type: ignore[misc]
        snap()
        if i % 3:
            journal.settle(
                f"commit/{i}",
                Receipt(f"commit/{i}", attempt.hash, 70 + i, "0xb", 50_000, 10**9, i % 2 == 0, None, []),
            )
            snap()
    journal.record("batch", SENDER, Call(CONTRACT, b"many", "a batch"), ["commit/0", "vote/1"])
    _KEPT_OPEN.append(journal)


_KEPT_OPEN: list[Journal] = []
"""Closing a journal would tidy it up."""


def read_journal(folder: Path) -> Any:
    journal = Journal(folder / "journal.db")
    try:
        entries = [journal.get(f"commit/{i}") for i in range(8)]
        rest = journal.get("batch"), journal.members("batch"), journal.remember("chain", "another")
        return entries, rest, journal.open_intents(SENDER), journal.committed_wei(SENDER)
    finally:
        journal.close()


def _node() -> FakeNode:
    node = FakeNode()
    for i in range(12):
        words = ["0x" + topic(EVENT).hex(), "0x" + i.to_bytes(32, "big").hex()]
        node.mine([{"address": CONTRACT.lower(), "topics": words, "data": "0x"}] * 2)
    return node


_NODE = _node()


def _follow(folder: Path) -> EventFollower:
    return EventFollower(_NODE, {"Court": (CONTRACT, [EVENT])}, folder / "events.db", range_blocks=5)


def write_events(folder: Path, snap: Snap) -> None:
    follower = _follow(folder)
    _NODE.lag = 6
    follower.poll()
    snap()
    _NODE.lag = 0
    follower.poll()
    _FOLLOWING.append(follower)


_FOLLOWING: list[EventFollower] = []


def read_events(folder: Path) -> Any:
    follower = _follow(folder)
    try:
        before = list(follower.history())
        changes = follower.poll()
        told = [c for c in changes if c in before]
        return told, list(follower.history()), follower.cursor
    finally:
        follower.close()


# -- the installation


def write_devnet(folder: Path, snap: Snap) -> None:
    node = devnet_record.NodeRecord("solver-1", "solver", 0, "http://127.0.0.1:4001", ("--port", "4001"))
    devnet = devnet_record.Devnet("http://127.0.0.1:8545", 0, (node, node), 1.5, 1_700_000_000)
    devnet_record.write_devnet(folder, devnet)


def write_deployment(folder: Path, snap: Snap) -> None:
    names = ("Tasks", "Vault", "Court")
    addresses = dict.fromkeys(names, "0x5FbDB2315678afecb367f032d93F642f64180aa3")
    hashes = dict.fromkeys(names, "0x" + "ab" * 32)
    made = deploy.Deployment("31337:0x" + "cd" * 32, 1_234_567, "ef" * 32, addresses, hashes)
    made.save(folder / "deployment.json")


def read_deployment(folder: Path) -> deploy.Deployment:
    return deploy.parse(folder / "deployment.json")


def write_fitness(folder: Path, snap: Snap) -> None:
    fitness.keep(folder, "cpu", fitness.Result(False))


def read_fitness(folder: Path) -> bool | None:
    found = fitness.found(folder, "cpu")
    return None if found is None else found.fit


def _app(folder: Path) -> Any:
    return SimpleNamespace(node_home=lambda name: folder, settings=SimpleNamespace(account="ann"))


def write_key(folder: Path, snap: Snap) -> None:
    Keystore(folder).import_key("alice", bytes(range(1, 33)), "words", scrypt_n=2)


def read_key(folder: Path) -> tuple[str, bytes]:
    stored = Keystore(folder).find("alice")
    account = Keystore(folder).unlock("alice", "words")
    return stored.address, bytes(account.key)


_FILE = bytes(i * i % 251 for i in range(300_000))


def write_blocks(folder: Path, snap: Snap) -> None:
    store = BlockStore(folder)
    cid = store.add_file(_FILE)
    store.pin(cid)
    _ASIDE["cid"] = Path(cid)


def read_blocks(folder: Path) -> bytes:
    store = BlockStore(folder)
    cid = str(_ASIDE["cid"])
    try:
        return store.read_file(cid, len(_FILE))
    except Retry:  # as a node does: what is missing is computed or fetched, and stored again
        assert store.add_file(_FILE) == cid
        return store.read_file(cid, len(_FILE))


def write_traffic(folder: Path, snap: Snap) -> None:
    for i in range(3):
        traffic = Traffic(folder / "traffic.json")
        traffic.count("in", "training", 1000 + i)
        traffic.count("out", "proof", 7)
        traffic.save()
        snap()


def read_totals_of(folder: Path) -> dict[str, int]:
    return Traffic(folder / "traffic.json").totals()


def _counted_anew(truth: Any, found: Any) -> bool:
    """Counted from zero or from an earlier state: people read it, and nothing depends on it."""
    return all(found[name] <= count for name, count in truth.items())


def write_log(folder: Path, snap: Snap) -> None:
    with (folder / "events.jsonl").open("w") as file:
        for i in range(9):
            file.write(f'{{"time": {i}.5, "event": "trained", "segment": {i}, "loss": 1.25}}\n')


def read_log(folder: Path) -> None:
    """For people only: no line may stop its reader."""
    for line in (folder / "events.jsonl").read_bytes().splitlines():
        event_of(line)


SUBJECTS = (
    Subject("progress", write_progress, read_progress, fewer),
    Subject("ballots", write_ballots, read_ballots, fewer),
    Subject("demands", write_demands, read_demands, chosen_again),
    Subject("audited", write_audited, read_audited, fewer),
    Subject("convictions", write_convictions, read_convictions, told_again),
    Subject("released shards", write_released, read_released, fewer),
    Subject("left class", write_left_class, read_left_class, fewer),
    Subject("drained", write_drained, read_drained),
    Subject("replays", write_replays, read_replays, fewer),
    Subject("journal", write_journal, read_journal),
    Subject("events", write_events, read_events, lambda truth, found: found[1:] == truth[1:]),
    Subject("devnet", write_devnet, devnet_record.recorded),
    Subject("deployment", write_deployment, read_deployment),
    Subject("fitness", write_fitness, read_fitness),
    Subject("keystore", write_key, read_key),
    Subject("blocks", write_blocks, read_blocks),
    Subject("traffic", write_traffic, read_totals_of, _counted_anew),
    Subject("log of events", write_log, read_log),
)

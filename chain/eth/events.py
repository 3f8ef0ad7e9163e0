"""Follows the contracts' events through restarts, reorganisations and unreliable nodes.

Contract: `poll` returns the changes since the last poll in chain order: new events and, before them, one
`RolledBack` with the events to forget if blocks were replaced. Every change is on disk before it is returned,
so after a restart `history` is complete and nothing is read twice. A node that lags, stalls or loses its head
changes nothing; only a different block at a height that was read does.

The file holds only what the chain tells: a damaged one, or one of other contracts, is read anew. One follower
owns the file; another one (a command beside a running node) works on a copy in memory.

Several nodes may be behind one address, on other forks or some blocks apart. So the newest blocks are read
one by one, by hash (decision 0070), and a range's logs must lie between the last block read and the range's
end; both are compared again after reading. Independent requests are sent concurrently (decision 0072). Not
guaranteed: that the node shows all logs; compare with a second node or the contracts' state.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from assay.chain.eth.abi import Abi, MalformedData, checksummed, decode_log, topic
from assay.chain.eth.endpoints import EndpointsDisagree
from assay.chain.eth.event_file import own_or_copy
from assay.chain.eth.journal import WrongChain
from assay.chain.eth.log_source import LogSource
from assay.chain.eth.rpc import Rpc, RpcFailed, identity
from assay.disk.database import DamagedDatabase
from assay.protocol import bounded_json
from assay.protocol.errors import RpcUnreachable

_LOG = logging.getLogger(__name__)

MOST_AT_ONCE = 10_000
"""Number of events after which a poll reads no further range: about 40 MB, decoded."""
NEWEST = 128
"""Number of newest blocks that are read one by one: how far one node behind an address may lag behind another
without hiding anything."""
AT_ONCE = 6
"""Maximum concurrent requests of a poll."""


@dataclass(frozen=True)
class Event:
    """A decoded log."""

    name: str
    contract: str
    arguments: dict[str, Any]
    block_number: int
    block_hash: str
    log_index: int
    tx_hash: str


@dataclass(frozen=True)
class RolledBack:
    """`events`, all later than `block_number`, never happened: their blocks were replaced (latest first)."""

    block_number: int
    events: tuple[Event, ...]


class EventFollower:
    """A cursor over the events of named contracts, stored in one SQLite file."""

    def __init__(
        self,
        rpc: Rpc,
        contracts: Mapping[str, tuple[str, Abi]],
        path: Path,
        *,
        first_block: int = 0,
        range_blocks: int = 2_000,
        confirmations: int = 0,
        at_once: int = 1,
    ) -> None:
        """`contracts`: name -> (address, ABI). `confirmations`: blocks to stay behind the head. `at_once`:
        maximum concurrent requests; for more than one, `rpc` must be thread-safe."""
        self.first_block = first_block
        self.rewinds: list[int] = []
        """For each rollback, the last block that stayed."""
        self._range_blocks = range_blocks
        self._confirmations = confirmations
        self._untold: list[Event | RolledBack] = []
        self.more = False
        """True if the last poll left events to read, so as not to hold a whole chain in memory."""
        self._read_up_to: str | None = None
        """Hash of the latest block at the last complete poll."""
        self._names = {checksummed(address): name for name, (address, _) in contracts.items()}
        self._events = {
            (checksummed(address), topic(entry)): entry
            for address, abi in contracts.values()
            for entry in abi
            if entry.get("type") == "event"
        }
        self._source = LogSource(rpc, list(self._names), at_once)
        self._lock, self._db = own_or_copy(path)
        self._bind(path, identity(rpc))

    def close(self) -> None:
        """Closes the file and sends no further requests."""
        self._source.close()
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def cursor(self) -> int:
        """The last block read; `first_block` - 1 before the first."""
        return self._last_block()[0]

    @property
    def cursor_hash(self) -> str | None:
        """Hash of the last block read; None before the first."""
        return self._last_block()[1]

    def poll(self) -> list[Event | RolledBack]:
        """Reads up to the head, or until about `MOST_AT_ONCE` events were read and there is `more`.

        Raises RpcUnreachable; what was read before it is returned by the next poll.
        """
        self.more = False
        self._source.drop()
        latest = self._source.latest()
        if latest["hash"] == self._read_up_to and not self._untold:
            return []
        head = int(latest["number"], 16) - self._confirmations
        if not self._follow(latest):
            self._catch_up(head)
        self._read_up_to = latest["hash"] if self.cursor >= head else None
        changes, self._untold = self._untold, []
        return changes

    def _follow(self, latest: Mapping[str, Any]) -> bool:
        """Reads the latest block if it directly follows the last one: then its hash names its logs, and its
        parent's hash shows that nothing else has changed. False: nothing was read."""
        number, known = self._last_block()
        follows = latest.get("parentHash") == known and int(latest["number"], 16) == number + 1
        if self._confirmations or known is None or not follows:
            return False
        try:
            read = self._read_named(number + 1, latest)
        except RpcFailed:  # gone again, or a node that does not take hashes
            return False
        self._untold.extend(read or [])
        return read is not None

    def _catch_up(self, head: int) -> None:
        """Rolls back replaced blocks and reads on to `head`, range by range."""
        size = self._range_blocks
        newest: dict[int, dict[str, Any] | None] = {}
        number, known = self._last_block()
        if known is not None and number < head:
            self._source.begin_blocks([number, *self._ends(number + 1, size, head)])
        rolled_back = self._roll_back(head)
        if rolled_back is not None:
            self._untold.append(rolled_back)
        while (start := self.cursor + 1) <= head:
            if len(self._untold) >= MOST_AT_ONCE:
                self.more = True
                break
            end, *one_by_one = self._ends(start, size, head)
            if not newest and one_by_one:
                self._source.begin_blocks([end, *one_by_one])
                newest = {each: self._source.block(each) for each in one_by_one}
                self._source.begin_logs(block for block in newest.values() if block is not None)
            try:
                if start == end:  # by its hash, so that its header can prove what endpoints deny
                    block = newest[start] if start in newest else self._source.block(start)
                    read = self._read_new(start, block)
                else:
                    read = self._read(start, end)
            except EndpointsDisagree:
                if size == 1:
                    raise
                size = max(size // 2, 1)
                continue
            except RpcFailed as failure:
                if size == 1 or failure.lacks_block:
                    raise RpcUnreachable(
                        f"the node refused the logs of blocks {start} to {end}: {failure.text}",
                        hint=failure.hint if failure.lacks_block else "use a node that keeps logs",
                    ) from failure
                size = max(size // 2, 1)
                continue
            if read is None:  # the chain changed while it was read: the next poll sees it
                break
            self._untold.extend(read)

    def _ends(self, start: int, size: int, head: int) -> list[int]:
        """Ends of the ranges to read: that of this range and, with the last one, each of the newest
        blocks."""
        old = head + self._confirmations - NEWEST
        end = min(start + size - 1, head, max(start, old))
        return [end, *range(max(start, old + 1), head + 1)] if end >= old else [end]

    def history(
        self, heeded: Callable[[str, str], bool] = lambda contract, name: True, after: int = -1
    ) -> Iterator[Event]:
        """Events of the blocks after `after`, in chain order, whose contract and name `heeded` accepts.

        Others need not be decoded. Exhaust it before the next `poll`.
        """
        heeds = cache(heeded)
        for _, _, row in self._rows_after(after):
            log = bounded_json.loads(row)
            if heeds(self._contract(log), self._known_entry(log)["name"]):
                yield self._decode(log)

    def transactions(self, heeded: Callable[[str], bool], after: int = -1) -> Iterator[list[Event]]:
        """Events by transaction, for transactions after block `after` with a log that `heeded` accepts, as
        JSON in lower case.

        Other logs are not parsed. In chain order; exhaust it before the next `poll`.
        """
        for _, block in groupby(self._rows_after(after), key=itemgetter(0)):
            rows = [row for _, _, row in block]
            found = [heeded(row.lower()) for row in rows]
            if not any(found):
                continue
            logs = zip(found, map(bounded_json.loads, rows), strict=True)
            for _, group in groupby(logs, key=lambda pair: pair[1]["transactionHash"]):
                marked = list(group)
                if any(mark for mark, _ in marked):
                    yield [self._decode(log) for _, log in marked]

    def _rows_after(self, block: int) -> Iterator[tuple[Any, ...]]:
        return self._db.rows("logs", "WHERE block > ? ORDER BY block, position", (block,))

    def at(self, places: Iterable[tuple[int, int]]) -> Iterator[Event]:
        """Events at these places (block, index). Raises DamagedDatabase if one is missing.

        Exhaust it before the next `poll`.
        """
        for place in places:
            row = next(self._db.rows("logs", "WHERE block = ? AND position = ?", place), None)
            if row is None:
                raise DamagedDatabase(f"the event at {place} is gone", hint="start again")
            yield self._decode(bounded_json.loads(row[2]))

    def _bind(self, path: Path, chain: str) -> None:
        with self._db:
            self._db.execute("INSERT OR IGNORE INTO facts VALUES ('chain', ?)", (chain,))
        known = self._db.execute("SELECT value FROM facts WHERE name = 'chain'").fetchone()[0]
        if known != chain:
            raise WrongChain(
                f"the events in {path} are of chain {known}, the node is on {chain}; nothing was read",
                hint="use the node of that chain, or move the file away to read everything again",
            )
        told = ",".join(sorted(f"{address}/{topic.hex()}" for address, topic in self._events))
        row = self._db.execute("SELECT value FROM facts WHERE name = 'events'").fetchone()
        if row is not None and row[0] == told:
            return
        with self._db:
            if self._db.execute("DELETE FROM blocks").rowcount:
                _LOG.warning("%s is of other contracts: all events are read anew", path)
            self._db.execute("DELETE FROM logs")
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('events', ?)", (told,))

    def _last_block(self) -> tuple[int, str | None]:
        row = next(self._db.rows("blocks", "ORDER BY number DESC LIMIT 1"), None)
        return (self.first_block - 1, None) if row is None else (row[0], row[1])

    def _roll_back(self, head: int) -> RolledBack | None:
        """Forgets blocks that the chain replaced. A block that the node does not know is no evidence."""
        agreed = self.first_block - 1
        differs = False
        # Row by row: as a rule the first one agrees.
        known_blocks = self._db.rows("blocks", "ORDER BY number DESC")
        with closing(known_blocks):
            for number, known in known_blocks:
                block = self._source.block(number) if number <= head + self._confirmations else None
                if block is None:
                    continue
                if block["hash"] == known:
                    agreed = number
                    break
                differs = True
        return self._forget_after(agreed) if differs else None

    def read_again(self, agreed: int) -> None:
        """Forgets the blocks after `agreed`: the next poll takes their events back and reads them anew."""
        self._untold.append(self._forget_after(agreed))
        self._read_up_to = None

    def _forget_after(self, agreed: int) -> RolledBack:
        rows = list(self._db.rows("logs", "WHERE block > ? ORDER BY block DESC, position DESC", (agreed,)))
        gone = RolledBack(agreed, tuple(self._decode(bounded_json.loads(row)) for _, _, row in rows))
        with self._db:
            self._db.execute("DELETE FROM logs WHERE block > ?", (agreed,))
            self._db.execute("DELETE FROM blocks WHERE number > ?", (agreed,))
        self.rewinds.append(agreed)
        return gone

    def _read(self, start: int, end: int) -> list[Event] | None:
        """Stores and returns the events of a range; None if the chain changed while reading."""
        block, (before, known) = self._source.block(end), self._last_block()
        if block is None:
            return None
        parts = self._source.logs(start, end)
        stand = {end: block["hash"]} | ({} if known is None else {before: known})
        for part in parts:
            number, block_hash = max(map(_block_of, part), default=(end, block["hash"]))
            if stand.setdefault(number, block_hash) != block_hash:  # the logs are of another fork
                return None
        logs = [log for part in parts for log in part]
        return self._keep(logs, start, end, block["hash"]) if self._source.stand(stand) else None

    def _read_new(self, number: int, block: Mapping[str, Any] | None) -> list[Event] | None:
        """As `_read`, for the next block, if it follows the last one; as a range if the node does not accept
        hashes."""
        known = self.cursor_hash
        if block is None or known not in (None, block.get("parentHash")):
            return None
        try:
            return self._read_named(number, block)
        except RpcFailed as failure:
            if not failure.lacks_block:
                return self._read(number, number)
            if self._source.stand({number: block["hash"]}):
                raise
            return None

    def _read_named(self, number: int, block: Mapping[str, Any]) -> list[Event] | None:
        """As `_read`, for one block. Raises RpcFailed if the node lacks it or does not accept hashes."""
        return self._keep(self._source.logs_of(block), number, number, block["hash"])

    def _keep(self, logs: list[dict[str, Any]], start: int, end: int, end_hash: str) -> list[Event] | None:
        """Stores and returns the events of a range that ends with this block; None if they contradict it."""
        blocks = {end: end_hash}
        kept = []
        for log in logs:
            number, block_hash = _block_of(log)
            if not start <= number <= end or blocks.setdefault(number, block_hash) != block_hash:
                return None
            if self._entry(log) is not None:
                kept.append((number, int(log["logIndex"], 16), log))
        if len({row[:2] for row in kept}) < len(kept):
            return None
        kept.sort(key=lambda row: row[:2])
        events = self._decoded(log for _, _, log in kept)
        with self._db:
            self._db.executemany("INSERT INTO blocks VALUES (?, ?)", sorted(blocks.items()))
            self._db.executemany(
                "INSERT INTO logs VALUES (?, ?, ?)", [(n, i, json.dumps(g)) for n, i, g in kept]
            )
        return events

    def _decoded(self, logs: Iterable[dict[str, Any]]) -> list[Event]:
        """Decodes a node's logs before they are stored, since stored events are trusted."""
        try:
            return [self._decode(log) for log in logs]
        except MalformedData as error:
            shown = f"the node showed a log that is none of the contracts': {error.message}"
            raise RpcUnreachable(shown, hint="use another node") from error

    def start_over(self) -> None:
        """Forgets everything: the next poll reads it anew."""
        self._untold.clear()
        self._read_up_to = None
        self.rewinds.append(self.first_block - 1)
        with self._db:
            self._db.execute("DELETE FROM logs")
            self._db.execute("DELETE FROM blocks")

    def _entry(self, log: dict[str, Any]) -> Mapping[str, Any] | None:
        """The ABI's event of a log; None for other logs (contracts may emit events of libraries)."""
        if not log["topics"]:
            return None
        return self._events.get((checksummed(log["address"]), bytes.fromhex(log["topics"][0][2:])))

    def _known_entry(self, log: dict[str, Any]) -> Mapping[str, Any]:
        entry = self._entry(log)
        assert entry is not None  # only logs with an entry are kept
        return entry

    def _contract(self, log: dict[str, Any]) -> str:
        return self._names[checksummed(log["address"])]

    def _decode(self, log: dict[str, Any]) -> Event:
        entry = self._known_entry(log)
        topics = [bytes.fromhex(word[2:]) for word in log["topics"]]
        return Event(
            entry["name"],
            self._contract(log),
            decode_log(entry, topics, bytes.fromhex(log["data"][2:])),
            *_block_of(log),
            int(log["logIndex"], 16),
            log["transactionHash"],
        )


def _block_of(log: Mapping[str, Any]) -> tuple[int, str]:
    return int(log["blockNumber"], 16), log["blockHash"]

"""Journal of every transaction that this node intends to send, so that no crash can send one twice.

Contract: an intent (a unique key with destination, data and value) is on disk before anything is signed. A
signed transaction is on disk, with its nonce, before it is broadcast. A nonce belongs to one intent for ever,
so resends and fee bumps of an intent exclude one another on chain. Several processes may open it; nonces stay
unique. A damaged journal is refused (``disk.database``). Not guaranteed: anything for transactions that other
programs send from the same account (`lost` handles them).

    RECORDED --sign--> SIGNED --mined--> MINED | FAILED
        ^                |  ^               |        |
        +----- lost -----+  +--- reorged ---+--------+
        +------------------------ renew -------------+
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from assay.chain.eth.fees import Due
from assay.disk.database import Database
from assay.protocol import bounded_json
from assay.protocol.errors import Retry, Stop

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS intents (
    key TEXT PRIMARY KEY,
    sender TEXT NOT NULL,
    purpose TEXT NOT NULL,
    destination TEXT,               -- NULL creates a contract
    data BLOB NOT NULL,
    value_wei TEXT NOT NULL,        -- SQLite integers are too short for wei
    state TEXT NOT NULL,
    nonce INTEGER,
    receipt TEXT,
    UNIQUE (sender, nonce)
) STRICT;
CREATE TABLE IF NOT EXISTS attempts (
    hash TEXT PRIMARY KEY,
    key TEXT NOT NULL REFERENCES intents (key),
    raw BLOB NOT NULL,
    gas INTEGER NOT NULL,
    max_fee_wei TEXT NOT NULL,
    tip_wei TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS executed ON intents (sender, json_extract(receipt, '$.block_number'));
-- Intents that a batch, itself an intent, carries. A row counts while its batch is signed or mined.
CREATE TABLE IF NOT EXISTS members (
    key TEXT NOT NULL,
    batch TEXT NOT NULL REFERENCES intents (key),
    PRIMARY KEY (key, batch)
) STRICT;
"""


_NEXT = (
    "restore it from a copy that is not older than the account's last transaction; without one, wait until"
    " the chain has mined all that the account has sent, then move {path} and the files beside it away that"
    " begin with its name, and start the node with --take-over: it decides anew from the chain"
)


class IntentConflict(Retry):
    """An intent key is used again for another call; the earlier call may still take effect."""

    code = "intent-conflict"


class IntentCarried(Retry):
    """Another transaction already carries the intent; nothing was signed."""

    code = "intent-carried"


class WrongChain(Stop):
    """A journal or cursor belongs to another chain."""

    code = "wrong-chain"


class State(StrEnum):
    """State of an intent."""

    RECORDED = "recorded"
    SIGNED = "signed"
    MINED = "mined"
    FAILED = "failed"


@dataclass(frozen=True)
class Call:
    """A call to send; `to` None creates a contract. `due`: its deadline, if any; not stored."""

    to: str | None
    data: bytes
    purpose: str
    value_wei: int = 0
    due: Due | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Receipt:
    """Outcome of a transaction. `logs` are as the node gave them."""

    key: str
    tx_hash: str
    block_number: int
    block_hash: str
    gas_used: int
    gas_price_wei: int
    ok: bool
    contract: str | None
    logs: list[dict[str, Any]]

    @property
    def cost_wei(self) -> int:
        """Amount that the account paid for gas."""
        return self.gas_used * self.gas_price_wei


@dataclass(frozen=True)
class Attempt:
    """One signed transaction of an intent."""

    hash: str
    raw: bytes
    gas: int
    max_fee_wei: int
    tip_wei: int


@dataclass(frozen=True)
class Intent:
    """One entry, with its attempts from first to latest."""

    key: str
    sender: str
    call: Call
    state: State
    nonce: int | None
    receipt: Receipt | None
    attempts: tuple[Attempt, ...]

    @property
    def worst_cost_wei(self) -> int:
        """Maximum that this intent can cost the account: paid, or still open."""
        if self.receipt is not None:
            return self.receipt.cost_wei + (self.call.value_wei if self.receipt.ok else 0)
        return max((a.gas * a.max_fee_wei for a in self.attempts), default=0) + self.call.value_wei


class Journal:
    """Entries of one node on one chain. Safe to share between threads and processes."""

    def __init__(self, path: Path) -> None:
        """Raises DamagedDatabase: without its record, a transaction could be sent again."""
        self.path = path
        self._lock = threading.RLock()
        self._db = Database(path, _SCHEMA, hint=_NEXT.format(path=path), sealed=True)

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def bind(self, identity: str) -> None:
        """Binds the journal to one chain for good. Raises WrongChain if it is bound to another."""
        known = self.remember("chain", identity)
        if known != identity:
            raise WrongChain(
                f"the journal {self.path} was written on chain {known}, the node is on {identity};"
                " nothing was sent",
                hint="use the node of that chain, or give this one a data directory of its own",
            )

    def remember(self, name: str, value: str) -> str:
        """Stores a fact under a name unless there is one; returns the stored one."""
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, value))
            kept = self.fact(name)
            assert kept is not None
            return kept

    def fact(self, name: str) -> str | None:
        """The fact under a name, or None."""
        with self._lock:
            row = next(self._db.rows("facts", "WHERE name = ?", (name,)), None)
        return None if row is None else str(row[1])

    def keep_fact(self, name: str, value: str) -> None:
        """Stores or replaces the fact under a name."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def record(self, key: str, sender: str, call: Call, members: Sequence[str] = ()) -> Intent:
        """Adds an intent, or returns the existing one. `members`: the intents that a batch carries.

        An intent that was never signed had no effect and takes the new call. Raises IntentConflict if the key
        was signed for another call.
        """
        row = (key, sender, call.purpose, call.to, call.data, str(call.value_wei), State.RECORDED)
        with self._transaction():
            self._db.execute(
                "INSERT INTO intents (key, sender, purpose, destination, data, value_wei, state)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET sender = excluded.sender,"
                " purpose = excluded.purpose, destination = excluded.destination, data = excluded.data,"
                " value_wei = excluded.value_wei WHERE state = 'recorded'",
                row,
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO members VALUES (?, ?)", [(member, key) for member in members]
            )
            intent = self.get(key)
        assert intent is not None
        kept = (intent.sender, intent.call.to, intent.call.data, intent.call.value_wei)
        if kept != (sender, call.to, call.data, call.value_wei):
            raise IntentConflict(
                f"{key} was already signed for another transaction ({intent.call.purpose}); nothing was sent",
                hint="it is tried again once the first one has failed for good",
            )
        return intent

    def sign(self, key: str, chain_nonce: int, make: Callable[[int], Attempt]) -> Intent:
        """Reserves a nonce and stores the transaction that `make(nonce)` signs, atomically.

        The nonce is the intent's own if it has one, otherwise the lowest from `chain_nonce` on that no entry
        holds. Raises IntentCarried if that would send an intent a second time, alone or in a batch.
        """
        with self._transaction():
            intent = self._require(key)
            if intent.nonce is None:
                self._require_uncarried(key)
            nonce = intent.nonce if intent.nonce is not None else self._free_nonce(intent.sender, chain_nonce)
            attempt = make(nonce)
            self._db.execute(
                "UPDATE intents SET nonce = ?, state = ?, receipt = NULL WHERE key = ?",
                (nonce, State.SIGNED, key),
            )
            self._db.execute(
                "INSERT OR IGNORE INTO attempts VALUES (?, ?, ?, ?, ?, ?)",
                (attempt.hash, key, attempt.raw, attempt.gas, str(attempt.max_fee_wei), str(attempt.tip_wei)),
            )
            return self._require(key)

    def settle(self, key: str, receipt: Receipt) -> Intent:
        """Records that the chain has executed the intent."""
        state = State.MINED if receipt.ok else State.FAILED
        with self._transaction():
            self._db.execute(
                "UPDATE intents SET state = ?, receipt = ? WHERE key = ?",
                (state, json.dumps(asdict(receipt)), key),
            )
            return self._require(key)

    def reorged(self, key: str) -> Intent:
        """Records that the block of an executed intent was replaced: the same transaction must be mined
        again."""
        with self._transaction():
            self._db.execute(
                "UPDATE intents SET state = ?, receipt = NULL WHERE key = ?", (State.SIGNED, key)
            )
            return self._require(key)

    def lost(self, key: str) -> Intent:
        """Records that another program's transaction took the nonce for good: no attempt can be mined."""
        with self._transaction():
            self._db.execute("DELETE FROM attempts WHERE key = ?", (key,))
            self._db.execute(
                "UPDATE intents SET state = ?, nonce = NULL, receipt = NULL WHERE key = ?",
                (State.RECORDED, key),
            )
            return self._require(key)

    def renew(self, key: str) -> Intent:
        """Allows an intent that failed on chain, for good, to be sent again; its cost stays counted."""
        with self._transaction():
            intent = self._require(key)
            failed = f"failed/{intent.sender}"
            self.keep_fact(failed, str(int(self.fact(failed) or 0) + intent.worst_cost_wei))
            return self.lost(key)

    def get(self, key: str) -> Intent | None:
        """The entry of this key, or None."""
        found = self._select("WHERE key = ?", (key,))
        return found[0] if found else None

    def is_open(self, key: str) -> bool:
        """True if the intent is still to be mined."""
        intent = self.get(key)
        return intent is not None and intent.state in (State.RECORDED, State.SIGNED)

    def has_signed(self, prefix: str) -> bool:
        """True if a transaction was signed for an intent whose key has this prefix."""
        end = prefix + chr(0x10FFFF)
        return bool(self._select("WHERE key >= ? AND key < ? AND state <> 'recorded' LIMIT 1", (prefix, end)))

    def batch_of(self, key: str) -> Intent | None:
        """The batch that carries this intent, signed or mined; None if there is none, or it had no effect."""
        found = self._select(
            "WHERE state IN ('signed', 'mined') AND key IN (SELECT batch FROM members WHERE key = ?)", (key,)
        )
        return found[0] if found else None

    def members(self, batch: str) -> list[str]:
        """Intents that a batch carries; empty if it is no batch."""
        with self._lock:
            rows = self._db.rows("members", "WHERE batch = ? ORDER BY rowid", (batch,))
            return [str(key) for key, _ in rows]

    def open_intents(self, sender: str) -> list[Intent]:
        """Signed intents not yet known to be mined, by nonce."""
        return self._select("WHERE sender = ? AND state = 'signed' ORDER BY nonce", (sender,))

    def executed(self, sender: str, since_block: int) -> list[Intent]:
        """Intents mined or failed in `since_block` or later, by nonce."""
        return self._select(
            "WHERE sender = ? AND state IN ('mined', 'failed')"
            " AND json_extract(receipt, '$.block_number') >= ? ORDER BY nonce",
            (sender, since_block),
        )

    def committed_wei(self, sender: str) -> int:
        """Maximum that all signed and executed intents together have cost or can still cost."""
        intents = self._select("WHERE sender = ? AND state <> 'recorded'", (sender,))
        return sum(i.worst_cost_wei for i in intents) + int(self.fact(f"failed/{sender}") or 0)

    def gas_wei(self, sender: str) -> int:
        """Gas paid by all executed intents."""
        paid = sum(i.receipt.cost_wei for i in self.executed(sender, 0) if i.receipt is not None)
        return paid + int(self.fact(f"failed/{sender}") or 0)

    def next_nonce(self, sender: str) -> int:
        """Highest nonce of an entry plus one; 0 if there is none."""
        with self._lock:
            found = self._db.execute("SELECT max(nonce) FROM intents WHERE sender = ?", (sender,)).fetchone()
        return 0 if found[0] is None else int(found[0]) + 1

    def held_nonces(self, sender: str, lowest: int) -> set[int]:
        """Nonces from `lowest` on that entries hold."""
        with self._lock:
            rows = self._db.execute(
                "SELECT nonce FROM intents WHERE sender = ? AND nonce >= ?", (sender, lowest)
            ).fetchall()
        return {row[0] for row in rows}

    def _free_nonce(self, sender: str, lowest: int) -> int:
        held = self.held_nonces(sender, lowest)
        return next(n for n in range(lowest, lowest + len(held) + 1) if n not in held)

    def _require_uncarried(self, key: str) -> None:
        """INVARIANT: of an intent and all batches with it, at most one is signed and not failed."""
        for one in (key, *self.members(key)):
            carrier = self.batch_of(one)
            itself = None if one == key else self.get(one)
            if itself is not None and itself.state in (State.RECORDED, State.FAILED):
                itself = None
            if carrier is not None or itself is not None:
                raise IntentCarried(
                    f"{one} is under way in another transaction; nothing was signed",
                    hint="ask again: its outcome is that transaction's",
                )

    def _require(self, key: str) -> Intent:
        intent = self.get(key)
        if intent is None:
            raise IntentConflict(f"the journal has no intent {key}; nothing was sent", hint="record it first")
        return intent

    def _select(self, where: str, parameters: tuple[Any, ...]) -> list[Intent]:
        with self._lock:
            return [self._intent(row) for row in list(self._db.rows("intents", where, parameters))]

    def _intent(self, row: tuple[Any, ...]) -> Intent:
        key, sender, purpose, to, data, value_wei, state, nonce, receipt = row
        attempts = list(self._db.rows("attempts", "WHERE key = ? ORDER BY rowid", (key,)))
        return Intent(
            key,
            sender,
            Call(to, data, purpose, int(value_wei)),
            State(state),
            nonce,
            Receipt(**bounded_json.loads(receipt)) if receipt else None,
            tuple(Attempt(h, raw, gas, int(fee), int(tip)) for h, _, raw, gas, fee, tip in attempts),
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """An atomic transaction; one writer at a time across processes."""
        with self._lock, self._db:
            yield

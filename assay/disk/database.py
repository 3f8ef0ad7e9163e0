"""SQLite files in which every row has a checksum.

Contract: a file is checked when it is opened: its tables and triggers, SQLite's structure, every row with its
checksum, and no row or checksum without the other. Triggers maintain the checksums, so statements need not
know of them; a row is checked before it is changed. `rows` checks what it reads. INVARIANT nothing-forgotten:
the number of changes of a `sealed` file is stored in a record beside it after each transaction, so that a
file that was cut, emptied or restored from an earlier state is detected. Damage raises `DamagedDatabase` with
the caller's next step. A full disk, missing permissions, or a lock held too long by another process are left
to the caller as SQLite's errors. Not guaranteed: that a seal is the latest: a power failure between a
transaction and its seal leaves an older one, which passes.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any

from assay.disk import record
from assay.protocol.errors import Ask

_SEAL = "assay/seal/1"
_DIGEST_BYTES = 16
_SUMS = """
CREATE TABLE IF NOT EXISTS checksums (
    tbl TEXT NOT NULL, id INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (tbl, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL) STRICT;
INSERT OR IGNORE INTO changes VALUES (1, 0);
"""
# No "OR REPLACE" within: a trigger does as the statement that fires it says, whatever stands in it.
_TRIGGERS = """
CREATE TRIGGER IF NOT EXISTS {table}_inserted AFTER INSERT ON {table} BEGIN
    DELETE FROM checksums WHERE tbl = '{table}' AND id = NEW.rowid;
    INSERT INTO checksums VALUES ('{table}', NEW.rowid, row_digest('{table}', NEW.rowid, {new}));
    UPDATE changes SET n = n + 1;
END;
CREATE TRIGGER IF NOT EXISTS {table}_checked BEFORE UPDATE ON {table} BEGIN
    SELECT row_check((SELECT digest FROM checksums WHERE tbl = '{table}' AND id = OLD.rowid),
        '{table}', OLD.rowid, {old});
END;
CREATE TRIGGER IF NOT EXISTS {table}_updated AFTER UPDATE ON {table} BEGIN
    DELETE FROM checksums WHERE tbl = '{table}' AND id IN (OLD.rowid, NEW.rowid);
    INSERT INTO checksums VALUES ('{table}', NEW.rowid, row_digest('{table}', NEW.rowid, {new}));
    UPDATE changes SET n = n + 1;
END;
CREATE TRIGGER IF NOT EXISTS {table}_deleted AFTER DELETE ON {table} BEGIN
    DELETE FROM checksums WHERE tbl = '{table}' AND id = OLD.rowid;
    UPDATE changes SET n = n + 1;
END;
"""
_PASSING = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR),
)
"""Error codes (low byte) that say nothing about the file's content."""
_LOST = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)
"""Exceptions to these: the disk cannot read the file."""


class DamagedDatabase(Ask):
    """A file is not what was written, or the disk cannot read it."""

    code = "damaged-database"


class Rows(list[tuple[Any, ...]]):
    """Result rows of a statement."""

    rowcount = -1

    def fetchone(self) -> Any:
        return self[0] if self else None

    def fetchall(self) -> Rows:
        return self


def row_digest(*values: Any) -> bytes:
    """Checksum of a table's name, a row's number and its values."""
    parts = []
    for value in values:
        kind = type(value).__name__[:1]
        data = value if isinstance(value, bytes) else str(value).encode()
        parts.append(b"%s%d:%s" % (kind.encode(), len(data), data))
    return sha256(b"".join(parts)).digest()[:_DIGEST_BYTES]


def _row_check(digest: bytes | None, *values: Any) -> None:
    if digest != row_digest(*values):
        raise ValueError("a row does not have its checksum")


class Database:
    """One connection. As a context manager: an atomic transaction with one writer at a time across processes.

    Nested ones are part of the outer transaction.
    """

    def __init__(
        self, path: Path, schema: str, *, hint: str, sealed: bool = False, copy: bool = False
    ) -> None:
        """`schema`: statements that create missing tables. `copy`: opens a copy of the file in memory. Raises
        DamagedDatabase."""
        self.path, self._hint = path, hint
        self._seal = path.with_name(path.name + ".seal") if sealed else None
        self._depth = 0
        self._last_seal = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._guarded():
            self._db = _connected(Path(":memory:") if copy else path)
        try:
            with self._guarded():
                if copy:
                    with closing(_connected(path)) as theirs:
                        theirs.backup(self._db)
                self._open(schema)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # -- statements

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Executes a statement; its results are not checked. Raises DamagedDatabase."""
        with self._guarded():
            cursor = self._db.execute(statement, values)
            rows = Rows(cursor.fetchall())
            rows.rowcount = cursor.rowcount
            return rows

    def executemany(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Executes a statement for each of the values. Raises DamagedDatabase."""
        with self._guarded():
            self._db.executemany(statement, values)

    def rows(
        self, table: str, rest: str = "", values: Sequence[Any] = ()
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yields whole rows of a table, each checked. `rest`: WHERE, ORDER BY. Raises DamagedDatabase."""
        digest = f"(SELECT digest FROM checksums WHERE tbl = '{table}' AND id = {table}.rowid)"
        with self._guarded():
            for number, *row, kept in self._db.execute(
                f"SELECT {table}.rowid, {table}.*, {digest} FROM {table} {rest}", values
            ):
                if kept != row_digest(table, number, *row):
                    raise self._damaged(f"row {number} of {table} does not match its checksum")
                yield tuple(row)

    def __enter__(self) -> Database:
        if self._depth == 0:
            self.execute("BEGIN IMMEDIATE")
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        if kind is not None:
            if self._db.in_transaction:
                self.execute("ROLLBACK")
            return
        try:
            self.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self.execute("ROLLBACK")
            raise
        if self._seal is not None:
            self._write_seal()

    # -- opening

    def _open(self, schema: str) -> None:
        self._db.create_function("row_digest", -1, row_digest, deterministic=True)
        self._db.create_function("row_check", -1, _row_check)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",  # what is committed must survive power loss, not only a crash
            "foreign_keys = ON",
            "recursive_triggers = ON",  # so that a row replaced is a row deleted
            "trusted_schema = ON",
        ):
            self._db.execute(f"PRAGMA {pragma}")
        wanted = _made(schema)
        tables = wanted.tables
        self._tables = tuple(tables)
        with self:
            found = _schema(self._db)
            if found and "checksums" not in found:
                raise self._damaged("its checksums are missing")
            self._script(schema)
            for table, columns in tables.items():
                self._script(_triggers(table, columns))
            self._script(_SUMS)
            if (now := _schema(self._db)) != wanted.everything:
                odd = sorted(k for k in {*now, *wanted.everything} if now.get(k) != wanted.everything.get(k))
                raise self._damaged(
                    f"its tables differ from those that it was made with: {', '.join(odd)[:200]}"
                )
            self._compare()

    def _script(self, statements: str) -> None:
        """Executes statements one by one; sqlite3's `executescript` would end the transaction."""
        part = ""
        for piece in statements.split(";"):
            part += piece + ";"
            if sqlite3.complete_statement(part):
                if part.strip(" \n;"):
                    self._db.execute(part)
                part = ""

    def _compare(self) -> None:
        (found,) = self._db.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise self._damaged(str(found))
        count = 0
        for table in self._tables:
            count += sum(1 for _ in self.rows(table))
        (sums,) = self._db.execute("SELECT count(*) FROM checksums").fetchone()
        if sums != count:
            raise self._damaged(f"it has {count} rows, and checksums of {sums}")
        if (changes := self._changes()) < (sealed := self._sealed_changes()):
            raise self._damaged(f"it lacks changes: {sealed} were made, and {changes} are left")

    def _changes(self) -> int:
        row = self._db.execute("SELECT n FROM changes").fetchone()
        if row is None:
            raise self._damaged("it lacks the number of its changes")
        return int(row[0])

    def _sealed_changes(self) -> int:
        if self._seal is None:
            return 0
        again = "it is written again with the next transaction"
        body = record.read_or_quarantine(self._seal, _SEAL, instead=again)
        return 0 if body is None else int(body["changes"])

    def _write_seal(self) -> None:
        assert self._seal is not None
        with self._guarded():
            changes = self._changes()
        if changes > self._last_seal:
            record.write(self._seal, _SEAL, {"changes": changes})
            self._last_seal = changes

    # -- errors

    def _damaged(self, why: str) -> DamagedDatabase:
        return DamagedDatabase(f"{self.path} is damaged: {why}", hint=self._hint)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Converts SQLite's errors about the file to DamagedDatabase."""
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            if code & 0xFF in _PASSING and code not in _LOST:
                raise
            raise self._damaged(str(error)) from error


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)


class _Made:
    """Objects of a schema."""

    def __init__(self, db: sqlite3.Connection, tables: dict[str, list[str]]) -> None:
        self.tables = tables
        self.everything = _schema(db)


def _made(schema: str) -> _Made:
    db = sqlite3.connect(":memory:")
    try:
        db.executescript(schema)
        names = [name for kind, name in _names(db) if kind == "table"]
        tables = {name: [str(row[1]) for row in db.execute(f"PRAGMA table_info({name})")] for name in names}
        for table, columns in tables.items():
            db.executescript(_triggers(table, columns))
        db.executescript(_SUMS)
        return _Made(db, tables)
    finally:
        db.close()


def _names(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()


def _schema(db: sqlite3.Connection) -> dict[str, str]:
    """Everything that a file's schema defines, without comments and line ends."""
    found = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    return {name: f"{kind} {table} {_plain(sql or '')}" for kind, name, table, sql in found}


def _plain(sql: str) -> str:
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())


def _triggers(table: str, columns: Sequence[str]) -> str:
    new, old = (", ".join(f"{row}.{column}" for column in columns) for row in ("NEW", "OLD"))
    return _TRIGGERS.format(table=table, new=new, old=old)

"""Databases whose rows have checksums: whatever statement changes them, and whatever else does."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.disk.database import DamagedDatabase, Database, _triggers, row_digest

SCHEMA = """
CREATE TABLE IF NOT EXISTS things (
    name TEXT PRIMARY KEY,  -- a comment; with a semicolon
    amount TEXT NOT NULL,
    data BLOB,
    number INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS parts (thing TEXT NOT NULL, part INTEGER, PRIMARY KEY (thing, part)) STRICT;
"""


def opened(folder: Path, *, sealed: bool = True) -> Database:
    return Database(folder / "things.db", SCHEMA, hint="mend it", sealed=sealed)


def put(db: Database, name: str, amount: str = "1", data: bytes | None = b"\0", number: int = 5) -> None:
    with db:
        db.execute("INSERT OR REPLACE INTO things VALUES (?, ?, ?, ?)", (name, amount, data, number))


def meddle(folder: Path, statement: str) -> None:
    """Change the file behind the node's back, without its triggers."""
    db = sqlite3.connect(folder / "things.db")
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        db.execute(f"DROP TRIGGER {name}")
    assert db.execute(statement).rowcount >= 1, "the fault was planted"
    db.commit()
    db.close()


@pytest.mark.long
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.text(max_size=5), st.none() | st.binary(max_size=5), st.integers(-9, 9)
        )
    )
)
@settings(max_examples=25, deadline=None)
def test_whatever_was_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, rows: list) -> None:
    folder = tmp_path_factory.mktemp("db")
    db, truth = opened(folder), {}
    for row in rows:
        row = (row[0], row[1].replace("\0", ""), *row[2:])
        with db:
            db.execute(
                "INSERT INTO things VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
                " amount = excluded.amount, data = excluded.data, number = excluded.number",
                row,
            )
        truth[row[0]] = row
    db.close()
    again = opened(folder)
    assert {row[0]: row for row in again.rows("things")} == truth
    again.close()


def test_every_way_of_changing_a_row_keeps_its_checksum(tmp_path: Path) -> None:
    db = opened(tmp_path)
    put(db, "a")
    put(db, "a", amount="2")
    put(db, "b")
    with db:
        db.executemany("INSERT OR IGNORE INTO parts VALUES (?, ?)", [("a", 1), ("a", 1), ("b", None)])
        db.execute("UPDATE things SET number = NULL, amount = '3' WHERE name = 'b'")
        db.execute("DELETE FROM things WHERE name = 'a'")
        db.execute("UPDATE things SET rowid = 77 WHERE name = 'b'")
    db.close()
    db = opened(tmp_path)
    assert list(db.rows("things")) == [("b", "3", b"\0", None)]
    assert list(db.rows("parts", "WHERE thing = ?", ("a",))) == [("a", 1)]


def test_a_transaction_that_fails_changes_nothing_and_within_another_is_part_of_it(tmp_path: Path) -> None:
    db = opened(tmp_path)
    with pytest.raises(RuntimeError), db:
        put(db, "a")
        raise RuntimeError
    assert list(db.rows("things")) == []
    with db, db:
        put(db, "b")
    db.close()
    assert [row[0] for row in opened(tmp_path).rows("things")] == ["b"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE things SET amount = '9' WHERE name = 'a'",
        "UPDATE things SET rowid = 9 WHERE name = 'a'",
        "UPDATE things SET data = NULL WHERE name = 'a'",
        "DELETE FROM things WHERE name = 'a'",
        "DELETE FROM checksums WHERE id = 1",
        "INSERT INTO things VALUES ('c', '1', NULL, 1)",
        "UPDATE changes SET n = 1",
        "DELETE FROM changes",
    ],
)
def test_what_something_else_has_changed_is_not_used(tmp_path: Path, statement: str) -> None:
    db = opened(tmp_path)
    put(db, "a")
    put(db, "b")
    db.close()
    meddle(tmp_path, statement)
    with pytest.raises(DamagedDatabase) as caught:
        opened(tmp_path)
    assert caught.value.hint == "mend it" and "things.db" in caught.value.message


def test_a_row_that_changes_under_a_running_node_is_neither_read_nor_blessed(tmp_path: Path) -> None:
    db = opened(tmp_path)
    put(db, "a")
    db._db.execute("DROP TRIGGER things_checked")
    db._db.execute("DROP TRIGGER things_updated")
    db._db.execute("UPDATE things SET amount = '9'")
    with pytest.raises(DamagedDatabase, match="row 1"):
        list(db.rows("things"))
    db._script(_triggers("things", ["name", "amount", "data", "number"]))
    with pytest.raises(DamagedDatabase), db:
        db.execute("UPDATE things SET number = 8")


@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_file_that_was_emptied_or_cut_or_brought_back_is_not_taken_for_a_new_one(
    tmp_path: Path, end: str
) -> None:
    db = opened(tmp_path / "node")
    put(db, "a")
    shutil.copytree(tmp_path / "node", tmp_path / "before")
    put(db, "b")
    shutil.copytree(tmp_path / "node", tmp_path / "now")
    now = tmp_path / "now"
    (now / f"things.db{end}").write_bytes((tmp_path / "before" / f"things.db{end}").read_bytes())
    if end:
        with pytest.raises(DamagedDatabase, match="it lacks changes"):
            opened(now)
        (now / "things.db-wal").unlink(missing_ok=True)
    (now / "things.db").write_bytes(b"")
    with pytest.raises(DamagedDatabase):
        opened(now)
    for path in now.glob("things.db*"):
        if not path.name.endswith(".seal"):
            path.unlink()
    with pytest.raises(DamagedDatabase, match="it lacks changes"):
        opened(now)
    db.close()


def test_a_seal_that_is_behind_or_damaged_passes(tmp_path: Path) -> None:
    db = opened(tmp_path)
    put(db, "a")
    seal = tmp_path / "things.db.seal"
    behind = seal.read_bytes()
    put(db, "b")
    db.close()
    for data in (behind, b"{", None):
        seal.unlink(missing_ok=True)
        if data is not None:
            seal.write_bytes(data)
        db = opened(tmp_path)
        assert len(list(db.rows("things"))) == 2
        db.close()
    assert seal.exists()


def test_a_file_without_checksums_is_damaged(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "things.db")
    old.executescript(SCHEMA)
    old.close()
    with pytest.raises(DamagedDatabase, match="checksums are missing"):
        opened(tmp_path)


def test_a_file_that_cannot_be_opened_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "things.db").mkdir()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        opened(tmp_path)


@pytest.mark.parametrize("what", ["no database", "another schema"])
def test_what_is_no_such_file_is_told(tmp_path: Path, what: str) -> None:
    path = tmp_path / "things.db"
    if what == "no database":
        path.write_bytes(os.urandom(5_000))
    else:
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE things (name TEXT)")
        other.close()
    with pytest.raises(DamagedDatabase):
        opened(tmp_path)


def test_a_file_that_another_process_holds_is_not_called_damaged(tmp_path: Path) -> None:
    db, other = opened(tmp_path), opened(tmp_path)
    other._db.execute("PRAGMA busy_timeout = 1")
    held = threading.Event()
    with db:
        held.set()
        with pytest.raises(sqlite3.OperationalError, match="locked"), other:
            pass
    with other:
        put(other, "a")
    assert len(list(db.rows("things"))) == 1


def test_values_of_different_kinds_have_different_checksums() -> None:
    values = [None, 0, "0", b"0", "", b"", 1, "1", "None"]
    assert len({row_digest("t", 1, value) for value in values}) == len(values)
    assert row_digest("t", 1, "ab", "c") != row_digest("t", 1, "a", "bc")

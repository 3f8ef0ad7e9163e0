"""Files of deleted blocks that are written again: nothing of what they were is left, no other is touched."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from assay.blocks import blockstore, spares
from assay.blocks.blockstore import BlockStore, Usage
from assay.blocks.spares import KEPT_S, Spares
from assay.protocol.errors import BlockNotFound


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path / "store", spares=10)


def path_of(store: BlockStore, cid: str) -> Path:
    return next((store.root / "blocks").glob(f"*/{cid}"))


def waiting(store: BlockStore) -> list[Path]:
    return list((store.root / "tmp").iterdir())


def test_a_dropped_blocks_file_is_the_next_blocks(store: BlockStore) -> None:
    old = store.put(b"a long block that goes")
    inode = path_of(store, old).stat().st_ino
    assert store.drop([old], [], -1.0) == Usage(1, 22)
    assert not store.has(old) and [path.stat().st_size for path in waiting(store)] == [0]
    new = store.put(b"short")
    assert path_of(store, new).stat().st_ino == inode, "its file was written again"
    assert store.get(new) == b"short" and path_of(store, new).read_bytes() == b"short"
    assert not waiting(store) and list(store.cids()) == [new]
    assert store.put(b"another") and len(list(store.cids())) == 2


def test_a_file_with_another_name_is_left_as_it_is(store: BlockStore, tmp_path: Path) -> None:
    cid, copy = store.put(b"backed up"), tmp_path / "copy"
    os.link(path_of(store, cid), copy)
    assert store.drop([cid], [], -1.0) == Usage(1, 9)
    assert not store.has(cid) and not waiting(store)
    store.put(b"new")
    assert copy.read_bytes() == b"backed up"


def test_what_a_link_leads_to_is_left_as_it_is(store: BlockStore, tmp_path: Path) -> None:
    cid, elsewhere = store.put(b"linked"), tmp_path / "elsewhere"
    path = path_of(store, cid)
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert store.drop([cid], [], -1.0).blocks == 1
    assert not os.path.lexists(path) and not waiting(store)
    store.put(b"new")
    assert elsewhere.read_bytes() == b"linked"


def test_a_block_that_is_dropped_while_it_is_read_is_gone_and_not_corrupt(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid, real = store.put(b"being read"), blockstore._read_if_exists

    def dropped_meanwhile(path: Path) -> bytes | None:
        monkeypatch.setattr(blockstore, "_read_if_exists", real)
        with path.open("rb") as file:
            store.drop([cid], [], -1.0)
            return file.read()

    monkeypatch.setattr(blockstore, "_read_if_exists", dropped_meanwhile)
    with pytest.raises(BlockNotFound):
        store.get(cid)
    assert blockstore._read_if_exists is real, "it was dropped while it was read"
    assert not store.quarantined()


def file_in(folder: Path, name: str) -> str:
    path = folder / name
    path.write_bytes(b"something")
    return str(path)


def test_one_that_has_waited_long_is_not_used(tmp_path: Path) -> None:
    now = [0.0]
    kept = Spares(tmp_path, 10, lambda: now[0])
    path = file_in(tmp_path, "old")
    old = os.open(path, os.O_RDONLY)
    kept.retire(path)
    now[0] = KEPT_S + 1
    _, new = kept.opened()
    assert not os.path.sameopenfile(old, new)
    assert os.fstat(new).st_size == 0 and os.fstat(new).st_nlink == 1
    os.close(old)
    os.close(new)


def test_one_that_somebody_swept_is_made_anew(tmp_path: Path) -> None:
    kept = Spares(tmp_path, 10)
    kept.retire(file_in(tmp_path, "old"))
    for path in tmp_path.iterdir():
        path.unlink()
    path, descriptor = kept.opened()
    assert os.fstat(descriptor).st_nlink == 1 and path.exists()
    os.close(descriptor)


def test_beyond_the_most_they_are_deleted(tmp_path: Path) -> None:
    kept = Spares(tmp_path, 2)
    for number in range(5):
        kept.retire(file_in(tmp_path, str(number)))
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0, 0]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Spares(tmp_path, 10).retire(str(tmp_path / "gone"))


def test_those_that_have_waited_long_go_one_by_one_with_what_is_deleted(tmp_path: Path) -> None:
    now = [0.0]
    kept = Spares(tmp_path, 10, lambda: now[0])
    for number in range(3):
        kept.retire(file_in(tmp_path, str(number)))
    now[0] = KEPT_S + 1
    kept.retire(file_in(tmp_path, "new"))
    assert len(list(tmp_path.iterdir())) == 3
    _, descriptor = kept.opened()
    assert os.fstat(descriptor).st_nlink == 1 and len(list(tmp_path.iterdir())) == 3, "the new one is used"
    os.close(descriptor)


@pytest.mark.parametrize("refused", ["rename", "open", "ftruncate"])
def test_what_cannot_be_put_by_is_deleted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A full disk may refuse a new name, and a file of somebody else's to be written to."""
    kept, path, told = Spares(tmp_path, 10), file_in(tmp_path, "old"), list[str]()

    def fails(*_: object) -> None:
        told.append(refused)
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(spares.os, refused, fails)
        kept.retire(path)
    assert told == [refused] and not list(tmp_path.iterdir())
    _, descriptor = kept.opened()
    assert os.fstat(descriptor).st_nlink == 1
    os.close(descriptor)


def test_an_empty_block_in_such_a_file_is_as_young_as_any(store: BlockStore) -> None:
    old = store.put(b"")
    os.utime(path_of(store, old), (1, 1))
    store.drop([old], [], 5.0)
    [spare] = waiting(store)
    os.utime(spare, (1, 1))
    again = store.put(b"")
    assert not waiting(store) and store.drop([again], [], 5.0) == Usage(0, 0), "it was put this moment"
    assert store.get(again) == b""


def test_who_says_nothing_has_files_deleted(tmp_path: Path) -> None:
    store = BlockStore(tmp_path / "store")
    store.drop([store.put(b"goes")], [], -1.0)
    assert not waiting(store) and not list(store.cids())

"""Files of deleted blocks that are written again: nothing of what they were is left, no other is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.protocol.errors import BlockNotFound
from assay.storage import blockstore, spares
from assay.storage.blockstore import BlockStore, Usage
from assay.storage.spares import KEPT_S, Spares


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path / "store")


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


def retired(waiting: Spares, path: str) -> None:
    waiting.retire(path, os.lstat(path))


def test_one_that_has_waited_long_is_deleted_and_not_used(tmp_path: Path) -> None:
    now = [0.0]
    kept = Spares(tmp_path, lambda: now[0])
    path = file_in(tmp_path, "old")
    old = os.open(path, os.O_RDONLY)
    retired(kept, path)
    now[0] = KEPT_S + 1
    _, new = kept.opened()
    assert os.fstat(old).st_nlink == 0 and not os.path.sameopenfile(old, new)
    assert os.fstat(new).st_size == 0 and os.fstat(new).st_nlink == 1
    os.close(old)
    os.close(new)


def test_one_that_somebody_swept_is_made_anew(tmp_path: Path) -> None:
    kept = Spares(tmp_path)
    retired(kept, file_in(tmp_path, "old"))
    for path in tmp_path.iterdir():
        path.unlink()
    path, descriptor = kept.opened()
    assert os.fstat(descriptor).st_nlink == 1 and path.exists()
    os.close(descriptor)


def test_beyond_the_most_they_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares, "MOST", 2)
    kept = Spares(tmp_path)
    for number in range(5):
        retired(kept, file_in(tmp_path, str(number)))
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0, 0]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    path = file_in(tmp_path, "gone")
    about = os.lstat(path)
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        Spares(tmp_path).retire(path, about)

"""The embedded store: verified reads, atomic writes, pins and collection."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.blocks import blockstore, fsync, unixfs
from assay.blocks.blockstore import MAX_BLOCK_BYTES, BlockStore, Usage
from assay.protocol.cid import DAG_PB, RAW, Cid
from assay.protocol.errors import BadCid, BlockNotFound, BlockTooLarge, CorruptBlock
from tests.fakes.blocks import path_of

OLD = time.time() - 10_000_000


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(tmp_path / "store")


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block that is dropped is a portion."""
    monkeypatch.setattr(blockstore, "AT_ONCE", 1)


def make_old(store: BlockStore) -> None:
    for cid in store.cids():
        os.utime(path_of(store, cid), (OLD, OLD))


def small_file(store: BlockStore, data: bytes) -> str:
    return str(unixfs.add_file(data, store.put_verified, chunk_bytes=4, max_links=3))


def test_put_get_has_iterate(store: BlockStore) -> None:
    first, second = store.put(b"one"), store.put(b"", DAG_PB)
    assert (store.get(first), store.get(second)) == (b"one", b"")
    assert Cid.parse(second).codec == DAG_PB
    assert store.has(first) and not store.has(str(Cid.of(b"absent")))
    assert sorted(store.cids()) == sorted([first, second])
    assert store.usage() == Usage(2, 3)


def test_codecs_do_not_mix(store: BlockStore) -> None:
    store.put(b"x", RAW)
    assert not store.has(str(Cid.of(b"x", DAG_PB)))


def test_absent_block_and_bad_names(store: BlockStore) -> None:
    with pytest.raises(BlockNotFound) as caught:
        store.get(str(Cid.of(b"absent")))
    assert caught.value.code == "block-not-found" and caught.value.hint
    for method in (store.get, store.has, store.pin):
        with pytest.raises(BadCid):
            method("../../etc/passwd")


def test_largest_block_is_kept_and_a_larger_one_refused(store: BlockStore) -> None:
    largest = bytes(MAX_BLOCK_BYTES)
    assert store.get(store.put(largest)) == largest
    with pytest.raises(BlockTooLarge):
        store.put(largest + b"x")
    assert store.usage().blocks == 1


def test_blocks_survive_reopening(store: BlockStore) -> None:
    cid = store.put(b"kept")
    assert BlockStore(store.root).get(cid) == b"kept"


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=1, max_size=64), st.data())
def test_invariant_verified_reads_any_flipped_bit(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, draw: st.DataObject
) -> None:
    store = BlockStore(tmp_path_factory.mktemp("store"))
    cid = store.put(data)
    bit = draw.draw(st.integers(0, len(data) * 8 - 1))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    path_of(store, cid).write_bytes(damaged)
    with pytest.raises(CorruptBlock):
        store.get(cid)
    assert not store.has(cid)
    assert [name.split(".")[0] for name in store.quarantined()] == [cid]
    store.put(data)
    assert store.get(cid) == data


def test_a_folder_where_a_block_should_be_is_set_aside(store: BlockStore) -> None:
    cid = store.put(b"block")
    (path,) = store.root.glob(f"blocks/*/{cid}")
    path.unlink()
    path.mkdir()
    (path / "inside").touch()
    assert not store.has(cid)
    with pytest.raises(CorruptBlock, match="moved"):
        store.get(cid)
    with pytest.raises(BlockNotFound):
        store.get(cid)
    path.mkdir()
    assert store.put(b"block") == cid and store.get(cid) == b"block"
    assert len(store.quarantined()) == 2


@pytest.mark.parametrize("damaged", [b"", b"bloc", b"block and more", bytes(MAX_BLOCK_BYTES + 5)])
def test_invariant_verified_reads_any_other_length(store: BlockStore, damaged: bytes) -> None:
    cid = store.put(b"block")
    path_of(store, cid).write_bytes(damaged)
    with pytest.raises(CorruptBlock):
        store.get(cid)
    with pytest.raises(BlockNotFound):
        store.get(cid)


def test_put_repairs_a_corrupt_block(store: BlockStore) -> None:
    cid = store.put(b"block")
    path_of(store, cid).write_bytes(b"blocK")
    assert store.put(b"block") == cid
    assert store.get(cid) == b"block"


def test_invariant_atomic_writes_interrupted(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure at any step before the rename leaves neither a block nor a temporary file."""
    kept = store.put(b"kept")
    for name in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:

            def fail(*_args: object) -> None:
                raise OSError("disk is gone")

            patch.setattr(blockstore.os, name, fail)
            with pytest.raises(OSError, match="disk is gone"):
                store.put(b"new")
        assert list(store.cids()) == [kept]
        assert list((store.root / "tmp").iterdir()) == []
    assert store.get(store.put(b"new")) == b"new"


def test_invariant_atomic_writes_killed(store: BlockStore) -> None:
    """Files that a killed process leaves in tmp/ are never blocks, and are removed once they are old."""
    kept = store.put(b"kept")
    stray = store.root / "tmp" / "123-abc"
    stray.write_bytes(b"half a blo")
    reopened = BlockStore(store.root)
    assert stray.exists(), "a fresh temporary file may belong to a writer that is alive"
    assert list(reopened.cids()) == [kept] and reopened.get(kept) == b"kept"
    os.utime(stray, (OLD, OLD))
    assert BlockStore(store.root).get(kept) == b"kept"
    assert not stray.exists()


def test_durable_put_syncs_and_cached_put_does_not(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(blockstore.os, "fsync", synced.append)
    store.put_verified(b"cached", Cid.of(b"cached"), durable=False)
    assert synced == []
    store.put(b"durable")
    assert len(synced) >= 2


def test_files_round_trip(store: BlockStore) -> None:
    data = os.urandom(600_000)
    cid = store.add_file(data)
    assert store.read_file(cid, len(data)) == data
    with pytest.raises(unixfs.FileTooLarge):
        store.read_file(cid, len(data) - 1)


def test_gc_keeps_whole_pinned_dags_and_frees_the_rest(store: BlockStore) -> None:
    pinned = small_file(store, bytes(range(60)))
    loose = small_file(store, bytes(range(100, 130)))
    lone = store.put(b"lone")
    kept_blocks = {str(cid) for cid, _ in store.walk(Cid.parse(pinned))}
    before = store.usage()
    store.pin(pinned)
    assert store.pins() == [pinned]
    make_old(store)
    freed = store.gc()
    assert set(store.cids()) == kept_blocks
    assert freed.blocks == before.blocks - len(kept_blocks)
    assert freed.total_bytes == before.total_bytes - store.usage().total_bytes
    assert store.read_file(pinned, 100) == bytes(range(60))
    assert not store.has(loose) and not store.has(lone)


def test_gc_spares_what_was_put_lately(store: BlockStore) -> None:
    old, renewed = store.put(b"old"), store.put(b"renewed")
    make_old(store)
    new = store.put(b"new")
    store.put(b"renewed")
    assert store.gc() == Usage(1, 3)
    assert sorted(store.cids()) == sorted([new, renewed]) and not store.has(old)


class Interrupted(BlockStore):
    """Before each time that it alone may write, somebody else has his turn."""

    def __init__(self, root: Path, turns: list[Callable[[], object]]) -> None:
        super().__init__(root)
        self.turns = turns

    @contextmanager
    def _locked(self, mode: int) -> Iterator[None]:
        if mode == fcntl.LOCK_EX and self.turns:
            self.turns.pop(0)()
        with super()._locked(mode):
            yield


def test_what_is_put_again_while_others_are_dropped_stays(store: BlockStore, one_by_one: None) -> None:
    dead = [store.put(bytes([n])) for n in range(6)]
    make_old(store)
    put: list[str] = []

    def again() -> None:
        left = next(n for n in range(6) if store.has(dead[n]) and dead[n] not in put)
        put.append(store.put(bytes([left])))

    dropping = Interrupted(store.root, [again, again])
    assert dropping.drop(dead, [], 1.0) == Usage(4, 4)
    assert len(put) == 2 and set(store.cids()) == set(put)


def test_what_is_pinned_while_others_are_dropped_stays(store: BlockStore, one_by_one: None) -> None:
    root = small_file(store, bytes(range(40, 60)))
    below = {str(cid) for cid, _ in store.walk(Cid.parse(root))}
    lone = store.put(b"lone")
    make_old(store)
    dropping = Interrupted(store.root, [lambda: store.pin(root)])
    assert dropping.drop([root, lone], [], 1.0) == Usage(1, 4)
    assert set(store.cids()) == below


def test_what_another_process_has_deleted_is_not_missed(store: BlockStore, one_by_one: None) -> None:
    dead = [store.put(bytes([n])) for n in range(3)]
    make_old(store)
    dropping = Interrupted(store.root, [lambda: [path_of(store, cid).unlink() for cid in dead]])
    assert dropping.drop(dead, [], 1.0) == Usage(0, 0)


def test_what_is_kept_or_put_since_it_began_is_not_dropped(store: BlockStore, one_by_one: None) -> None:
    dead, kept = small_file(store, b"abcdefgh"), small_file(store, b"efghijkl")
    make_old(store)
    shared = {str(cid) for cid, _ in store.walk(Cid.parse(kept))}
    clock = [time.time()]
    late = BlockStore(store.root, clock=lambda: clock[0])
    lone = store.put(b"lone")

    def much_later(took_s: float) -> bool:
        clock[0] += 1e6
        return True

    late.drop([dead, lone], [kept], 5.0, much_later)
    assert set(store.cids()) == {*shared, lone}, "the grace is of when it began"


def test_children_are_dropped_before_who_names_them_and_in_the_order_given(
    store: BlockStore, one_by_one: None
) -> None:
    root, lone = small_file(store, bytes(range(60))), store.put(b"lone")
    make_old(store)
    count, seen = store.usage().blocks, list[tuple[bool, bool]]()

    def looked(took_s: float) -> bool:
        seen.append((store.has(root), store.has(lone)))
        return len(seen) < count - 1

    assert store.drop([root, lone], [], 1.0, looked).blocks == count - 1
    assert seen == [(True, True)] * (count - 2) + [(False, True)]


def test_usage_misses_nothing_that_goes_meanwhile(store: BlockStore, monkeypatch: Any) -> None:
    gone, left = store.put(b"gone"), store.put(b"left")
    entries = list(store._entries())
    monkeypatch.setattr(store, "_entries", lambda: iter(entries))
    path_of(store, gone).unlink()
    assert store.usage() == Usage(1, 4) and store.has(left)


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_gc_deletes_nothing_when_a_pinned_inner_node_is_unreadable(store: BlockStore, damage: str) -> None:
    root = small_file(store, bytes(range(60)))
    store.put(b"lone")
    store.pin(root)
    make_old(store)
    count = store.usage().blocks
    if damage == "missing":
        path_of(store, root).unlink()
    else:
        path_of(store, root).write_bytes(b"junk")
    with pytest.raises((BlockNotFound, CorruptBlock)):
        store.gc()
    assert store.usage().blocks == count - 1


def test_pin_needs_the_whole_dag(store: BlockStore) -> None:
    root = small_file(store, bytes(range(60)))
    path_of(store, str(Cid.of(bytes(range(8, 12))))).unlink()
    with pytest.raises(BlockNotFound):
        store.pin(root)
    assert store.pins() == []


def test_foreign_files_are_not_blocks(store: BlockStore) -> None:
    cid = store.put(b"x")
    (path_of(store, cid).parent / ".DS_Store").write_bytes(b"?")
    assert list(store.cids()) == [cid]
    store.gc(grace_s=-10.0)
    assert list(store.cids()) == []


def test_concurrent_puts_of_the_same_block(store: BlockStore) -> None:
    data = os.urandom(100_000)
    threads = [threading.Thread(target=store.put, args=(data,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.usage() == Usage(1, 100_000)
    assert store.get(str(Cid.of(data))) == data
    assert list((store.root / "tmp").iterdir()) == []


def test_walk_gives_each_block_once_depth_first(store: BlockStore) -> None:
    root = small_file(store, b"aaaabbbbaaaacccc")
    order = [cid for cid, _ in store.walk(Cid.parse(root))]
    assert str(order[0]) == root
    leaves = [store.get_block(cid) for cid in order if cid.codec == RAW]
    assert leaves == [b"aaaa", b"bbbb", b"cccc"]


def recorded_syncs(monkeypatch: pytest.MonkeyPatch, store: BlockStore) -> list[int]:
    """How many blocks lay under their names at each sync of the file system; no block is synced by itself."""
    at: list[int] = []
    monkeypatch.setattr(blockstore, "sync_filesystem", lambda folder: at.append(store.usage().blocks))
    monkeypatch.setattr(blockstore.os, "fsync", lambda file: pytest.fail("a block was synced by itself"))
    return at


def test_a_file_is_synced_once_when_all_of_it_is_there(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = recorded_syncs(monkeypatch, store)
    store.add_file(bytes(range(256)) * 4096)  # 1 MiB: four equal chunks are one block, and an inner node
    assert at == [2]
    with store.together():
        for i in range(3):
            store.add_file(bytes([i]) * (300 << 10))
        assert at == [2], "not before its end"
    assert len(at) == 2 and at[1] == store.usage().blocks


def test_what_fails_is_not_said_to_be_durable_and_the_next_is(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = recorded_syncs(monkeypatch, store)
    with pytest.raises(RuntimeError), store.together():
        store.add_file(b"lost")
        raise RuntimeError
    assert at == []
    store.add_file(b"kept")
    assert at == [2]


def test_attack_48_what_a_power_cut_leaves_of_a_file_is_noticed_and_mended(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names without bytes, half a block and a block of zeros: what a journal of names alone may leave."""
    data = b"".join(bytes([i]) * unixfs.CHUNK_BYTES for i in range(5))
    monkeypatch.setattr(blockstore, "sync_filesystem", power_cut)
    with pytest.raises(OSError, match="power"):
        store.add_file(data)
    monkeypatch.undo()
    torn = sorted(store._entries(), key=lambda entry: entry.name)
    for entry, left in zip(torn, (b"", b"x", bytes(unixfs.CHUNK_BYTES)), strict=False):
        Path(entry.path).write_bytes(left)
    again = BlockStore(store.root)
    for entry in torn[:3]:
        with pytest.raises(CorruptBlock):
            again.get(entry.name)
    assert again.read_file(again.add_file(data), len(data)) == data


def power_cut(folder: Path) -> None:
    raise OSError("power cut")


def test_the_file_system_of_a_folder_is_synced_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync.sync_filesystem(tmp_path)
    monkeypatch.setattr(fsync, "_syncfs", lambda: lambda file: -1)
    monkeypatch.setattr(fsync.ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(OSError) as failed:
        fsync.sync_filesystem(tmp_path)
    assert failed.value.errno == errno.EIO
    synced: list[bool] = []
    monkeypatch.setattr(fsync, "_syncfs", lambda: None)
    monkeypatch.setattr(fsync.os, "sync", lambda: synced.append(True))
    fsync.sync_filesystem(tmp_path)
    assert synced == [True]


def test_attack_T56_blocks_leave_room_for_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that strangers' files have filled keeps a node from signing a vote or a move."""
    store, total = BlockStore(tmp_path), 1 << 20
    free = total // 16 + 100
    monkeypatch.setattr(
        "assay.disk.record.shutil.disk_usage", lambda _: SimpleNamespace(total=total, free=free)
    )
    assert store.get(store.put(bytes(100))) == bytes(100)
    with pytest.raises(OSError, match="own records"):
        store.put(bytes(101))
    assert len(list(store.cids())) == 1 and not list((tmp_path / "tmp").iterdir())

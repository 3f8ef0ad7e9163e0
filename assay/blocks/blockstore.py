"""The embedded block store: a directory of files named by CID.

Contract:
- INVARIANT verified-reads: `get` hashes what it read. A block that does not match its CID is moved to
  `quarantine/`, reported as `CorruptBlock`, and absent from then on, so that it can be fetched again.
- INVARIANT atomic-writes: a block appears under its name only by renaming a finished temporary file. A crash
  leaves stray files in `tmp/` (`sweep_temporary` removes them), never a shortened block that passes as whole.
- A durable `put` returns after fsync of file and directory; what is stored `together`, such as a file, after
  one sync of the file system. Blocks that peers can give again may be put without.
- `gc` removes only blocks that no pin reaches and that are older than the grace period; nothing where a
  pinned inner node is missing or corrupt, as what it links to is unknown: it raises.

Several processes on one machine may share a directory (advisory `flock`; POSIX only). Does not guarantee:
protection from somebody who can write to the directory while it is read, or a bound on disk use.

Layout: blocks/<the two characters before the last>/<cid>, pins/<cid>, tmp/, quarantine/, lock.
Source: the sharding is Kubo's flatfs "next-to-last/2".
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import BinaryIO

from assay.blocks import unixfs
from assay.blocks.dagpb import BadDag, children
from assay.blocks.fsync import rename, sync_filesystem
from assay.disk import record
from assay.protocol.cid import DAG_PB, RAW, Cid, is_cid
from assay.protocol.errors import BadCid, BlockNotFound, BlockTooLarge, CorruptBlock

MAX_BLOCK_BYTES = 2 * 1024 * 1024
MAX_DAG_LINKS = 8192
GRACE_S = 3600.0
AT_ONCE = 32
Pause = Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class Usage:
    """Number of stored blocks and their total bytes."""

    blocks: int
    total_bytes: int


def check_size(data: bytes) -> None:
    """Raises `BlockTooLarge` if a block exceeds what nodes store or serve."""
    if len(data) > MAX_BLOCK_BYTES:
        raise BlockTooLarge(
            f"a block of {len(data)} bytes exceeds the limit of {MAX_BLOCK_BYTES}, so no node will carry it",
            hint="store it as a file (add_file), which splits it into chunks",
        )


class BlockStore:
    """Blocks and pins under one directory. Thread-safe.

    `clock` returns seconds since the epoch; `sweep`: remove temporary files that a crash left.
    """

    def __init__(
        self, root: Path | str, *, clock: Callable[[], float] = time.time, sweep: bool = True
    ) -> None:
        self.root, self._clock = Path(root), clock
        self._thread = threading.local()
        self._blocks, self._pins = self.root / "blocks", self.root / "pins"
        self._tmp, self._quarantine = self.root / "tmp", self.root / "quarantine"
        for directory in (self._blocks, self._pins, self._tmp, self._quarantine):
            directory.mkdir(parents=True, exist_ok=True)
        if sweep:
            self.sweep_temporary()

    def put(self, data: bytes, codec: int = RAW) -> str:
        """Store one block durably and return its CID. Raises `BlockTooLarge`."""
        cid = Cid.of(data, codec)
        self.put_verified(data, cid)
        return str(cid)

    def put_verified(self, data: bytes, cid: Cid, *, durable: bool = True) -> None:
        """Stores a block whose CID the caller has just computed or verified. Raises `BlockTooLarge`."""
        check_size(data)
        durable = durable and not getattr(self._thread, "together", False)
        path = self._path(cid)
        with self._locked(fcntl.LOCK_SH):
            stored = read_if_exists(path)
            if stored == data:
                self._touch(path)
                return
            if stored is None and os.path.lexists(path):
                self._set_aside(path)
            self._write(path, data, durable)

    def get(self, cid: str) -> bytes:
        """Reads a block. Raises `BadCid`, `BlockNotFound`, or `CorruptBlock`, after moving the file aside."""
        return self.get_block(Cid.parse(cid))

    def get_block(self, cid: Cid) -> bytes:
        """Like `get`, for a parsed CID."""
        path = self._path(cid)
        data = read_if_exists(path)
        if data is None and not os.path.lexists(path):
            raise self._absent(cid)
        if data is not None and len(data) <= MAX_BLOCK_BYTES and cid.matches(data):
            return data
        raise CorruptBlock(
            f"stored block {cid} does not match its CID; it was moved to {self._set_aside(path)}",
            hint="fetch the block from a peer or add the file again, and check the disk",
        )

    def has(self, cid: str) -> bool:
        """True if a block is stored under this CID, without verifying it. Raises `BadCid`."""
        return self.has_block(Cid.parse(cid))

    def has_block(self, cid: Cid) -> bool:
        """Like `has`, for a parsed CID."""
        return os.path.isfile(self._place(cid))

    def holds(self, cid: str) -> bool:
        """True if the block and all below it are stored; leaves are not verified. Raises `BadCid`."""
        try:
            return all(True for _ in self.walk(Cid.parse(cid)))
        except (BadDag, BlockNotFound, CorruptBlock):
            return False

    def size(self, cid: Cid) -> int:
        """Bytes of a stored block's file. Raises `BlockNotFound`."""
        try:
            return self._path(cid).stat().st_size
        except OSError as error:
            raise self._absent(cid) from error

    def _absent(self, cid: Cid) -> BlockNotFound:
        what = f"block {cid} is not in the local store {self.root}"
        return BlockNotFound(what, hint="fetch it from a peer, or add the file again")

    def cids(self) -> Iterator[str]:
        """The CIDs of all stored blocks, in no particular order; foreign files are skipped."""
        for entry in self._entries():
            yield entry.name

    def usage(self) -> Usage:
        """Counts blocks and bytes by listing the directory."""
        sizes = []
        for entry in self._entries():
            with suppress(FileNotFoundError):  # deleted meanwhile
                sizes.append(entry.stat().st_size)
        return Usage(len(sizes), sum(sizes))

    def quarantined(self) -> list[str]:
        """Names of the files that were set aside as corrupt: `<cid>.<random>`."""
        return sorted(entry.name for entry in os.scandir(self._quarantine))

    def add_file(self, data: bytes | BinaryIO) -> str:
        """Store a file as UnixFS (durably, by one sync) and return its root CID."""
        with self.together():
            return str(unixfs.add_file(data, self.put_verified))

    @contextmanager
    def together(self) -> Iterator[None]:
        """Makes blocks that this thread stores within the `with` block durable by one sync of the file system
        at its end, instead of two per block. Not durable after an error."""
        if getattr(self._thread, "together", False):
            yield
            return
        self._thread.together = True
        try:
            yield
        finally:
            self._thread.together = False
        sync_filesystem(self.root)

    def read_file(self, cid: str, max_bytes: int) -> bytes:
        """The whole file. Raises `BadDag`, `FileTooLarge`, `BlockNotFound`, `CorruptBlock`."""
        return unixfs.read_file(Cid.parse(cid), self.get_block, unixfs.Limits(max_bytes))

    def holes(self, cid: str, max_bytes: int, order: Random, most: int) -> list[range]:
        """Byte ranges of a file's unavailable blocks (`unixfs.holes`). Raises `BadCid`."""
        return unixfs.holes(Cid.parse(cid), self.get_block, unixfs.Limits(max_bytes), order, most)

    def walk(self, root: Cid, *, whole: bool = True) -> Iterator[tuple[Cid, bytes | None]]:
        """Yields `(cid, data)` of the DAG below `root`, each block once, depth first; data is None for raw
        blocks, which are not read.

        Raises `BadDag`, `CorruptBlock`, and `BlockNotFound` if an inner node is missing, or with `whole` any
        block.
        """
        seen: set[Cid] = set()
        stack = [root]
        while stack:
            cid = stack.pop()
            if cid in seen:
                continue
            seen.add(cid)
            if cid.codec == DAG_PB:
                data = self.get_block(cid)
                stack.extend(reversed(children(cid, data, MAX_DAG_LINKS)))
                yield cid, data
            elif not whole or self.has_block(cid):
                yield cid, None
            else:
                raise BlockNotFound(
                    f"block {cid} of DAG {root} is not in the local store", hint="fetch the whole DAG first"
                )

    def pin(self, cid: str) -> None:
        """Protects a whole DAG from `gc`. Raises `BlockNotFound` if any of its blocks is missing."""
        root = Cid.parse(cid)
        with self._locked(fcntl.LOCK_SH):
            for _ in self.walk(root):
                pass
            self._write(self._pins / cid, b"", durable=True)

    def pins(self) -> list[str]:
        """The pinned root CIDs, sorted."""
        return sorted(name for name in os.listdir(self._pins) if is_cid(name))

    def gc(self, grace_s: float = GRACE_S, kept: Iterable[str] = ()) -> Usage:
        """Deletes blocks last put more than `grace_s` ago that neither pins nor `kept` reach; returns what
        was freed.

        Raises `BlockNotFound`, `CorruptBlock` or `BadDag`, and deletes nothing, for a bad pinned inner node.
        """
        with self._locked(fcntl.LOCK_EX):
            stays = {str(cid) for cid in (*self._reachable(), *self._found_below(kept))}
            newest = self._clock() - grace_s
            blocks = freed = 0
            for entry in list(self._entries()):
                about = entry.stat()
                if entry.name in stays or about.st_mtime > newest:
                    continue
                os.unlink(entry.path)
                blocks, freed = blocks + 1, freed + about.st_size
            return Usage(blocks, freed)

    def drop(
        self, dead: Iterable[str], kept: Iterable[str], grace_s: float, pause: Pause = lambda took_s: True
    ) -> Usage:
        """Deletes the DAGs below `dead`, in order and from their leaves up; returns what was freed. Raises as
        `gc`.

        Blocks that a pin or a DAG of `kept` reaches stay, as do those put less than `grace_s` ago. After
        every `AT_ONCE` blocks `pause` is called with the time taken, and says whether to go on.
        """
        with self._locked(fcntl.LOCK_SH):
            newest, pins, found = self._clock() - grace_s, self.pins(), self._found_below(dead)
            stay = {*self._found_below(kept), *self._reachable()} if found else set()
        gone, blocks, freed = [cid for cid in found if cid not in stay], 0, 0
        for first in range(0, len(gone), AT_ONCE):
            begun = time.monotonic()
            with self._locked(fcntl.LOCK_EX):
                stays = self._reachable() if self.pins() != pins else ()  # pinned meanwhile
                for cid in gone[first : first + AT_ONCE]:
                    with suppress(FileNotFoundError):
                        about = os.stat(path := self._place(cid))
                        if about.st_mtime <= newest and cid not in stays:
                            os.unlink(path)
                            blocks, freed = blocks + 1, freed + about.st_size
            if not pause(time.monotonic() - begun):
                break
        return Usage(blocks, freed)

    def _found_below(self, roots: Iterable[str]) -> list[Cid]:
        """CIDs of stored blocks below these roots, as far as inner nodes are stored; children first."""
        seen: dict[Cid, None] = {}
        for root in roots:
            below: dict[Cid, None] = {}
            with suppress(BlockNotFound, CorruptBlock, BadCid, BadDag):
                below.update((cid, None) for cid, _ in self.walk(Cid.parse(root), whole=False))
            seen |= reversed(below.items())
        return [cid for cid in seen if self.has_block(cid)]

    def sweep_temporary(self, older_than_s: float = GRACE_S) -> int:
        """Removes temporary files of interrupted writes; returns their number."""
        removed = 0
        for entry in os.scandir(self._tmp):
            with suppress(FileNotFoundError):
                if entry.stat().st_mtime <= self._clock() - older_than_s:
                    os.unlink(entry.path)
                    removed += 1
        return removed

    def _reachable(self) -> set[Cid]:
        """CIDs below all pins. A missing leaf has no children, so only inner nodes must be readable."""
        seen: set[Cid] = set()
        stack = [Cid.parse(name) for name in self.pins()]
        while stack:
            cid = stack.pop()
            if cid not in seen:
                seen.add(cid)
                if cid.codec == DAG_PB:
                    stack.extend(children(cid, self.get_block(cid), MAX_DAG_LINKS))
        return seen

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        for shard in os.scandir(self._blocks):
            if shard.is_dir():
                yield from (entry for entry in os.scandir(shard.path) if is_cid(entry.name))

    def _place(self, cid: Cid) -> str:
        name = str(cid)
        return f"{self._blocks}/{name[-3:-1]}/{name}"

    def _path(self, cid: Cid) -> Path:
        return Path(self._place(cid))

    def _write(self, path: Path, data: bytes, durable: bool) -> None:
        if data:
            record.require_spare(self._tmp, len(data))
        temporary = self._tmp / f"{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
            rename(temporary, path, durable)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        if durable:
            record.sync_folder(path.parent)

    def _touch(self, path: Path) -> None:
        now = self._clock()
        os.utime(path, (now, now))

    def _set_aside(self, path: Path) -> Path:
        target = self._quarantine / f"{path.name}.{secrets.token_hex(4)}"
        with suppress(FileNotFoundError):
            os.replace(path, target)
        return target

    @contextmanager
    def _locked(self, mode: int) -> Iterator[None]:
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, mode)
            yield
        finally:
            os.close(fd)


def read_if_exists(path: Path) -> bytes | None:
    """Reads at most one byte more than a block may have, so that an oversized file is detected without
    reading it all.

    None also if the path is not a file, or the disk cannot read it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return None
        room = min(about.st_size, MAX_BLOCK_BYTES + 1)
        data = os.read(fd, room)
        while len(data) < room and (more := os.read(fd, room - len(data))):
            data += more
        return data
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
    finally:
        os.close(fd)

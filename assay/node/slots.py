"""Stores, reads and caches states slot by slot.

Contract: a state is published as an index (docs/formats.md, F3.3) with the tensor root and file CID of each
slot. The file has the tensor's bytes, or its integers packed to the bits they need. An unchanged slot is the
same file, so it is neither stored nor sent twice. `SlotReader` checks every tensor against the root of its
entry; a file that fails is refused, by name, and counts as missing. Not guaranteed: that an entry belongs to
any state; ``node.checkpoints`` checks its roots against the claim's.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Generic, TypeVar
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from assay.node.slot_index import (
    MAX_INDEX_BYTES,
    UNFETCHABLE,
    SlotFile,
    Slots,
    decode_index,
    encode_index,
    state_root_of,
)
from assay.numerics.encoding import EncodingError, from_bytes, to_bytes
from assay.numerics.packed import packed, unpacked, width
from assay.program import hashing_threads
from assay.program.isa import DType, Node
from assay.program.kernels import TORCH_DTYPES
from assay.program.state import begin_roots
from assay.program.streamed import Place
from assay.protocol.errors import BadCid
from assay.protocol.ports import Blocks, LocalBlocks

log = logging.getLogger(__name__)

K = TypeVar("K")
TensorKey = tuple[bytes, torch.dtype, tuple[int, ...]]
"""Root, dtype and shape."""
PARALLEL = 4
"""Number of slots of one state that are fetched concurrently."""
Roots = Callable[[], list[bytes]]
"""Waits for the tensor roots of a state's slots, in order."""


@dataclass(frozen=True)
class StoredState:
    """A state in the block store: root, CID of the index, and slots."""

    root: bytes
    cid: str
    """CID of the index."""
    slots: Slots


class KnownSlots:
    """Caches the slots of the last hashed or stored state while their tensors are alive.

    A step returns unchanged slots as the same tensor (``program.execute``), and tensors are never changed in
    place: such a slot is not hashed or stored again. Not guaranteed: that its root was right or its file is
    still intact; whoever commits to a state stores it with an empty cache.
    """

    def __init__(self) -> None:
        self._slots: dict[int, tuple[ReferenceType[Tensor], SlotFile]] = {}

    def of(self, tensor: Tensor) -> SlotFile | None:
        """Slot of this tensor object; its CID is "" if it was only hashed. None if unknown."""
        known = self._slots.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def keep(self, state: Sequence[Tensor], slots: Sequence[SlotFile]) -> None:
        """Replaces the cache by these slots."""
        self._slots = {id(x): (ref(x), slot) for x, slot in zip(state, slots, strict=True)}


def hash_state(state: Sequence[Tensor], known: KnownSlots) -> bytes:
    """Computes the root of a state without storing it, and fills `known`."""
    there, rooted = _begin(state, known)
    slots = rooted([SlotFile(b"", "") if slot is None else slot for slot in there])
    known.keep(state, slots)
    return state_root_of(slots)


def store_state(
    blocks: Blocks, state: Sequence[Tensor], known: KnownSlots | None = None, begun: Roots | None = None
) -> StoredState:
    """Stores a state's slots and index; hashes it meanwhile, unless `begun` already does.

    Equal slots share a file. Slots in `known` whose files are in `blocks` are reused; `known` is updated.
    """
    known = KnownSlots() if known is None else known
    there, rooted = _begin(state, known, begun)
    with blocks.together():
        files = [
            store_slot(blocks, x) if slot is None or not slot.cid or not blocks.has(slot.cid) else slot
            for x, slot in zip(state, there, strict=True)
        ]
        slots = rooted(files)
        stored = StoredState(state_root_of(slots), blocks.add_file(encode_index(slots)), slots)
    known.keep(state, slots)
    return stored


def _begin(
    state: Sequence[Tensor], known: KnownSlots, begun: Roots | None = None
) -> tuple[list[SlotFile | None], Callable[[Sequence[SlotFile]], Slots]]:
    """Starts hashing the unknown slots; returns the known ones and a function that adds roots to files."""
    there = [known.of(x) if begun is None else None for x in state]
    roots = begun or begin_roots([x for x, slot in zip(state, there, strict=True) if slot is None])

    def rooted(files: Sequence[SlotFile]) -> Slots:
        fresh = iter(roots())
        pairs = zip(files, there, strict=True)
        return tuple(replace(file, root=next(fresh) if slot is None else slot.root) for file, slot in pairs)

    return there, rooted


def store_slot(blocks: Blocks, tensor: Tensor) -> SlotFile:
    """Stores a slot's file; the root is still empty."""
    bits = width(tensor)
    return SlotFile(b"", blocks.add_file(packed(tensor, bits) if bits else bytes(to_bytes(tensor))), bits)


def read_slot(blocks: Blocks, slot: SlotFile, node: Node) -> Tensor:
    """Reads the tensor of a slot's file, without checking its root.

    Raises EncodingError for a file that is not the canonical encoding of its tensor, and what `read_file`
    raises.
    """
    if slot.bits and node.dtype != DType.I32:
        raise EncodingError(f"it is packed to {slot.bits} bits and has dtype {node.dtype.name}")
    data = blocks.read_file(slot.cid, slot.file_bytes(node))
    if slot.bits:
        return unpacked(data, slot.bits, node.shape)
    tensor = from_bytes(data, TORCH_DTYPES[node.dtype], node.shape)
    if bits := width(tensor):
        raise EncodingError(f"its numbers take {bits} bits, and it is not packed")
    return tensor


class Used(Generic[K]):
    """Tracks keys used during the last two turns; calls `drop` for each other key."""

    def __init__(self, drop: Callable[[K], object]) -> None:
        self._drop, self._now, self._before = drop, set[K](), set[K]()

    def add(self, key: K) -> None:
        """Marks a key as used."""
        self._now.add(key)

    def turn(self) -> None:
        """Drops the keys that were not used since the previous turn."""
        for key in self._before - self._now:
            self._drop(key)
        self._before, self._now = self._now, set()


class TensorCache:
    """LRU cache of tensors by root, dtype and shape, with a byte budget."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._tensors: OrderedDict[TensorKey, Tensor] = OrderedDict()
        self._bytes = 0

    def get(self, key: TensorKey) -> Tensor | None:
        """The cached tensor of a slot, or None."""
        if key in self._tensors:
            self._tensors.move_to_end(key)
        return self._tensors.get(key)

    def drop(self, key: TensorKey) -> None:
        """Removes one tensor."""
        dropped = self._tensors.pop(key, None)
        if dropped is not None:
            self._bytes -= dropped.numel() * dropped.element_size()

    def clear(self) -> None:
        """Removes all tensors."""
        self._tensors.clear()
        self._bytes = 0

    def put(self, key: TensorKey, tensor: Tensor) -> None:
        """Adds a tensor under its root, dtype and shape."""
        if key in self._tensors:
            return
        self._tensors[key] = tensor
        self._bytes += tensor.numel() * tensor.element_size()
        while self._bytes > self._capacity and len(self._tensors) > 1:
            self.drop(next(iter(self._tensors)))


@cache
def _fetchers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(PARALLEL, thread_name_prefix="slots")


class SlotReader:
    """Reads slots from memory, local blocks or other nodes."""

    def __init__(self, blocks: Blocks, cache: TensorCache, place: Place | None = None) -> None:
        """`cache` may be shared with other readers. `place`: where tensors belong, which are then read one
        at a time, so that one slot at most is in memory; None: in memory."""
        self.blocks, self.cache, self._place = blocks, cache, place
        self.used = Used[TensorKey](lambda key: self.cache.drop(key))
        self._refused: set[tuple[bytes, str]] = set()

    def forget(self) -> None:
        """Clears the cache."""
        self.cache.clear()

    def keep(self, slots: Iterable[SlotFile], state: Iterable[Tensor]) -> None:
        """Caches tensors under these slots' roots."""
        for slot, tensor in zip(slots, state, strict=True):
            self._put(slot.root, tensor)

    def _get(self, root: bytes, node: Node) -> Tensor | None:
        key = root, TORCH_DTYPES[node.dtype], node.shape
        self.used.add(key)
        return self.cache.get(key)

    def _put(self, root: bytes, tensor: Tensor) -> None:
        key = root, tensor.dtype, tuple(tensor.shape)
        self.used.add(key)
        self.cache.put(key, tensor)

    def index(self, cid: str, count: int) -> Slots | None:
        """Reads the entries of an index; None if unavailable or malformed."""
        try:
            return decode_index(self.blocks.read_file(cid, MAX_INDEX_BYTES), count)
        except (*UNFETCHABLE, ValueError):
            return None

    def remembered(self, slots: Sequence[SlotFile], nodes: Sequence[Node]) -> list[Tensor] | None:
        """Tensors of these slots, if all of them are in memory."""
        found = [self._get(slot.root, node) for slot, node in zip(slots, nodes, strict=True)]
        kept = [tensor for tensor in found if tensor is not None]
        return kept if len(kept) == len(found) else None

    def missing_bytes(self, slots: Sequence[SlotFile], nodes: Sequence[Node]) -> int:
        """Total file bytes of the slots that are neither in memory nor (partly) local, each file once."""
        absent = {
            slot.cid or slot.root.hex(): slot.file_bytes(node)
            for slot, node in zip(slots, nodes, strict=True)
            if self._get(slot.root, node) is None and not (slot.cid and self._has(slot.cid))
        }
        return sum(absent.values())

    def holds(self, cid: str) -> bool:
        """True if all blocks of a file are local; False if that is unknown."""
        try:
            return isinstance(self.blocks, LocalBlocks) and self.blocks.holds(cid)
        except BadCid:
            return False

    def _has(self, cid: str) -> bool:
        try:
            return self.blocks.has(cid)
        except BadCid:
            return False

    def tensors(self, slots: Sequence[SlotFile], nodes: Sequence[Node]) -> list[Tensor | None]:
        """Tensors of these slots; None for each unavailable one."""
        found = [self._get(slot.root, node) for slot, node in zip(slots, nodes, strict=True)]
        wanted: dict[tuple[object, ...], list[int]] = {}
        for i, tensor in enumerate(found):
            if tensor is None:
                wanted.setdefault((slots[i], nodes[i].dtype, nodes[i].shape), []).append(i)
        firsts = [places[0] for places in wanted.values()]
        each = map if len(firsts) < 2 or self._place is not None else _fetchers().map
        read = each(self._read, [slots[i] for i in firsts], [nodes[i] for i in firsts])
        for places, tensor in zip(wanted.values(), read, strict=True):
            for i in places:
                found[i] = tensor
            if tensor is not None:
                self._put(slots[places[0]].root, tensor)
        return found

    def _read(self, slot: SlotFile, node: Node) -> Tensor | None:
        """Reads a slot from its file; None if unavailable or not of its root."""
        if not slot.cid:
            return None
        try:
            tensor = read_slot(self.blocks, slot, node)
        except UNFETCHABLE:
            return None
        except EncodingError as error:
            self._refuse(slot, str(error))
            return None
        if hashing_threads.tensor_root(tensor) != slot.root:
            self._refuse(slot, "it is another tensor")
            return None
        return tensor if self._place is None else self._place(tensor)

    def _refuse(self, slot: SlotFile, why: str) -> None:
        if (slot.root, slot.cid) not in self._refused:
            self._refused.add((slot.root, slot.cid))
            log.warning("file %s is refused as the slot of root %s: %s", slot.cid, slot.root.hex(), why)

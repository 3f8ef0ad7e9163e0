"""A state slot by slot: where each slot's bytes are, and the tensors that this process has at hand.

Contract: a state is published as an index (docs/formats.md, F3.3): for each slot its tensor root and the CID
of a file with its bytes, or with its whole numbers packed to the bits that they need. A slot that has not
changed is the same file, so it is neither stored nor sent twice. A tensor that `SlotReader` returns has the
root that its entry says; a file that has not is refused, by name, and counts as missing. Not guaranteed: that
an entry belongs to any state; ``node.checkpoints`` leads its roots to the state root that a claim committed
to.
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
from assay.protocol.errors import BadCid
from assay.protocol.ports import Blocks, Holding

log = logging.getLogger(__name__)

K = TypeVar("K")
TensorKey = tuple[bytes, torch.dtype, tuple[int, ...]]
"""Root, dtype and shape."""
PARALLEL = 4
"""Slots of one state that are fetched at the same time."""
Roots = Callable[[], list[bytes]]
"""Waits for the tensor roots of a state's slots, in order."""


@dataclass(frozen=True)
class StoredState:
    """A state in the block store."""

    root: bytes
    cid: str
    """Of its index."""
    slots: Slots


class KnownSlots:
    """The slots of the state that was hashed or stored last, for as long as their tensors are in use.

    What a step does not change is the same tensor after it (``program.execute``), and tensors are never
    changed in place: such a slot is neither hashed nor stored again. Not guaranteed: that its root was right,
    or that its file is whole still; whoever commits to a state stores it with none known."""

    def __init__(self) -> None:
        self._slots: dict[int, tuple[ReferenceType[Tensor], SlotFile]] = {}

    def of(self, tensor: Tensor) -> SlotFile | None:
        """The slot of this very tensor, where it is known; its CID is "" where it was only hashed."""
        known = self._slots.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def keep(self, state: Sequence[Tensor], slots: Sequence[SlotFile]) -> None:
        """Know these slots, and none that was known before."""
        self._slots = {id(x): (ref(x), slot) for x, slot in zip(state, slots, strict=True)}


def hash_state(state: Sequence[Tensor], known: KnownSlots) -> bytes:
    """The root of a state that is not stored; its slots are `known` afterwards."""
    there, rooted = _begin(state, known)
    slots = rooted([SlotFile(b"", "") if slot is None else slot for slot in there])
    known.keep(state, slots)
    return state_root_of(slots)


def store_state(
    blocks: Blocks, state: Sequence[Tensor], known: KnownSlots | None = None, begun: Roots | None = None
) -> StoredState:
    """Store a state's slots and its index; it is hashed meanwhile, unless that was `begun`. Equal slots are
    one file. Those that are `known` are taken from there, as long as `blocks` has their files; all of them
    are afterwards."""
    known = KnownSlots() if known is None else known
    there, rooted = _begin(state, known, begun)
    with blocks.together():
        files = [
            _stored(blocks, x) if slot is None or not slot.cid or not blocks.has(slot.cid) else slot
            for x, slot in zip(state, there, strict=True)
        ]
        slots = rooted(files)
        stored = StoredState(state_root_of(slots), blocks.add_file(encode_index(slots)), slots)
    known.keep(state, slots)
    return stored


def _begin(
    state: Sequence[Tensor], known: KnownSlots, begun: Roots | None = None
) -> tuple[list[SlotFile | None], Callable[[Sequence[SlotFile]], Slots]]:
    """The slots that are known, and what gives each file its root; the other slots are hashed meanwhile."""
    there = [known.of(x) if begun is None else None for x in state]
    roots = begun or begin_roots([x for x, slot in zip(state, there, strict=True) if slot is None])

    def rooted(files: Sequence[SlotFile]) -> Slots:
        fresh = iter(roots())
        pairs = zip(files, there, strict=True)
        return tuple(replace(file, root=next(fresh) if slot is None else slot.root) for file, slot in pairs)

    return there, rooted


def _stored(blocks: Blocks, tensor: Tensor) -> SlotFile:
    """The file of a slot, without its root."""
    bits = width(tensor)
    return SlotFile(b"", blocks.add_file(packed(tensor, bits) if bits else bytes(to_bytes(tensor))), bits)


def read_slot(blocks: Blocks, slot: SlotFile, node: Node) -> Tensor:
    """The tensor in a slot's file, which need not have its root. Raises EncodingError for a file that is not
    the one form of its tensor, and what `read_file` raises."""
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
    """Keys that were used since the last two turns; `drop` is told of each that was not."""

    def __init__(self, drop: Callable[[K], object]) -> None:
        self._drop, self._now, self._before = drop, set[K](), set[K]()

    def add(self, key: K) -> None:
        """It is used."""
        self._now.add(key)

    def turn(self) -> None:
        """Let go of what was not used since the turn before."""
        for key in self._before - self._now:
            self._drop(key)
        self._before, self._now = self._now, set()


class TensorCache:
    """Tensors by root, dtype and shape, the least recently used dropped beyond a number of bytes."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._tensors: OrderedDict[TensorKey, Tensor] = OrderedDict()
        self._bytes = 0

    def get(self, key: TensorKey) -> Tensor | None:
        """The tensor of a slot, if it is here."""
        if key in self._tensors:
            self._tensors.move_to_end(key)
        return self._tensors.get(key)

    def drop(self, key: TensorKey) -> None:
        """Let one of them go."""
        dropped = self._tensors.pop(key, None)
        if dropped is not None:
            self._bytes -= dropped.numel() * dropped.element_size()

    def clear(self) -> None:
        """Let all of them go."""
        self._tensors.clear()
        self._bytes = 0

    def put(self, key: TensorKey, tensor: Tensor) -> None:
        """Keep a tensor of this root, dtype and shape."""
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
    """Slots from memory, from this node's blocks, or from others'."""

    def __init__(self, blocks: Blocks, cache: TensorCache) -> None:
        """`cache`: of this reader, or of several."""
        self.blocks, self.cache = blocks, cache
        self.used = Used[TensorKey](lambda key: self.cache.drop(key))
        self._refused: set[tuple[bytes, str]] = set()

    def forget(self) -> None:
        """Have no tensor in memory."""
        self.cache.clear()

    def keep(self, slots: Iterable[SlotFile], state: Iterable[Tensor]) -> None:
        """Remember tensors that have these roots."""
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
        """The entries of an index; None where it cannot be had, or is none."""
        try:
            return decode_index(self.blocks.read_file(cid, MAX_INDEX_BYTES), count)
        except (*UNFETCHABLE, ValueError):
            return None

    def remembered(self, slots: Sequence[SlotFile], nodes: Sequence[Node]) -> list[Tensor] | None:
        """These slots' tensors, if all of them are in memory."""
        found = [self._get(slot.root, node) for slot, node in zip(slots, nodes, strict=True)]
        kept = [tensor for tensor in found if tensor is not None]
        return kept if len(kept) == len(found) else None

    def missing_bytes(self, slots: Sequence[SlotFile], nodes: Sequence[Node]) -> int:
        """Bytes of those slots that are neither in memory nor begun to be held here, each file once."""
        absent = {
            slot.cid or slot.root.hex(): slot.file_bytes(node)
            for slot, node in zip(slots, nodes, strict=True)
            if self._get(slot.root, node) is None and not (slot.cid and self._has(slot.cid))
        }
        return sum(absent.values())

    def holds(self, cid: str) -> bool:
        """Whether all blocks of a file are in this node's own; no where that cannot be told."""
        try:
            return isinstance(self.blocks, Holding) and self.blocks.holds(cid)
        except BadCid:
            return False

    def _has(self, cid: str) -> bool:
        try:
            return self.blocks.has(cid)
        except BadCid:
            return False

    def tensors(self, slots: Sequence[SlotFile], nodes: Sequence[Node]) -> list[Tensor | None]:
        """These slots' tensors; None for each that cannot be had."""
        found = [self._get(slot.root, node) for slot, node in zip(slots, nodes, strict=True)]
        wanted: dict[tuple[object, ...], list[int]] = {}
        for i, tensor in enumerate(found):
            if tensor is None:
                wanted.setdefault((slots[i], nodes[i].dtype, nodes[i].shape), []).append(i)
        firsts = [places[0] for places in wanted.values()]
        each = map if len(firsts) < 2 else _fetchers().map
        read = each(self._read, [slots[i] for i in firsts], [nodes[i] for i in firsts])
        for places, tensor in zip(wanted.values(), read, strict=True):
            for i in places:
                found[i] = tensor
            if tensor is not None:
                self._put(slots[places[0]].root, tensor)
        return found

    def _read(self, slot: SlotFile, node: Node) -> Tensor | None:
        """A slot out of its file, if it has its root."""
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
        return tensor

    def _refuse(self, slot: SlotFile, why: str) -> None:
        if (slot.root, slot.cid) not in self._refused:
            self._refused.add((slot.root, slot.cid))
            log.warning("file %s is refused as the slot of root %s: %s", slot.cid, slot.root.hex(), why)

"""Encodes and decodes the index of a published state: the tensor root and file CID of each slot.

Contract: strict both ways (docs/formats.md, F3.3); a decoded index encodes to the same bytes. Not guaranteed:
that an entry belongs to any state; ``node.checkpoints`` checks its roots against the claim's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from assay.numerics.packed_size import HEADER_BYTES, MAX_WIDTH, packed_bytes
from assay.program.isa import MAX_SLOTS, Node
from assay.protocol import trees
from assay.protocol.cid import CID_BYTES, Cid
from assay.protocol.errors import (
    BadCid,
    BadFile,
    BlockNotFound,
    BlockTooLarge,
    CorruptBlock,
    PeerUnreachable,
)

UNFETCHABLE = (BlockNotFound, CorruptBlock, PeerUnreachable, BlockTooLarge, BadCid, BadFile)
ROOT_BYTES = 32
ENTRY_BYTES = ROOT_BYTES + 1 + CID_BYTES
MAX_INDEX_BYTES = MAX_SLOTS * ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class SlotFile:
    """File of a slot: tensor root (32 bytes), CID ("" if unknown), and bits per number, 0 if not packed."""

    root: bytes
    cid: str
    bits: int = 0

    def file_bytes(self, node: Node) -> int:
        """Length of the file in bytes, for the slot `node`."""
        return packed_bytes(prod(node.shape), self.bits) if self.bits else node.bytes

    def bytes_of(self, span: range, node: Node) -> range:
        """Byte range of the slot that a byte range of its file holds."""
        if not self.bits:
            return span
        first = max(span.start - HEADER_BYTES, 0) * 8 // self.bits
        last = -(-max(span.stop - HEADER_BYTES, 0) * 8 // self.bits)
        return range(4 * first, min(4 * max(last, first + 1), node.bytes))


Slots = tuple[SlotFile, ...]
"""Entries of a state's slots, in order."""


def encode_index(slots: Sequence[SlotFile]) -> bytes:
    """Encodes the index file of a state. Raises BadCid."""
    return b"".join(slot.root + bytes([slot.bits]) + Cid.parse(slot.cid).to_bytes() for slot in slots)


def decode_index(data: bytes, count: int) -> Slots:
    """Decodes an index file of `count` slots. Raises ValueError for anything else."""
    if len(data) != count * ENTRY_BYTES:
        raise ValueError(f"an index of {count} slots has {count * ENTRY_BYTES} bytes, given {len(data)}")
    found = []
    for at in range(0, len(data), ENTRY_BYTES):
        root, bits = data[at : at + ROOT_BYTES], data[at + ROOT_BYTES]
        if bits > MAX_WIDTH:
            raise ValueError(f"slot {at // ENTRY_BYTES} is packed to {bits} bits, at most {MAX_WIDTH} are")
        try:
            cid = Cid.from_bytes(data[at + ROOT_BYTES + 1 : at + ENTRY_BYTES])
        except BadCid as error:
            raise ValueError(f"slot {at // ENTRY_BYTES} names no CID of a block") from error
        found.append(SlotFile(root, str(cid), bits))
    return tuple(found)


def state_root_of(slots: Sequence[SlotFile]) -> bytes:
    """Root of the state with these slots."""
    return trees.root([slot.root for slot in slots])

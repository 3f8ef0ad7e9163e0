"""Reads and caches the states that claims publish.

Contract: everything read is checked against the root that the claim committed to: an index by its tensor
roots, a slot by its own root. A manifest, index or slot file that fails the check counts as withheld.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

from torch import Tensor

from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint, Gap, read_checkpoints
from assay.node.manifests import BadManifest
from assay.node.slot_index import UNFETCHABLE, SlotFile, Slots, state_root_of
from assay.node.slots import KnownSlots, Roots, SlotReader, Used, store_state
from assay.program.isa import Node, Program
from assay.protocol.ports import Blocks
from assay.protocol.types import ClaimId, ClaimView


def publish_state(
    blocks: Blocks, state: Sequence[Tensor], known: KnownSlots | None = None, begun: Roots | None = None
) -> Checkpoint:
    """Stores a state slot by slot, except slots that are `known`; hashes it meanwhile, unless `begun` already
    does."""
    stored = store_state(blocks, state, known, begun)
    return Checkpoint(stored.cid, stored.root)


class Published:
    """States of one job that claims publish or this process has computed."""

    def __init__(self, blocks: Blocks, reader: SlotReader) -> None:
        self.blocks, self.reader = blocks, reader
        self._checkpoints: dict[ClaimId, tuple[Checkpoint, ...]] = {}
        self._hidden: set[ClaimId] = set()
        """Claims whose manifest is unavailable or refused."""
        self._slots: dict[tuple[bytes, int], Slots] = {}
        """Slots of known states, by root and slot count: a claim may name the root of another program's
        state."""
        self._used_claims = Used[ClaimId](self._forget)
        self._used_slots = Used[tuple[bytes, int]](lambda key: self._slots.pop(key, None))

    def turn(self) -> None:
        """Drops entries that were not used since the previous turn."""
        self._used_claims.turn()
        self._used_slots.turn()

    def _forget(self, claim_id: ClaimId) -> None:
        self._hidden.discard(claim_id)
        self._checkpoints.pop(claim_id, None)

    def _known(self, root: bytes, count: int) -> Slots | None:
        """Slots of a known state."""
        self._used_slots.add((root, count))
        return self._slots.get((root, count))

    def learn(self, root: bytes, slots: Slots) -> None:
        """Records the slots of the state with this root."""
        if self._known(root, len(slots)) is None:
            self._slots[root, len(slots)] = slots

    def checkpoints(self, view: ClaimView) -> tuple[Checkpoint, ...]:
        """Roots of the leaves of a claim's segments tree, with their indices' CIDs ("" if unpublished)."""
        self._used_claims.add(view.claim_id)
        if view.claim_id not in self._checkpoints:
            try:
                found = read_checkpoints(self.blocks, view.claim.manifest, view.roots)
            except (BadManifest, *UNFETCHABLE):
                found = tuple(Checkpoint("", root) for root in view.roots)
                self._hidden.add(view.claim_id)
            self._checkpoints[view.claim_id] = found
        return self._checkpoints[view.claim_id]

    def unpublished(self, view: ClaimView) -> None:
        """Records that a claim publishes nothing, so that nothing is requested."""
        self._used_claims.add(view.claim_id)
        self._checkpoints[view.claim_id] = tuple(Checkpoint("", root) for root in view.roots)

    def retry_manifest(self, claim_id: ClaimId) -> None:
        """Allows another request for the manifest, if the last one failed."""
        if claim_id in self._hidden:
            self._forget(claim_id)

    def slots(self, view: ClaimView, leaf: int, program: Program) -> Slots | None:
        """Slots of a claim's state, if known or published; their roots hash to the claim's."""
        return self._known(view.roots[leaf], program.slots) or self._files(view, leaf, program)

    def _files(self, view: ClaimView, leaf: int, program: Program) -> Slots | None:
        """Slots of a claim's state with their published files; None if unpublished or wrong."""
        root, cid = view.roots[leaf], self.checkpoints(view)[leaf].cid
        found = self.reader.index(cid, program.slots) if cid else None
        if found is None or state_root_of(found) != root:
            return None
        self._used_slots.add((root, len(found)))
        self._slots[root, len(found)] = found
        return found

    def is_here(self, view: ClaimView, leaf: int, program: Program) -> bool:
        """True if all blocks of a claim's state are local, under the CIDs that it names."""
        cid = self.checkpoints(view)[leaf].cid
        if not cid or not self.reader.holds(cid):
            return False
        slots = self._files(view, leaf, program)
        return slots is not None and all(self.reader.holds(slot.cid) for slot in slots)

    def remembered(self, root: bytes, program: Program) -> State | None:
        """The state with this root, if all of it is in memory."""
        slots = self._known(root, program.slots)
        return None if slots is None else self.reader.remembered(slots, program.state)

    def state(self, view: ClaimView, leaf: int, program: Program) -> State | None:
        """A whole state; None if a slot is unavailable."""
        found = self.some(view, leaf, program, range(program.slots))
        return None if found is None or any(x is None for x in found) else [x for x in found if x is not None]

    def some(
        self, view: ClaimView, leaf: int, program: Program, wanted: Sequence[int]
    ) -> list[Tensor | None] | None:
        """Tensors of these slots of a state; None for each unavailable one, or None if the slots are
        unknown."""
        slots, nodes = self.slots(view, leaf, program), [program.state[i] for i in wanted]
        if slots is None:
            return None
        found = self.reader.tensors([slots[i] for i in wanted], nodes)
        computed = any(x is None and not slots[i].cid for i, x in zip(wanted, found, strict=True))
        if computed and (files := self._files(view, leaf, program)) is not None:
            found = self.reader.tensors([files[i] for i in wanted], nodes)
        return found

    def keep(self, root: bytes, tensor_roots: Sequence[bytes], state: Sequence[Tensor]) -> None:
        """Caches a computed state with this root."""
        known = self._known(root, len(tensor_roots))
        slots = known or tuple(SlotFile(tensor_root, "") for tensor_root in tensor_roots)
        self.learn(root, slots)
        self.reader.keep(slots, state)

    def all_can_be_had(self, view: ClaimView, program: Program) -> bool:
        """True if all states that a claim publishes, including the last, are available and right."""
        return not self._lacking(view, program)

    def _lacking(self, view: ClaimView, program: Program) -> list[int]:
        given = self.checkpoints(view)
        hidden = view.claim_id in self._hidden
        ends = [i for i, checkpoint in enumerate(given) if checkpoint.cid or hidden]
        return [i for i in ends if self.state(view, i, program) is None]

    def gap(self, view: ClaimView, program: Program, order: Random, most: int) -> Gap | None:
        """A random unavailable state of the claim with up to `most` of its missing byte ranges; None if all
        are available."""
        ends = self._lacking(view, program)
        if not ends:
            return None
        end, whole = order.choice(ends), (range(program.state_bytes),)
        slots = self.slots(view, end, program)
        if slots is None:
            return Gap(end, whole)
        spans: list[range] = []
        at = 0
        for node, slot in zip(program.state, slots, strict=True):
            if self.reader.tensors([slot], [node]) == [None]:
                holes = self._holes(slot, node, order, most)
                spans += [range(at + hole.start, at + hole.stop) for hole in holes]
            at += node.bytes
        order.shuffle(spans)
        return Gap(end, tuple(spans[:most]) or whole)

    def _holes(self, slot: SlotFile, node: Node, order: Random, most: int) -> Sequence[range]:
        """Byte ranges of a slot that its file lacks; all if the file is there but wrong."""
        found: list[range] = []
        with suppress(*UNFETCHABLE):
            found = self.blocks.holes(slot.cid, slot.file_bytes(node), order, most)
        return [slot.bytes_of(hole, node) for hole in found] or [range(node.bytes)]

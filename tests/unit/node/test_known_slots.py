"""A slot that a step has not changed is neither hashed nor stored again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO
from weakref import ref

import pytest
import torch
from torch import Tensor

from assay.node.slot_index import ENTRY_BYTES
from assay.node.slots import KnownSlots, hash_state, store_state
from assay.numerics.encoding import to_bytes
from assay.program.state import begin_roots, state_root
from assay.protocol import trees
from assay.protocol.errors import Retry
from tests.fakes.blocks import FakeBlocks, Network
from tests.unit.node.test_checkpoints import CODES


class Writing(FakeBlocks):
    """Blocks that note the lengths of the files that are added."""

    def __init__(self) -> None:
        super().__init__(Network())
        self.added: list[int] = []

    def add_file(self, data: bytes | BinaryIO) -> str:
        assert isinstance(data, bytes)
        self.added.append(len(data))
        return super().add_file(data)


@pytest.fixture(name="hashed")
def hashed_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the slots that are hashed."""
    lengths: list[int] = []

    def noted(tensors: Sequence[Tensor]) -> Callable[[], list[bytes]]:
        lengths.extend(len(to_bytes(x)) for x in tensors)
        return begin_roots(tensors)

    monkeypatch.setattr("assay.node.slots.begin_roots", noted)
    return lengths


def test_the_same_tensor_is_neither_hashed_nor_stored_again(hashed: list[int]) -> None:
    blocks, known = Writing(), KnownSlots()
    base, codes = torch.arange(8.0), CODES.clone()
    store_state(blocks, [base, codes, torch.zeros(4)], known)
    assert hashed == [32, 160_000, 16] and len(blocks.added) == 4
    hashed.clear()
    blocks.added.clear()
    state = [base, codes, torch.full((4,), 2.0)]
    after = store_state(blocks, state, known)
    assert (hashed, blocks.added) == ([16], [16, 3 * ENTRY_BYTES])
    assert after == store_state(Writing(), state), "as if it were stored alone"


def test_a_file_that_is_gone_is_stored_again(hashed: list[int]) -> None:
    blocks, known = Writing(), KnownSlots()
    state = [torch.arange(8.0), CODES.clone()]
    first = store_state(blocks, state, known)
    blocks.own.discard(first.slots[1].cid)
    hashed.clear()
    blocks.added.clear()
    assert store_state(blocks, state, known) == first and blocks.has(first.slots[1].cid)
    assert (hashed, blocks.added) == ([], [20_004, 2 * ENTRY_BYTES])


def test_what_was_only_hashed_is_stored_and_not_hashed_again(hashed: list[int]) -> None:
    blocks, known = Writing(), KnownSlots()
    state = [torch.arange(8.0), CODES.clone(), torch.zeros(4)]
    assert hash_state(state, known) == state_root(state) and not blocks.added
    changed = [*state[:2], torch.ones(4)]
    assert hash_state(changed, known) == state_root(changed)
    assert hashed == [32, 160_000, 16, 16]
    hashed.clear()
    stored = store_state(blocks, changed, known)
    assert not hashed and len(blocks.added) == 4
    assert stored == store_state(Writing(), changed)


def test_a_file_is_known_though_a_state_between_was_only_hashed() -> None:
    blocks, known = Writing(), KnownSlots()
    state = [torch.arange(8.0), torch.zeros(4)]
    store_state(blocks, state, known)
    hash_state([state[0], torch.ones(4)], known)
    blocks.added.clear()
    store_state(blocks, [state[0], torch.full((4,), 2.0)], known)
    assert blocks.added == [16, 2 * ENTRY_BYTES]


def test_slots_are_known_while_their_tensors_are_in_use_of_the_last_state_only() -> None:
    known, first, second = KnownSlots(), torch.arange(8.0), torch.ones(4)
    alive = ref(first)
    hash_state([first], known)
    hash_state([second], known)
    assert known.of(second) is not None and known.of(first) is None
    hash_state([first], known)
    del first
    assert alive() is None, "nobody else holds it"


def test_what_could_not_be_stored_is_not_known() -> None:
    class Full(Writing):
        def add_file(self, data: bytes | BinaryIO) -> str:
            if len(self.added) == full_at:
                raise Retry("the disk is full", hint="make room")
            return super().add_file(data)

    state, full_at = [torch.arange(8.0), torch.zeros(4)], 99
    blocks, known = Full(), KnownSlots()
    first = store_state(blocks, [state[0], torch.ones(4)], known)
    for full_at in (len(blocks.added), len(blocks.added) + 1):  # the new slot, the index
        with pytest.raises(Retry):
            store_state(blocks, state, known)
        assert known.of(state[1]) is None and known.of(state[0]) == first.slots[0]
        assert len(blocks.added) == full_at


def test_equal_numbers_at_the_address_of_a_tensor_that_is_gone_are_not_known() -> None:
    known, addresses = KnownSlots(), set[int]()
    for i in range(200):
        x = torch.full((8,), float(i))
        assert known.of(x) is None
        addresses.add(id(x))
        hash_state([x], known)
        found = known.of(x)
        assert found is not None and found.root == trees.tensor_root(to_bytes(x))
        assert known.of(x.clone()) is None
        del x
    assert len(addresses) < 200, "no address was used again, so nothing was tried"

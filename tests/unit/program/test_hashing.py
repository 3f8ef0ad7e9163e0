"""Roots from other processes are those of the plain tree; what goes wrong there is raised here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from numerics.encoding import EncodingError, to_bytes
from program import hashing, state
from program.hash_worker import ROW_BYTES, ROWS, Rows
from program.hashing import PIECE_BYTES, PLAIN_BYTES, Hasher, HashingFailed
from protocol import trees
from protocol.errors import Retry

KEY = b"k" * 32
SIZES = [PLAIN_BYTES + d for d in (-4, 0, 4)] + [n * PIECE_BYTES + d for n in (1, 2, 3) for d in (-4, 0, 4)]


@pytest.fixture(scope="module")
def hasher() -> Iterator[Hasher]:
    made = Hasher(2)
    yield made
    made.close()


def filled(size: int, seed: int = 0) -> Tensor:
    """f32 of `size` bytes."""
    return torch.randn(size // 4, generator=torch.Generator().manual_seed(seed))


def plain(x: Tensor, key: bytes = b"") -> bytes:
    return trees.tensor_root(to_bytes(x), key)


@pytest.mark.parametrize("key", [b"", KEY])
def test_roots_are_those_of_the_plain_tree_at_every_size(hasher: Hasher, key: bytes) -> None:
    tensors = [filled(size, size) for size in SIZES]
    roots = [hasher.tensor_root(x, key) for x in tensors]
    assert [root.result() for root in roots] == [plain(x, key) for x in tensors]


def test_keys_and_tensors_may_change_from_call_to_call(hasher: Hasher) -> None:
    for i in range(8):
        x, key = filled(2 * PIECE_BYTES - 4 * i, i), bytes([i]) * 32 if i % 3 else b""
        assert hasher.tensor_root(x, key).result() == plain(x, key)


def test_every_dtype_and_layout_has_its_bytes(hasher: Hasher) -> None:
    x = filled(1 << 21).reshape(512, -1)
    base = (x * 100).to(torch.int32)
    for y in (
        x.t(),
        x[:, ::2],
        x[3:4].expand(300, -1),
        base,
        base.to(torch.int16),
        base.to(torch.uint8),
        x > 0,
    ):
        assert hasher.tensor_root(y).result() == plain(y)


@pytest.mark.parametrize("place", [0, 700_000])
def test_nans_are_canonical_and_infinities_kept(hasher: Hasher, place: int) -> None:
    x = filled(4 << 20)
    x[1], x[2] = torch.inf, -torch.inf
    infinite = hasher.tensor_root(x).result()
    assert infinite == plain(x)
    x = x.clone()
    x.view(torch.int32)[place] = -0x3FFFFF
    assert torch.isnan(x).sum() == 1
    assert hasher.tensor_root(x).result() == plain(x) != infinite


def test_one_changed_bit_is_another_root(hasher: Hasher) -> None:
    x = filled(2 * PIECE_BYTES)
    y = x.clone()
    y.view(torch.int32)[-1] ^= 1
    assert hasher.tensor_root(x).result() != hasher.tensor_root(y).result()


@pytest.mark.parametrize("elements", [4, 1 << 20])
def test_a_dtype_without_bytes_is_raised_by_the_result(hasher: Hasher, elements: int) -> None:
    with pytest.raises(EncodingError):
        hasher.tensor_root(torch.zeros(elements, dtype=torch.float64)).result()


def test_a_process_that_dies_is_an_error_of_its_root_and_is_replaced() -> None:
    made, x = Hasher(1), filled(PIECE_BYTES)
    assert made.tensor_root(x).result() == plain(x)
    lane = made._lanes[0]
    assert lane._process is not None
    first = lane._process.pid
    os.kill(first, signal.SIGKILL)
    lane._process.wait()
    with pytest.raises(HashingFailed) as raised:
        made.tensor_root(x).result()
    assert isinstance(raised.value, Retry) and str(first) in raised.value.message
    assert made.tensor_root(x).result() == plain(x)
    made.close()


def test_closing_ends_the_processes_after_what_was_asked() -> None:
    made, tensors = Hasher(2), [filled(PIECE_BYTES, i) for i in range(6)]
    roots = made.roots(tensors)
    running = [lane._process for lane in made._lanes]
    made.close()
    assert [root.result() for root in roots] == [plain(x) for x in tensors]
    assert all(process is None or process.returncode is not None for process in running)
    assert all(lane._process is None for lane in made._lanes)


def test_memory_is_bounded_by_rows_whatever_the_tensor(hasher: Hasher) -> None:
    x = filled(8 * PIECE_BYTES)
    assert hasher.tensor_root(x).result() == plain(x)
    assert {lane._rows.base is not None and lane._rows.nbytes for lane in hasher._lanes} <= {PIECE_BYTES, 0}


def test_rows_hash_what_lies_in_them() -> None:
    memory = bytearray(os.urandom(ROWS * ROW_BYTES))
    rows = Rows(memoryview(memory))
    leaves = [memory[i * ROW_BYTES + 64 : (i + 1) * ROW_BYTES] for i in range(5)]
    data = b"".join(leaves)[: -(trees.LEAF_BYTES - 8)]
    for key in (b"", KEY, b""):
        assert rows.root(key, 3, 8, 5) == trees.tensor_root(data, key)


@pytest.mark.parametrize("background", [0, 1 << 40])
def test_a_state_has_one_tree_however_it_is_hashed(monkeypatch: pytest.MonkeyPatch, background: int) -> None:
    slots = [filled(size, size) for size in (4, 4096, PIECE_BYTES + 4)]
    monkeypatch.setattr(state, "BACKGROUND_BYTES", background)
    made = Hasher(2)
    monkeypatch.setattr(hashing, "shared", lambda: made)
    found = state.begin_tree(slots)
    assert found() == state.state_tree(slots) == trees.build([plain(x) for x in slots])
    assert any(lane._process for lane in made._lanes) == (background == 0)
    made.close()

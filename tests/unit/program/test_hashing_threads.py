"""Roots from hashing threads are those of the plain tree, with the kernel and without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from assay.numerics.encoding import EncodingError, to_bytes
from assay.program import hashing_threads, sha_kernel, state
from assay.program.hashing_threads import PLAIN_BYTES, Hasher
from assay.protocol import trees

KEY = b"k" * 32
MIB = 1 << 20
SIZES = [PLAIN_BYTES + d for d in (-4, 0, 4)] + [n * MIB + d for n in (1, 2, 3) for d in (-4, 0, 4)]


@pytest.fixture(scope="module", params=["kernel", "plain"])
def hasher(request: pytest.FixtureRequest) -> Iterator[Hasher]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(sha_kernel, "load", lambda: None)
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
        x, key = filled(2 * MIB - 4 * i, i), bytes([i]) * 32 if i % 3 else b""
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


def test_integers_that_look_like_nans_stay_as_they_are(hasher: Hasher) -> None:
    x = torch.full((MIB,), -0x3FFFFF, dtype=torch.int32)
    x[0] = 5
    assert hasher.tensor_root(x).result() == plain(x)


def test_tensors_of_inference_are_read_where_they_lie(hasher: Hasher) -> None:
    with torch.inference_mode():
        x = filled(MIB).reshape(512, -1) * 2
        roots = [hasher.tensor_root(y, KEY) for y in (x, x.t())]
    assert [root.result() for root in roots] == [plain(x, KEY), plain(x.t(), KEY)]


def test_one_changed_bit_is_another_root(hasher: Hasher) -> None:
    x = filled(2 * MIB)
    y = x.clone()
    y.view(torch.int32)[-1] ^= 1
    assert hasher.tensor_root(x).result() != hasher.tensor_root(y).result()


@pytest.mark.parametrize("elements", [4, 1 << 20])
def test_a_dtype_without_bytes_is_raised_by_the_result(hasher: Hasher, elements: int) -> None:
    with pytest.raises(EncodingError):
        hasher.tensor_root(torch.zeros(elements, dtype=torch.float64)).result()


def test_closing_ends_the_threads_after_what_was_asked() -> None:
    made, tensors = Hasher(2), [filled(MIB, i) for i in range(6)]
    roots = made.roots(tensors)
    running = list(made._threads._threads)
    assert running and all(thread in threading.enumerate() for thread in running)
    made.close()
    assert all(root.done() for root in roots) and not any(thread.is_alive() for thread in running)
    assert [root.result() for root in roots] == [plain(x) for x in tensors]


@pytest.mark.parametrize("background", [0, 1 << 40])
def test_a_state_has_one_tree_however_it_is_hashed(monkeypatch: pytest.MonkeyPatch, background: int) -> None:
    slots = [filled(size, size) for size in (4, 4096, 2 * MIB + 4)]
    monkeypatch.setattr(state, "BACKGROUND_BYTES", background)
    made = Hasher(2)
    monkeypatch.setattr(hashing_threads, "shared", lambda: made)
    found = state.begin_tree(slots)
    assert found() == state.state_tree(slots) == trees.build([plain(x) for x in slots])
    assert bool(made._threads._threads) == (background == 0)
    made.close()

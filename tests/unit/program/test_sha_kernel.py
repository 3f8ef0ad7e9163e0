"""The compiled kernel gives the definition's roots, and one that does not is never used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from assay.program import sha_kernel
from assay.program.sha_kernel import Kernel, Unusable
from assay.protocol import trees
from tests.unit.planting import planted

KEY = b"k" * 32
SOURCE = Path(sha_kernel.__file__).with_suffix(".c")
LEAF = trees.LEAF_BYTES


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    try:
        return sha_kernel.build(SOURCE)
    except Unusable as reason:
        pytest.skip(f"no kernel on this machine: {reason}")


def root(kernel: Kernel, data: np.ndarray, key: bytes, floats: bool = False) -> bytes:
    return kernel.tensor_root(data.ctypes.data, data.nbytes, floats, key)


@pytest.mark.parametrize("key", [b"", KEY])
def test_every_size_of_a_leaf_and_of_a_row(kernel: Kernel, key: bytes) -> None:
    data = np.frombuffer(np.random.default_rng(1).bytes(40 * LEAF), np.uint8)
    rows = [n * LEAF + d for n in range(2, 40) for d in (-1, 0, 1)]
    for size in (*range(1, 200), *range(LEAF - 70, LEAF + 70), *rows):
        assert root(kernel, data[:size], key) == trees.tensor_root(data[:size].data, key), size


def test_bytes_need_no_alignment(kernel: Kernel) -> None:
    data = np.frombuffer(np.random.default_rng(2).bytes(9 * LEAF + 64), np.uint8)
    for start in range(64):
        part = data[start : start + 9 * LEAF]
        assert root(kernel, part, KEY) == trees.tensor_root(part.data, KEY)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800001, 0xFF800001, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF])
def test_any_nan_anywhere_is_hashed_in_its_one_form(kernel: Kernel, bits: int) -> None:
    data = np.random.default_rng(3).standard_normal(6 * LEAF // 4 + 3).astype(np.float32).view(np.uint32)
    data[100:104] = 0x7F800000, 0xFF800000, 0x80000000, 1
    for place in (0, 511, 512, 1700, len(data) - 1):
        given, meant = data.copy(), data.copy()
        given[place], meant[place] = bits, 0x7FC00000
        wanted = trees.tensor_root(meant.view(np.uint8).data, KEY)
        assert root(kernel, given, KEY, floats=True) == wanted
        assert given[place] == bits, "the tensor itself was changed"
        plain = trees.tensor_root(given.view(np.uint8).data, KEY)
        assert root(kernel, given, KEY) == plain


@pytest.mark.long
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("0x748f82ee", "0x748f82ef"),
        ("(word & 0x7fffffff) > 0x7f800000) word", "(word & 0x7fffffff) > 0x7fc00000) word"),
        ("if (row % 2) memcpy(digests + row * DIGEST, padding, DIGEST);", ""),
        ("total % BLOCK + 9 > BLOCK", "total % BLOCK + 8 > BLOCK"),
        ("const size_t filled = count - first < LANES ? count - first : LANES", "const size_t filled = 1"),
    ],
)
def test_a_kernel_with_a_fault_is_refused(kernel: Kernel, tmp_path: Path, right: str, wrong: str) -> None:
    with pytest.raises(Unusable, match="gives another root"):
        sha_kernel.build(planted(tmp_path, SOURCE, right, wrong))


@pytest.mark.long
def test_a_processor_without_the_instructions_is_left_alone(kernel: Kernel, tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="no SHA-256 instructions"):
        sha_kernel.build(planted(tmp_path, SOURCE, "&& (b >> 29 & 1)", "&& !(b >> 29 & 1)"))


def test_what_does_not_compile_is_named(tmp_path: Path) -> None:
    (tmp_path / "kernel.c").write_text("#error not on this processor\n")
    with pytest.raises(Unusable, match="not on this processor"):
        sha_kernel.build(tmp_path / "kernel.c")

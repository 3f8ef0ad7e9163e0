"""Packed whole numbers: every bit comes back, one tensor has one packing, and nothing else is read."""

from __future__ import annotations

import random

import pytest
import torch

from assay.numerics.encoding import EncodingError
from assay.numerics.packed import packed, unpacked, width
from assay.numerics.packed_size import HEADER_BYTES, MAX_WIDTH, packed_bytes

SIZES = (3, 8, 17, 65_536, 65_537, 140_001)


def codes(count: int, bits: int, least: int, seed: int = 0) -> torch.Tensor:
    """Numbers of exactly so many bits above `least`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 1 << bits, (count,), generator=generator)
    x[0], x[-1] = 0, (1 << bits) - 1
    return (x + least).to(torch.int32)


@pytest.mark.parametrize("bits", range(1, MAX_WIDTH + 1))
def test_every_width_and_length_comes_back_bit_for_bit(bits: int) -> None:
    for count in SIZES:
        for least in (0, -7, -(2**31), 2**31 - (1 << bits)):
            x = codes(count, bits, least, count)
            if packed_bytes(count, bits) >= 4 * count:
                assert width(x) == 0, "no shorter"
                continue
            assert width(x) == bits
            data = packed(x, bits)
            assert len(data) == packed_bytes(count, bits)
            assert torch.equal(unpacked(data, bits, (count,)), x)


def test_a_packing_by_hand() -> None:
    """-7 … 7 in four bits, first bit lowest, after the least of them."""
    x = torch.tensor([-7, 7, 0, -7, 1], dtype=torch.int32).reshape(5, 1)
    assert packed(x, width(x)) == bytes.fromhex("f9ffffff e0 07 08")
    assert torch.equal(unpacked(bytes.fromhex("f9ffffffe00708"), 4, (5, 1)), x)


def test_what_is_not_packed() -> None:
    assert width(torch.zeros(100)) == 0 and width(torch.zeros(100, dtype=torch.uint8)) == 0
    assert width(torch.tensor([5], dtype=torch.int32)) == 0, "one number is four bytes as it is"
    assert width(codes(100, 17, 0)) == 0
    assert width(torch.zeros(100, dtype=torch.int32)) == 1, "equal ones take a bit"
    assert packed_bytes(100, 1) == HEADER_BYTES + 13


def test_attack_43_a_packing_of_another_form_is_refused() -> None:
    x = codes(101, 4, -7)
    data, shape = packed(x, 4), (101,)
    assert torch.equal(unpacked(data, 4, shape), x)
    wide, most = codes(101, 3, 0), (2**31 - 3).to_bytes(4, "little", signed=True)
    once = x.clamp(min=-6)
    once[0] = -7
    alone = packed(once, 4)
    wrong = {
        "a byte more": (data + b"\0", 4),
        "a byte less": (data[:-1], 4),
        "nothing": (b"", 4),
        "another width": (data, 5),
        "no width": (data, 0),
        "a width beyond the bound": (data + bytes(158), 17),
        "bits after the last": (data[:-1] + bytes([data[-1] | 0x80]), 4),
        "more bits than it needs": (packed(wide, 4), 4),
        "a least number that does not occur": (alone[:4] + bytes([alone[4] | 1]) + alone[5:], 4),
        "a number beyond i32": (most + data[4:], 4),
    }
    for why, (body, bits) in wrong.items():
        with pytest.raises(EncodingError):
            unpacked(body, bits, shape)
            pytest.fail(why)


def test_attack_43_whatever_is_read_is_the_one_packing_of_its_tensor() -> None:
    rng = random.Random(7)
    read = 0
    for _ in range(3_000):
        count, bits = rng.randrange(3, 40), rng.randrange(0, 20)
        data = bytearray(rng.randbytes(packed_bytes(count, bits)))
        if rng.random() < 0.5 and bits:
            data[:HEADER_BYTES] = rng.choice([b"\0\0\0\0", b"\xf9\xff\xff\xff", b"\xff\xff\xff\x7f"])
            data[HEADER_BYTES:] = (rng.getrandbits(count * bits)).to_bytes(len(data) - HEADER_BYTES, "little")
        try:
            x = unpacked(bytes(data), bits, (count,))
        except EncodingError:
            continue
        read += 1
        assert packed(x, bits) == data
    assert read > 100

"""Unsigned LEB128 integers, minimal encodings only, as protobuf, CAR and multiformats use them.

Contract: `decode(encode(n)) == n` for 0 <= n < 2**63, and no other byte string decodes to `n`.

Source: https://github.com/multiformats/unsigned-varint
"""

from __future__ import annotations

MAX_BYTES = 9


def encode(value: int) -> bytes:
    """The shortest encoding of `value`. Raises `ValueError` outside 0 <= value < 2**63."""
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{value} does not fit an unsigned varint of 63 bits")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes | bytearray, at: int = 0) -> tuple[int, int] | None:
    """`(value, offset after it)`, or None when the data ends inside the varint.

    Raises `ValueError` on more than nine bytes or a padded (not minimal) encoding.
    """
    value = 0
    for count in range(MAX_BYTES):
        if at + count >= len(data):
            return None
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if byte == 0 and count > 0:
                raise ValueError("varint is padded with zero groups")
            return value, at + count + 1
    raise ValueError(f"varint is longer than {MAX_BYTES} bytes")

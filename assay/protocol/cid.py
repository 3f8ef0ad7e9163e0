"""Content identifiers: the name of a block is the SHA-256 of its bytes.

Contract: exactly one text and one byte string exist for each (codec, digest) pair. Accepted are CIDv1
with codec `raw` or `dag-pb`, multihash sha2-256 of 32 bytes, and as text base32 lower case without
padding (multibase prefix `b`). Everything else (CIDv0, other bases, codecs or hashes, upper case, stray
trailing bits) raises `BadCid`, so two different texts never name the same block.

Does not guarantee: that a block with this name exists, or that its bytes decode as the codec says.

Byte layout (36 bytes): 0x01 version, codec (0x55 raw, 0x70 dag-pb), 0x12 sha2-256, 0x20 length, digest.

Source: https://github.com/multiformats/cid, RFC 4648 section 6 (base32).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from assay.protocol.errors import BadCid

RAW = 0x55
DAG_PB = 0x70
CODECS = (RAW, DAG_PB)

DIGEST_BYTES = 32
CID_BYTES = 36
CID_CHARS = 59

_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
"""Two digits of base32 by their ten bits: thousands of names are encoded at a time."""
_VERSION = 0x01
_SHA2_256 = 0x12


@dataclass(frozen=True, slots=True)
class Cid:
    """A canonical CIDv1: `codec` is `RAW` or `DAG_PB`, `digest` is the 32-byte SHA-256 of the block."""

    codec: int
    digest: bytes

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise BadCid(
                f"codec {self.codec:#x} is not supported, so the block cannot be named",
                hint="use raw (0x55) or dag-pb (0x70)",
            )
        if len(self.digest) != DIGEST_BYTES:
            raise BadCid(
                f"a sha2-256 digest has {DIGEST_BYTES} bytes, not {len(self.digest)}",
                hint="pass the whole digest of the block",
            )

    @classmethod
    def of(cls, data: bytes, codec: int = RAW) -> Cid:
        """The CID of a block with these bytes."""
        return cls(codec, hashlib.sha256(data).digest())

    @classmethod
    def from_bytes(cls, data: bytes) -> Cid:
        """Parse the 36-byte binary form. Raises `BadCid` on any other length or prefix."""
        if len(data) != CID_BYTES:
            raise BadCid(
                f"a binary CID has {CID_BYTES} bytes, not {len(data)}", hint="only CIDv1 sha2-256 is read"
            )
        if data[0] != _VERSION or data[2] != _SHA2_256 or data[3] != DIGEST_BYTES:
            raise BadCid(f"CID prefix {data[:4].hex()} is not CIDv1 with sha2-256", hint=_HINT)
        return cls(data[1], bytes(data[4:]))

    @classmethod
    def parse(cls, text: str) -> Cid:
        """Parse the text form. Raises `BadCid` unless `str(result) == text`."""
        shown = repr(text[:80])
        if len(text) != CID_CHARS or text[0] != "b" or text != text.lower() or not text.isascii():
            raise BadCid(f"{shown} is not a CIDv1 in lower-case base32", hint=_HINT)
        try:
            data = base64.b32decode(text[1:].upper() + "======")
        except binascii.Error as error:
            raise BadCid(f"{shown} is not base32", hint=_HINT) from error
        cid = cls.from_bytes(data)
        if str(cid) != text:
            raise BadCid(f"{shown} has stray bits after the digest, so it is not canonical", hint=_HINT)
        return cid

    def to_bytes(self) -> bytes:
        """The 36-byte binary form."""
        return bytes((_VERSION, self.codec, _SHA2_256, DIGEST_BYTES)) + self.digest

    def __str__(self) -> str:
        bits = (
            int.from_bytes(self.to_bytes(), "big") << 2
        )  # 58 digits of five bits, the last two of them zero
        return "b" + "".join([_PAIRS[bits >> at & 1023] for at in range(280, -1, -10)])

    def matches(self, data: bytes) -> bool:
        """True if the bytes are the block that this CID names."""
        return hashlib.sha256(data).digest() == self.digest


def is_cid(text: str) -> bool:
    """True if the text is a canonical CID."""
    try:
        Cid.parse(text)
    except BadCid:
        return False
    return True


_HINT = (
    "CIDs look like bafkrei... (raw) or bafybei... (dag-pb), 59 characters; "
    "convert others with `ipfs cid base32`"
)

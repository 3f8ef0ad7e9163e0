"""CARv1: a stream of blocks behind a header that names one root.

Contract: `encode_header` and `encode_block` give bytes that every CAR reader accepts. `CarParser` yields only
blocks that match their CIDs and refuses, with `BadCar`, anything but a header of version 1 with one root in
canonical dag-cbor. It never buffers more than one block and what was fed.

Not guaranteed: that the blocks belong to the root's DAG or that the DAG is complete; the receiver decides
what it wants (see `exchange`).

Source: https://ipld.io/specs/transport/car/carv1/
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.blocks import varint
from assay.blocks.blockstore import MAX_BLOCK_BYTES
from assay.protocol.cid import CID_BYTES, Cid
from assay.protocol.errors import BadCid, Retry

# dag-cbor {"roots": [CID], "version": 1}: map(2), "roots", array(1), tag 42, bytes(37), 0x00, the CID ...
_BEFORE_CID = bytes.fromhex("a265726f6f747381d82a582500")
# ... and text "version", 1.
_AFTER_CID = bytes.fromhex("6776657273696f6e01")
_HEADER_BYTES = len(_BEFORE_CID) + CID_BYTES + len(_AFTER_CID)


class BadCar(Retry):
    """The stream is not a CARv1 of matching blocks: its sender is at fault, another may do better."""

    code = "bad-car"


def encode_header(root: Cid) -> bytes:
    """The CARv1 header for one root."""
    return varint.encode(_HEADER_BYTES) + _BEFORE_CID + root.to_bytes() + _AFTER_CID


def encode_block(cid: Cid, data: bytes) -> bytes:
    """One CARv1 section."""
    return b"".join((varint.encode(CID_BYTES + len(data)), cid.to_bytes(), data))


def section_bytes(size: int) -> int:
    """Length of the section of a block of this size."""
    return len(varint.encode(CID_BYTES + size)) + CID_BYTES + size


class CarParser:
    """Push parser: `feed` what arrives, take the blocks that are complete, call `finish` at the end."""

    def __init__(self) -> None:
        self.root: Cid | None = None
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray) -> Iterator[tuple[Cid, bytes]]:
        """Yields the verified blocks that `data` completes. Raises `BadCar`. Exhaust it before feeding
        more."""
        self._buffer += data
        while (section := self._take()) is not None:
            name, block = section
            if self.root is None:
                self.root = _parse_header(name + block)
                continue
            try:
                cid = Cid.from_bytes(name)
            except BadCid as error:
                raise BadCar(f"CAR section is not named by a supported CID: {error}", hint=_HINT) from error
            if not cid.matches(block):
                raise BadCar(f"CAR section does not match its CID {cid}", hint=_HINT)
            yield cid, block

    def finish(self) -> None:
        """Raises `BadCar` if the stream ended before its header or inside a section."""
        if self._buffer or self.root is None:
            raise BadCar("CAR stream ends too early", hint=_HINT)

    def _take(self) -> tuple[bytes, bytes] | None:
        """The next section's first CID_BYTES and the rest, each copied once."""
        try:
            found = varint.decode(self._buffer)
        except ValueError as error:
            raise BadCar(f"CAR section length is malformed: {error}", hint=_HINT) from error
        if found is None:
            return None
        length, start = found
        if not CID_BYTES <= length <= CID_BYTES + MAX_BLOCK_BYTES:
            raise BadCar(f"CAR section of {length} bytes is out of bounds", hint=_HINT)
        if len(self._buffer) < start + length:
            return None
        with memoryview(self._buffer) as view:
            name = bytes(view[start : start + CID_BYTES])
            rest = bytes(view[start + CID_BYTES : start + length])
        del self._buffer[: start + length]
        return name, rest


def _parse_header(section: bytes) -> Cid:
    try:
        root = Cid.from_bytes(section[len(_BEFORE_CID) : len(_BEFORE_CID) + CID_BYTES])
    except BadCid as error:
        raise BadCar(f"CAR header names no supported root: {error}", hint=_HINT) from error
    if section != _BEFORE_CID + root.to_bytes() + _AFTER_CID:
        raise BadCar("CAR header is not version 1 with exactly one root", hint=_HINT)
    return root


_HINT = "discard the stream and ask another peer"

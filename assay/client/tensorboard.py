"""Numbers of a job as an event file for TensorBoard.

Contract: writes TFRecord-framed ``Event`` messages, as TensorBoard reads them; nothing of TensorFlow is
needed. Each record is written whole and flushed. Source: tensorflow/core/lib/io/record_writer.h (framing),
tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto (messages).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

_CASTAGNOLI = 0x82F63B78
_MASK = 0xA282EAD8
_VERSION = b"brain.Event:2"


def _table() -> tuple[int, ...]:
    rows = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    """CRC-32C, rotated and offset as TFRecord files have it."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + _MASK) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    ends = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
    return length + next(ends) + data + next(ends)


def _event(time_s: float, step: int, body: bytes) -> bytes:
    return _record(b"\x09" + struct.pack("<d", time_s) + (b"\x10" + _varint(step) if step else b"") + body)


class TensorBoard:
    """An event file in a folder of its own run; close it, or use it as a context manager."""

    def __init__(self, folder: Path, now: Callable[[], float], name: str = "assay") -> None:
        """`now`: seconds since 1970."""
        folder.mkdir(parents=True, exist_ok=True)
        self._now = now
        begun = now()
        self.path = folder / f"events.out.tfevents.{int(begun)}.{name}"
        self._file = self.path.open("ab")
        self._write(_event(begun, 0, _field(3, _VERSION)))

    def scalar(self, tag: str, value: float, step: int) -> None:
        """A number at a step, step >= 0."""
        point = _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
        self._write(_event(self._now(), step, _field(5, _field(1, point))))

    def _write(self, record: bytes) -> None:
        self._file.write(record)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

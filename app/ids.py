"""Ids of jobs and claims as people type them."""

from __future__ import annotations

from assay.protocol.errors import Stop


def parse_id(text: str) -> bytes:
    """32 bytes from hex. Raises Stop."""
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise Stop(
            f"{text!r} is not an id", hint="ids are 64 hex digits; `assay job ls` shows jobs", code="bad-id"
        )
    return raw

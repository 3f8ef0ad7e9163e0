"""Encodes and parses canonical JSON: sorted keys, no spaces, ASCII. Manifests and receipts are hashed in this
form.

Contract: `parse_canonical(canonical_json(x), n)` is x. Bytes that are not the canonical encoding of their
value, or nest deeper than `MAX_NESTING`, are refused. docs/formats.md, section 1.
"""

from __future__ import annotations

import json
from typing import Any

from assay.protocol import bounded_json

MAX_NESTING = 16


def canonical_json(value: Any) -> bytes:
    """Encodes a value with sorted keys, no spaces, ASCII only and no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def parse_canonical(data: bytes, limit: int) -> dict[str, Any]:
    """Parses an object from its canonical encoding of at most `limit` bytes. Raises ValueError for anything
    else."""
    if len(data) > limit:
        raise ValueError(f"{len(data)} bytes of JSON are over the limit of {limit}")
    try:
        value = bounded_json.loads(data, MAX_NESTING)
        same = isinstance(value, dict) and canonical_json(value) == data
    except (ValueError, OverflowError) as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not same:
        raise ValueError("it is not one object in canonical JSON")
    return value

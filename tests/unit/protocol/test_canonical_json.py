"""JSON of one form: what it gives back, and what it refuses."""

from __future__ import annotations

import json

import pytest

from assay.protocol.canonical_json import MAX_NESTING, canonical_json, parse_canonical

BODY = {"b": [1, None, "é"], "a": {"x": True}}


def test_an_object_has_one_form_and_comes_back() -> None:
    data = canonical_json(BODY)
    assert data == b'{"a":{"x":true},"b":[1,null,"\\u00e9"]}'
    assert parse_canonical(data, len(data)) == BODY


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(BODY).encode(),
        canonical_json(BODY) + b" ",
        b'{"a":1,"a":1}',
        b'{"a":1.0e0}',
        b'{"a":NaN}',
        b"[1]",
        b"",
        b"\xff",
        b'{"a":' + b"[" * MAX_NESTING + b"]" * MAX_NESTING + b"}",
    ],
)
def test_every_other_form_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        parse_canonical(data, 1 << 20)


def test_what_is_longer_than_allowed_is_not_read() -> None:
    data = canonical_json(BODY)
    with pytest.raises(ValueError, match="over the limit"):
        parse_canonical(data, len(data) - 1)


def test_numbers_that_json_has_not_are_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": float("nan")})

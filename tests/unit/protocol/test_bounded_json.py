"""JSON from strangers is parsed, or refused; it never ends the process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.protocol.bounded_json import DEPTH, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from(["utf-8", "utf-16", "utf-16-le", "utf-32-be"]))
def test_what_is_json_is_what_it_is(value: Any, encoding: str) -> None:
    text = json.dumps(value)
    assert loads(text) == loads(text.encode(encoding)) == json.loads(text)


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_depth_is_bounded_and_brackets_in_strings_are_no_depth() -> None:
    assert loads(nested(DEPTH)) == json.loads(nested(DEPTH))
    with pytest.raises(ValueError, match="nested"):
        loads(nested(DEPTH + 1))
    text = json.dumps(["[" * 1_000, '\\"[[' * 100, "\\" * 99] * 3)
    assert loads(text) == json.loads(text)
    assert loads(json.dumps([{"a": []}] * 10_000)) == [{"a": []}] * 10_000


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        ('"\u5b22"' + "[" * 200_000).encode("utf-16-le"),
        b'"\\"' + b"[" * 200_000,
        b'["\\\\",' * 100_000,
        b"\xff\xfe" + b"[\0" * 200_000,
    ],
    ids=["lists", "objects", "quotes in UTF-16", "an open string", "escapes", "UTF-16"],
)
def test_attack_43_nesting_ends_no_process(text: bytes) -> None:
    """The interpreter's limit is what a library made it; the parser's stack is the machine's."""
    script = (
        "import sys, eth_account; assert sys.getrecursionlimit() > 10_000\n"
        "from assay.protocol.bounded_json import loads\n"
        "try: loads(sys.stdin.buffer.read())\n"
        "except ValueError: print('refused')"
    )
    ended = subprocess.run([sys.executable, "-c", script], input=text, capture_output=True)
    assert (ended.returncode, ended.stdout) == (0, b"refused\n"), ended.stderr[-500:]

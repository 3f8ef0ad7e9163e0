"""Parses JSON from files and peers with a bounded nesting depth.

Contract: `loads` returns what `json.loads` returns. It raises ValueError for invalid JSON and for text that
is nested too deeply. Python's C parser recurses on the C stack. Its own limit is the interpreter's recursion
limit, which libraries raise (py_ecc and PyTorch's compiler, to 100,000 and more). With that limit, 200 KB of
"[" crash the process, and no exception can be caught.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

DEPTH = 64
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKET = re.compile(r"[^][{}]+")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def loads(text: bytes | str, depth: int = DEPTH) -> Any:
    """Parses JSON text nested at most `depth` deep. Raises ValueError (json.JSONDecodeError,
    UnicodeDecodeError)."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if text.count("[") + text.count("{") > depth:
        brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
        if max(accumulate(_STEP[bracket] for bracket in brackets), default=0) > depth:
            raise ValueError(f"JSON that is nested more than {depth} deep")
    return json.loads(text)

"""JSON of files and strangers: parsed only if it is nested no deeper than anything honest is.

Contract: `loads` gives what `json.loads` gives, or raises ValueError for whatever is no JSON or is nested too
deeply. Why it is needed: Python's parser is written in C and follows nesting with the C stack. Its own limit
is the interpreter's recursion limit, which libraries raise (py_ecc, and PyTorch's compiler, to 100,000 and
more). Then 200 KB of "[" end the process, with no exception that anybody could catch.
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
    """The value of a JSON text, nested at most `depth` deep. Raises ValueError (json.JSONDecodeError,
    UnicodeDecodeError)."""
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if text.count("[") + text.count("{") > depth:
        brackets = _NO_BRACKET.sub("", _STRING.sub("", text))
        if max(accumulate(_STEP[bracket] for bracket in brackets), default=0) > depth:
            raise ValueError(f"JSON that is nested more than {depth} deep")
    return json.loads(text)

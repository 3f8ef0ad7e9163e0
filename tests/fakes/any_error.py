"""One error of each kind that a stranger's data may bring about, and what must end a process all the same."""

from __future__ import annotations

import asyncio

import httpx
import idna

from assay.protocol.errors import Ask, Retry, Stop

ERRORS: list[Exception] = [
    OverflowError("getaddrinfo: port must be 0-65535."),
    UnicodeError("label empty or too long"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    idna.InvalidCodepoint("Codepoint U+0080 not allowed"),
    httpx.InvalidURL("Invalid port"),
    KeyError("gone"),
    IndexError("beyond"),
    ValueError("no number"),
    TypeError("None"),
    AttributeError("none"),
    ZeroDivisionError("by nothing"),
    AssertionError(),
    RecursionError("maximum recursion depth exceeded"),
    RuntimeError("cannot be"),
    NotImplementedError(),
    LookupError("unknown encoding"),
    EOFError(),
    OSError(113, "No route to host"),
    ExceptionGroup("several", [OverflowError("port"), OSError("no")]),
    ExceptionGroup("several", [ExceptionGroup("in it", [KeyError("deep")])]),
    Retry("later"),
    Stop("never"),
    Ask("somebody"),
]
ENDS: list[BaseException] = [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError()]
"""These are nobody's failure: the process is to end, or what was under way."""


def name_of(error: BaseException) -> str:
    """For a test's id."""
    return type(error).__name__

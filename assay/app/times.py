"""Formats chain times as local time and time left.

Contract: the time left is by the chain's clock, which counts; the local time is by this machine's clock.
"""

from __future__ import annotations

import time


def show_span(seconds: int) -> str:
    """``57 s``, ``5 min 3 s``, ``2 h 10 min``, ``6 d 4 h``: at most two units."""
    seconds = abs(int(seconds))
    if seconds < 60:
        return f"{seconds} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    at = next(i for i, (size, _) in enumerate(units) if seconds >= size)
    (size, name), (small, below) = units[at], units[at + 1]
    rest = seconds % size // small
    return f"{seconds // size} {name}" + (f" {rest} {below}" if rest else "")


def show_moment(moment: int, now: int, wall_s: float | None = None) -> str:
    """``14:05:12, in 57 s`` or ``2026-11-29 14:05, in 6 d 23 h``; past times end in ``ago``.

    `now`: the chain's time; `wall_s`: this machine's.
    """
    left = int(moment) - int(now)
    local = time.localtime((time.time() if wall_s is None else wall_s) + left)
    text = time.strftime("%H:%M:%S" if abs(left) < 43_200 else "%Y-%m-%d %H:%M", local)
    return f"{text}, in {show_span(left)}" if left >= 0 else f"{text}, {show_span(left)} ago"

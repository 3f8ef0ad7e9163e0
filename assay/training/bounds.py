"""Bounds checks for the numbers of rules, codings and means.

Contract: each function raises Stop with the number, its bounds and where to change it. Real numbers are
compared after rounding to f32, as programs hold them.
"""

from __future__ import annotations

import math

from assay.protocol.errors import Stop
from assay.training.lazy_torch import torch


def require(holds: bool, what: str, value: object, bounds: str) -> None:
    """Raises Stop unless `holds`."""
    if not holds:
        raise Stop(
            f"the outer algorithm's {what} is {value}, and must be {bounds}",
            hint=f"change {what} where the algorithm is made: [outer] of the job file, or Recipe(outer=...)",
        )


def whole(what: str, value: object, least: int, most: int | None = None) -> None:
    """Raises Stop unless it is an integer of this range."""
    bounds = f"a whole number of at least {least}" if most is None else f"a whole number, {least} to {most}"
    fits = isinstance(value, int) and value >= least and (most is None or value <= most)
    require(fits, what, value, bounds)


def single(what: str, value: object) -> float:
    """The number rounded to f32. Raises Stop if it is not a number."""
    if not isinstance(value, int | float):
        raise Stop(f"the outer algorithm's {what} is {value!r}, and must be a number", hint=f"change {what}")
    return float(torch.tensor(float(value), dtype=torch.float32))


def positive(what: str, value: object) -> None:
    """Raises Stop unless it is above 0 and finite."""
    fits = 0 < single(what, value) < math.inf
    require(fits, what, value, "above 0 and finite in f32: nothing would be learnt, or no number")


def decay(what: str, value: object) -> None:
    """Raises Stop unless it is at least 0 and below 1."""
    require(0 <= single(what, value) < 1, what, value, "at least 0 and in f32 below 1: it would grow")

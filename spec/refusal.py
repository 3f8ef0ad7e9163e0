"""Refusals of the pure rules, by the name of the contracts' custom error.

Contract: a function of the specification either returns the next value or raises `Refused`.
"""

from __future__ import annotations


class Refused(ValueError):
    """The contracts would revert; `error` is their custom error's name."""

    def __init__(self, error: str, why: str = "") -> None:
        super().__init__(f"{error}: {why}" if why else error)
        self.error = error


def require(holds: bool, error: str, why: str = "") -> None:
    """Raises Refused unless `holds`."""
    if not holds:
        raise Refused(error, why)

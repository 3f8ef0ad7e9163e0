"""Reads and writes the file of a solver's limits on terms.

Contract: the file states every limit and nothing else; a missing or unknown key is refused by name. Amounts
and durations have units, such as "400tok" and "60s".
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from assay.app.units import parse_amount, parse_duration, show_amount
from assay.protocol.errors import AssayError, Stop
from assay.solver.acceptance import TermsLimits

AMOUNTS = ("most_stake", "most_penalty")
COUNTS = ("most_unsettled", "most_unpaid")
MEANING = {
    "most_stake": "locked by each claim, and lost with a false one",
    "most_penalty": "for a task that is missed",
    "least_task": "to train one task and commit it",
    "least_move": "for a move of a game: with less, an honest claim cannot be defended",
    "most_locked": "from a claim's commit to its settlement, if nobody disputes it",
    "most_outer": "for which a round may wait for the holder that its outer step is reserved to",
    "most_unsettled": "rounds that may be trained before the first of them is paid",
    "most_unpaid": "work of an outer step that its fee does not pay for, in rounds' tasks",
    "block": "between the chain's blocks",
}
"""Comment on each limit in the file."""


class BadAcceptance(Stop):
    """The file is not a valid set of limits."""

    code = "bad-acceptance"


def _bad(path: Path, why: str) -> BadAcceptance:
    return BadAcceptance(f"{path}: {why}", hint="`assay solver terms FILE` writes a complete file")


def read_acceptance(path: Path) -> TermsLimits:
    """Reads the operator's limits. Raises BadAcceptance."""
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise _bad(path, (error.strerror or type(error).__name__).lower()) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _bad(path, f"it is not TOML: {error}") from error
    names = {field.name for field in fields(TermsLimits)}
    if wrong := sorted(names ^ set(given)):
        raise _bad(path, f"{wrong[0]} is missing" if wrong[0] in names else f"there is no limit {wrong[0]}")
    return TermsLimits(**{name: _value(path, name, value) for name, value in given.items()})


def _value(path: Path, name: str, value: object) -> Any:
    if name in COUNTS:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        raise _bad(path, f"{name} must be a whole number from 1")
    if not isinstance(value, str):
        raise _bad(path, f"{name} must be text with a unit, such as '60s' or '400tok'")
    try:
        return parse_amount(value) if name in AMOUNTS else parse_duration(value)
    except AssayError as error:
        raise _bad(path, f"{name}: {error.message}") from error


def _whole_units(seconds: int) -> str:
    """Formats a duration in its largest whole unit: ``30d``, ``90s``."""
    size, unit = next(
        (
            (size, unit)
            for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60))
            if seconds and not seconds % size
        ),
        (1, "s"),
    )
    return f"{seconds // size}{unit}"


def acceptance_text(limits: TermsLimits) -> str:
    """Formats these limits as a file."""
    lines = [
        "# What a solver agrees to before it takes a shard: a job beyond any of these limits is left alone."
    ]
    for field in fields(limits):
        value = getattr(limits, field.name)
        if field.name in COUNTS:
            stated = str(value)
        elif field.name in AMOUNTS:
            stated = f'"{show_amount(value).replace(" ", "").replace(",", "")}"'
        else:
            stated = f'"{_whole_units(value)}"'
        lines.append(f"{f'{field.name} = {stated}':<28}# {MEANING[field.name]}")
    return "\n".join(lines) + "\n"

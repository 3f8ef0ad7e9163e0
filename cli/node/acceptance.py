"""The file in which a solver's operator says which terms it agrees to.

Contract: every limit is stated and nothing else is: a key that is missing or unknown is refused by its name.
Amounts and durations are written with their units, such as "400tok" and "60s".
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


class BadAcceptance(Stop):
    """The file does not say what the operator agrees to."""

    code = "bad-acceptance"


def _bad(path: Path, why: str) -> BadAcceptance:
    return BadAcceptance(f"{path}: {why}", hint="`assay solver terms FILE` writes a complete file")


def read_acceptance(path: Path) -> TermsLimits:
    """The operator's limits. Raises BadAcceptance."""
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _bad(path, str(error)) from error
    names = {field.name for field in fields(TermsLimits)}
    if wrong := sorted(names ^ set(given)):
        raise _bad(path, f"{wrong[0]} is {'missing' if wrong[0] in names else 'no limit'}")
    return TermsLimits(**{name: _value(path, name, value) for name, value in given.items()})


def _value(path: Path, name: str, value: object) -> Any:
    if name in COUNTS:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        raise _bad(path, f"{name} is a whole number from 1")
    if not isinstance(value, str):
        raise _bad(path, f"{name} is written with its unit, such as '60s' or '400tok'")
    try:
        return parse_amount(value) if name in AMOUNTS else parse_duration(value)
    except AssayError as error:
        raise _bad(path, f"{name}: {error.message}") from error


def acceptance_text(limits: TermsLimits) -> str:
    """The file that says these limits."""
    lines = [
        "# What a solver agrees to before it takes a shard; each limit is explained in docs/operations.md."
    ]
    for field in fields(limits):
        value = getattr(limits, field.name)
        if field.name in COUNTS:
            lines.append(f"{field.name} = {value}")
        elif field.name in AMOUNTS:
            lines.append(f'{field.name} = "{show_amount(value).replace(" ", "").replace(",", "")}"')
        else:
            lines.append(f'{field.name} = "{value}s"')
    return "\n".join(lines) + "\n"

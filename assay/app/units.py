"""Parses amounts and durations as people write them: ``500tok``, ``0.1ether``, ``7d``.

Contract: parsing is exact (decimal, never floating point) and refuses unknown formats. It is the inverse of
`show_amount` up to trailing zeros.
"""

from __future__ import annotations

import re
from decimal import Decimal, localcontext

from assay.protocol.errors import Stop
from assay.protocol.types import Seconds, Wei
from assay.protocol.words import round_amount, show_amount, show_rate

__all__ = [
    "parse_amount",
    "parse_bytes",
    "parse_duration",
    "parse_payment",
    "parse_rate",
    "round_amount",
    "show_amount",
    "show_rate",
]
USUAL_RATE = "1000tok/1e15op"
"""Default of `job init --price`."""
_DIGITS = 100
"""Maximum digits of a number: longer ones are out of every bound, and Python refuses to convert them."""
_AMOUNT = re.compile(r"(\d{1,100}(?:\.\d{1,100})?)(tok|wei|gwei|ether)", re.ASCII)
_SCALE = {"tok": 18, "ether": 18, "gwei": 9, "wei": 0}
_DURATION = re.compile(r"(\d{1,18})(s|m|h|d)", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = re.compile(r"(\d{1,18})(B|kB|MB|GB|TB)", re.ASCII)
_BYTE_SCALE = {"B": 0, "kB": 3, "MB": 6, "GB": 9, "TB": 12}


def parse_amount(text: str) -> Wei:
    """Parses ``500tok``, ``0.1ether`` or ``7wei`` to smallest units. Raises Stop."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None and _AMOUNT.fullmatch(text.strip().removeprefix("-").strip()):
        raise Stop(
            f"{text!r} is below 0, and an amount is 0 or more",
            hint="give it without the minus sign",
            code="bad-amount",
        )
    if match is None:
        raise Stop(
            f"{text!r} is not an amount",
            hint="write a number with its unit, such as 500tok or 12wei",
            code="bad-amount",
        )
    with localcontext(prec=2 * _DIGITS + 1):
        value = Decimal(match[1]).scaleb(_SCALE[match[2]])
    if value != value.to_integral_value():
        raise Stop(
            f"{text!r} has a fraction below the smallest unit",
            hint="use at most 18 decimals",
            code="bad-amount",
        )
    if value.adjusted() > 37:
        raise Stop(
            f"{text!r} is too much: an amount is below 10^38 of the smallest unit",
            hint="give a smaller amount",
            code="bad-amount",
        )
    return Wei(int(value))


def parse_payment(text: str) -> Wei:
    """Parses a positive amount. Raises Stop."""
    value = parse_amount(text)
    if not value:
        raise Stop(
            f"{text!r} is nothing, so there is nothing to move",
            hint="give an amount above 0, such as 5tok",
            code="bad-amount",
        )
    return value


def parse_rate(text: str) -> Wei:
    """Smallest units for 10^15 operations, from ``500tok/1e15op``. Raises Stop."""
    amount, slash, per = text.partition("/")
    if not slash or per.strip() != "1e15op":
        raise Stop(
            f"{text!r} is not a price of operations; a price for each task, whatever its size, is not"
            " accepted any more",
            hint="give the price of 10^15 operations, such as 500tok/1e15op; `assay job estimate` shows what"
            " a job pays for them",
            code="bad-amount",
        )
    return parse_amount(amount.strip().replace(" ", ""))


def parse_duration(text: str) -> Seconds:
    """Parses ``90s``, ``5m``, ``2h`` or ``7d`` to seconds. Raises Stop."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise Stop(
            f"{text!r} is not a duration", hint="write a whole number with s, m, h or d", code="bad-duration"
        )
    return Seconds(int(match[1]) * _SECONDS[match[2]])


def parse_bytes(text: str) -> int:
    """Parses ``500MB`` or ``2TB``, in powers of ten. Raises Stop."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise Stop(
            f"{text!r} is not a size",
            hint="write a whole number with its unit, such as 500MB or 200GB",
            code="bad-size",
        )
    return int(match[1]) * 10 ** _BYTE_SCALE[match[2]]


def show_count(count: int, what: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def show_bytes(count: int) -> str:
    """``3.2 MB``, in powers of ten."""
    size, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"

"""Amounts, moments and addresses as people read them, and words that they may have meant.

Contract: amounts are decimal, never floating point; `show_amount` is exact, `round_amount` is for tables,
where nobody types an amount back. Moments are the chain's, in this machine's time zone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_HALF_UP, Context, Decimal
from difflib import get_close_matches
from urllib.parse import urlsplit

from assay.protocol.types import Kind

TOKEN_DECIMALS = 18
_EXACT = Context(prec=100)


def show_amount(amount: int, unit: str = "tok") -> str:
    """``12.5 tok`` from smallest units, exact."""
    text = format(Decimal(amount).scaleb(-TOKEN_DECIMALS, _EXACT).normalize(_EXACT), "f")
    return f"{text} {unit}"


def round_amount(amount: int, unit: str = "tok", *, up: bool = False) -> str:
    """``68.33 tok``: to two decimals, three digits of what is below 1; `up`: never less than it is, as what a
    budget must cover."""
    value = Decimal(amount).scaleb(-TOKEN_DECIMALS, _EXACT)
    decimals = 2 if abs(value) >= 1 or not value else 2 - value.adjusted()
    step = Decimal(1).scaleb(-decimals, _EXACT)
    rounded = value.quantize(step, ROUND_CEILING if up else ROUND_HALF_UP, _EXACT)
    return show_amount(int(rounded.scaleb(TOKEN_DECIMALS, _EXACT)), unit)


def show_place(kind: Kind, round_: int, unit: int) -> str:
    """``task 1/0`` or ``outer step 1``, of a slice after the first ``outer step 1/2``."""
    if kind == Kind.TASK:
        return f"task {round_}/{unit}"
    return f"outer step {round_}" + (f"/{unit}" if unit else "")


def show_time(moment: int, now: int) -> str:
    """``14:05:12``; with the date where it is more than half a day from `now`. Both in seconds since 1970."""
    near = abs(moment - now) < 43_200
    return time.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M", time.localtime(moment))


def masked_url(url: str) -> str:
    """An endpoint's scheme, host and port. Its path, query and user part, which often hold an access key, are
    never shown."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or '?'}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "?"


def meant(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'rounds'?``, the nearest known word; empty where none is near, or it is one."""
    words = dict.fromkeys(known)
    near = [] if word in words else get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""

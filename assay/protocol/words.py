"""Formats amounts, times and addresses for people, and suggests corrections of mistyped words.

Contract: amounts are decimal, never floating point. `show_amount` is exact; `round_amount` is for tables.
Times are the chain's, shown in this machine's time zone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_HALF_UP, Context, Decimal
from difflib import get_close_matches
from urllib.parse import urlsplit

from assay.protocol.types import ClaimView, Kind, Phase, Terms

TOKEN_DECIMALS = 18
_EXACT = Context(prec=100)


def show_amount(amount: int, unit: str = "tok") -> str:
    """Formats an amount in smallest units exactly: ``12.5 tok``."""
    text = format(Decimal(amount).scaleb(-TOKEN_DECIMALS, _EXACT).normalize(_EXACT), "f")
    return f"{text} {unit}"


def round_amount(amount: int, unit: str = "tok", *, up: bool = False) -> str:
    """Formats an amount rounded to two decimals, or to three significant digits below 1: ``68.33 tok``.

    `up`: never less than the amount, for what a budget must cover.
    """
    value = Decimal(amount).scaleb(-TOKEN_DECIMALS, _EXACT)
    decimals = 2 if abs(value) >= 1 or not value else 2 - value.adjusted()
    step = Decimal(1).scaleb(-decimals, _EXACT)
    rounded = value.quantize(step, ROUND_CEILING if up else ROUND_HALF_UP, _EXACT)
    return show_amount(int(rounded.scaleb(TOKEN_DECIMALS, _EXACT)), unit)


def show_rate(rate: int) -> str:
    """``12.5 tok/1e15op``: an amount for 10^15 operations, to whole tokens from a hundred on."""
    rounded = rate if rate < 100 * 10**TOKEN_DECIMALS else round(rate, -TOKEN_DECIMALS)
    return f"{round_amount(rounded)}/1e15op"


def show_place(kind: Kind, round_: int, unit: int) -> str:
    """``task 1/0`` or ``outer step 1``; for a slice after the first ``outer step 1/2``."""
    if kind == Kind.TASK:
        return f"task {round_}/{unit}"
    return f"outer step {round_}" + (f"/{unit}" if unit else "")


def attested(view: ClaimView, terms: Terms) -> bool:
    """True if every seat of a task has a standing valid vote (rule 4.7.1). An outer step has no seats."""
    return view.claim.kind == Kind.TASK and 0 < terms.verifiers <= view.status.valid


def show_state(phase: Phase, is_attested: bool = False) -> str:
    """The one word for where a claim stands: ``unchecked``, ``attested`` (by every drawn verifier) or
    ``settled`` while it stands, else ``convicted``, ``void`` or ``none``. That a claim is accepted says only
    that its round may go on with it."""
    if phase in (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED):
        return "attested" if is_attested else "unchecked"
    return phase.name.lower()


def show_votes(view: ClaimView, terms: Terms) -> str:
    """``1 of 2 votes`` of a task that not every seat has attested once its vote is over; else empty."""
    over = view.status.phase in (Phase.ACCEPTED, Phase.SETTLED)
    if view.claim.kind == Kind.OUTER or not over or attested(view, terms):
        return ""
    return f"{view.status.valid} of {terms.verifiers} votes"


def show_time(moment: int, now: int) -> str:
    """``14:05:12``, with the date if it is more than half a day from `now`. Both in seconds since 1970."""
    near = abs(moment - now) < 43_200
    return time.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M", time.localtime(moment))


def masked_url(url: str) -> str:
    """Scheme, host and port of an endpoint. Path, query and user part are dropped: they often hold an access
    key."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or '?'}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "?"


def meant(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'rounds'?`` with the nearest known word; empty if none is near or the word is
    known."""
    words = dict.fromkeys(known)
    near = [] if word in words else get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""

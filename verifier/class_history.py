"""Records on disk a verifier's classes of conditions: since when, and when each was last seen to pay.

Contract: the chain says what a class has paid in total; this file says when the node noticed. Time in which
no node of the account ran does not count as unpaid. A damaged record is set aside and stays begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.disk import record
from assay.protocol.types import ZERO_DIGEST, Seconds, Wei
from assay.verifier.class_choice import NOTHING, Stay

MOST = 64
"""Maximum number of recorded stays."""
LOOKS_EVERY = Seconds(600)
"""Maximum seconds between two writes of the file."""
_KIND = "assay/stays/1"


class Stays:
    """The stays of one account, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        body = record.read_or_quarantine(path, _KIND, instead="stays in classes count from now on")
        self._stays = [] if body is None else [_stay(each) for each in body["stays"]]
        self._looked = Seconds(0 if body is None else body["looked"])
        self._begun = False

    def look(self, own: bytes, now: Seconds, paid: Mapping[bytes, Wei]) -> tuple[Stay, ...]:
        """Updates the stays with the present class and what each class has paid in total; returns all of
        them."""
        before = list(self._stays)
        self._rest(now)
        seen = paid.get(own, NOTHING)
        if not self._stays or self._stays[-1].class_id != own:
            self._stays = [*self._stays, Stay(own, now, seen)][-MOST:] if own != ZERO_DIGEST or before else []
        elif seen != self._stays[-1].seen:
            grew = seen > self._stays[-1].seen
            paid_at = now if grew else self._stays[-1].paid_at
            self._stays[-1] = replace(self._stays[-1], seen=seen, paid_at=paid_at)
        if self._stays != before or now >= self._looked + LOOKS_EVERY:
            self._looked = now
            rows = [[s.class_id.hex(), s.since, str(s.seen), s.paid_at] for s in self._stays]
            record.write(self._path, _KIND, {"looked": now, "stays": rows})
        return tuple(self._stays)

    def _rest(self, now: Seconds) -> None:
        """On the first call: excludes the time since the last call of an earlier process."""
        gap = now - self._looked
        if not self._begun and self._stays and gap > LOOKS_EVERY:
            last = self._stays[-1]
            self._stays[-1] = replace(last, paid_at=Seconds(min(last.fed + gap, now)))
        self._begun = True


def _stay(row: list[Any]) -> Stay:
    class_id, since, seen, paid_at = row
    return Stay(bytes.fromhex(class_id), Seconds(since), Wei(int(seen)), Seconds(paid_at))

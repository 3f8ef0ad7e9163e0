"""Stores a verifier's ballots on disk, so that a restart does not contradict an earlier vote.

Contract: one record (``disk.record``) per claim and seed, on disk before the vote is sent. A damaged one
counts as absent: replaying the sample gives the same ballot. INVARIANT checked-here: `fresh` returns only
ballots that this process has computed, so no new vote is staked on another process's result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.disk import record
from assay.protocol.errors import Ask
from assay.protocol.types import ClaimId
from assay.verifier.policy import Ballot

_KIND = "assay/ballot/1"
_Key = tuple[ClaimId, bytes]


class ReplaysDiffer(Ask):
    """Two replays of the same sample gave different votes."""

    code = "replays-differ"


class Ballots:
    """Ballots by claim and seed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._fresh: dict[_Key, Ballot] = {}
        self._kept: dict[_Key, Ballot] = {}
        for path in sorted(folder.glob("*.json")):
            body = record.read_or_quarantine(path, _KIND, instead="its sample is replayed again")
            if body is not None:
                key, ballot = _decoded(body)
                self._kept[key] = ballot

    def all(self) -> dict[_Key, Ballot]:
        """Ballots that this or an earlier process has computed."""
        return {**self._kept, **self._fresh}

    def fresh(self) -> dict[_Key, Ballot]:
        """Ballots that this process has computed and may send."""
        return dict(self._fresh)

    def get(self, claim_id: ClaimId, seed: bytes) -> Ballot | None:
        key = claim_id, seed
        return self._fresh.get(key, self._kept.get(key))

    def put(self, claim_id: ClaimId, seed: bytes, ballot: Ballot) -> None:
        """Stores a ballot; the first one for a claim and seed stays.

        Raises ReplaysDiffer if an earlier process computed another vote: one of the two is wrong.
        """
        key = claim_id, seed
        if key in self._fresh:
            return
        kept = self._kept.get(key)
        if kept is not None and (kept.valid, kept.traces) != (ballot.valid, ballot.traces):
            raise ReplaysDiffer(
                f"two replays of the sample of claim 0x{claim_id.hex()} gave different results, so this"
                " machine computes wrongly at times; no vote was sent",
                hint="run `assay solver bench`, and a memory test",
            )
        record.write(self._path(key), _KIND, _encoded(key, ballot))
        self._fresh[key] = ballot

    def _path(self, key: _Key) -> Path:
        return self._folder / f"{key[0].hex()}-{key[1].hex()[:16]}.json"


def _encoded(key: _Key, ballot: Ballot) -> dict[str, Any]:
    return {
        "claim": key[0].hex(),
        "seed": key[1].hex(),
        "valid": ballot.valid,
        "traces": [trace.hex() for trace in ballot.traces],
        "finding": ballot.finding,
    }


def _decoded(body: dict[str, Any]) -> tuple[_Key, Ballot]:
    traces = tuple(bytes.fromhex(trace) for trace in body["traces"])
    key = ClaimId(bytes.fromhex(body["claim"])), bytes.fromhex(body["seed"])
    return key, Ballot(bool(body["valid"]), traces, bool(body["finding"]))

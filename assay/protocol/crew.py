"""What the members of a crew sign: the invitation, and transcripts of their steps (docs/protocol.md, 8).

Contract: fields are those of the Solidity structs, in order. An invitation's file is JSON with their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.protocol.types import Address, JobId, ProgramRef, Seconds, Wei

WHOLE = 10_000
"""Sum of all members' shares."""


@dataclass(frozen=True)
class Member:
    """`share`: of the crew's earnings, in ten-thousandths."""

    account: Address
    share: int
    stage: ProgramRef


@dataclass(frozen=True)
class Invitation:
    """All that the members of a crew consent to; the first is the leader."""

    job_id: JobId
    shard: int
    least_price: Wei
    stake: Wei
    """Stake of each member."""
    expiry: Seconds
    plan: bytes
    members: tuple[Member, ...]

    @property
    def leader(self) -> Address:
        """The account that acts for the crew."""
        return self.members[0].account

    def place(self, account: Address) -> int | None:
        """The account's first place among the members."""
        return next((i for i, member in enumerate(self.members) if member.account == account), None)


@dataclass(frozen=True)
class Transcript:
    """A member's steps from counter `first` on, for the claim of a round and attempt.

    `root`: over the hash of each step's state roots, before and after.
    """

    crew: Address
    member: int
    round: int
    attempt: int
    first: int
    steps: int
    root: bytes


@dataclass(frozen=True)
class Said:
    """A step of a transcript, with its proof."""

    step: int
    in_root: bytes
    out_root: bytes
    proof: tuple[bytes, ...]


def to_json(invitation: Invitation) -> dict[str, Any]:
    """An invitation as its file has it."""
    members = [
        {"account": m.account, "share": m.share, "stage": {**vars(m.stage), "root": _hex(m.stage.root)}}
        for m in invitation.members
    ]
    return {
        "job": _hex(invitation.job_id),
        "shard": invitation.shard,
        "leastPrice": str(invitation.least_price),
        "stake": str(invitation.stake),
        "expiry": invitation.expiry,
        "plan": _hex(invitation.plan),
        "members": members,
    }


def from_json(body: Mapping[str, Any]) -> Invitation:
    """The inverse of `to_json`. Raises ValueError, KeyError, TypeError."""
    members = [
        Member(
            Address(m["account"]),
            int(m["share"]),
            ProgramRef(_bytes(stage["root"]), int(stage["nodes"]), int(stage["slots"]), int(stage["params"])),
        )
        for m in body["members"]
        for stage in (m["stage"],)
    ]
    return Invitation(
        JobId(_bytes(body["job"])),
        int(body["shard"]),
        Wei(int(body["leastPrice"])),
        Wei(int(body["stake"])),
        Seconds(int(body["expiry"])),
        _bytes(body["plan"]),
        tuple(members),
    )


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _bytes(text: str) -> bytes:
    value = bytes.fromhex(text.removeprefix("0x"))
    if len(value) != 32:
        raise ValueError(f"{text} is not 32 bytes")
    return value

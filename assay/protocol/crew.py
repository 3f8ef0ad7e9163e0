"""What the members of a crew sign: the invitation, and transcripts of their steps (docs/protocol.md, 8).

Contract: fields are those of the Solidity structs, in order. An invitation's file is JSON with their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.protocol.types import Address, JobId, ProgramRef, Seconds, Wei

WHOLE = 10_000
"""Sum of all members' shares."""
MAX_MEMBERS = 8


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


def from_json(body: object) -> Invitation:
    """The inverse of `to_json`. Raises ValueError with the field that is wrong."""
    told = _object(body, "it")
    members = told.get("members")
    if not isinstance(members, list) or not 2 <= len(members) <= MAX_MEMBERS:
        raise ValueError(f"members is no list of 2 to {MAX_MEMBERS}")
    return Invitation(
        JobId(_digest(told, "job")),
        _whole(told, "shard", 32),
        Wei(_amount(told, "leastPrice", 128)),
        Wei(_amount(told, "stake", 96)),
        Seconds(_whole(told, "expiry", 64)),
        _digest(told, "plan"),
        tuple(_member(_object(member, f"members[{i}]")) for i, member in enumerate(members)),
    )


def _member(told: Mapping[str, Any]) -> Member:
    account, stage = told.get("account"), _object(told.get("stage"), "stage")
    if not isinstance(account, str) or not re.fullmatch("0x[0-9a-fA-F]{40}", account):
        raise ValueError(f"account is {account!r}, and no address")
    counts = (_whole(stage, name, 32) for name in ("nodes", "slots", "params"))
    return Member(Address(account), _whole(told, "share", 16), ProgramRef(_digest(stage, "root"), *counts))


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")
    return value


def _whole(told: Mapping[str, Any], name: str, bits: int) -> int:
    value = told.get(name)
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise ValueError(f"{name} is {value!r}, and no whole number of at most {bits} bits")
    return value


def _amount(told: Mapping[str, Any], name: str, bits: int) -> int:
    value = told.get(name)
    if not isinstance(value, str) or not re.fullmatch("[0-9]{1,39}", value) or int(value) >= 1 << bits:
        raise ValueError(f"{name} is {value!r}, and no amount in digits of at most {bits} bits")
    return int(value)


def _digest(told: Mapping[str, Any], name: str) -> bytes:
    value = told.get(name)
    if not isinstance(value, str) or not re.fullmatch("0x[0-9a-fA-F]{64}", value):
        raise ValueError(f"{name} is {value!r}, and not 0x and 64 hexadecimal digits")
    return bytes.fromhex(value[2:])

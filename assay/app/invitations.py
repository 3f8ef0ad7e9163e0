"""Invitations to crews: files, and what a member compares before it consents.

Contract: an invitation's file is a record of `assay.disk.record`. `drafted` and `check` ask the job file's
own cut and the job's terms on chain, so that every member consents to stages that it has computed itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.disk import record
from assay.protocol.crew import WHOLE, Invitation, Member, from_json, to_json
from assay.protocol.errors import Stop
from assay.protocol.types import Address, JobId, ProgramRef, Seconds, Terms, Wei

if TYPE_CHECKING:
    from assay.program.stages import Plan

KIND = "assay/crew-invitation/1"
_HINT = "get the file from the leader again; `assay crew invite` writes one"


class BadInvitation(Stop):
    """An invitation cannot be used; nothing was signed or sent."""

    code = "bad-invitation"


def write_invitation(path: Path, invitation: Invitation) -> None:
    """Writes an invitation's file. Raises OSError."""
    record.write(path, KIND, to_json(invitation))


def read_invitation(path: Path) -> Invitation:
    """Reads an invitation's file. Raises BadInvitation, DamagedRecord."""
    body = record.read(path, KIND, hint=_HINT)
    if body is None:
        raise BadInvitation(f"there is no invitation {path}, so nothing was sent", hint=_HINT)
    try:
        return from_json(body)
    except ValueError as error:
        raise BadInvitation(f"{path} is no invitation ({error}), so nothing was sent", hint=_HINT) from error


def least_stake(terms: Terms) -> Wei:
    """Stake of each member with which a crew can make the tasks of as many rounds as the job leaves
    unsettled, and their outer claims."""
    return Wei(2 * min(terms.rounds, terms.max_unsettled) * terms.solver_stake + terms.miss_penalty)


def shares_of(plan: Plan, given: Sequence[int] | None) -> list[int]:
    """Shares in ten-thousandths, in proportion to `given`, or to the stages' operations; the leader gets what
    does not divide. Raises BadInvitation."""
    from assay.program.validate import measure

    parts = given or [measure(stage.program).operations for stage in plan.stages]
    if len(parts) != len(plan.stages) or min(parts) < 0 or not sum(parts):
        raise BadInvitation(
            f"{len(parts)} shares do not fit {len(plan.stages)} members, so nothing was written",
            hint="give a number for each member, such as --shares 50,30,20",
        )
    shares = [WHOLE * part // sum(parts) for part in parts]
    shares[0] += WHOLE - sum(shares)
    return shares


def drafted(
    job_id: JobId,
    terms: Terms,
    plan: Plan,
    accounts: Sequence[Address],
    *,
    shard: int,
    least_price: Wei,
    stake: Wei,
    expiry: Seconds,
    shares: Sequence[int],
) -> Invitation:
    """An invitation for a job's shard. Raises BadInvitation."""
    _check_job(job_id, terms, plan)
    if not 0 <= shard < terms.shards:
        raise BadInvitation(
            f"the job has {terms.shards} shards and no shard {shard}, so nothing was written",
            hint="give --shard a number from 0 on",
        )
    if stake < terms.solver_stake + terms.miss_penalty:
        raise BadInvitation(
            "the stake is below the job's for one claim and one missed round, with which a crew commits"
            " nothing; nothing was written",
            hint="give more, or leave --stake out",
        )
    members = zip(accounts, shares, _stages(plan), strict=True)
    return Invitation(
        job_id, shard, least_price, stake, expiry, plan.root, tuple(Member(*member) for member in members)
    )


def check(invitation: Invitation, terms: Terms, plan: Plan) -> None:
    """Raises BadInvitation unless the invitation has the stages of this cut, and the job its program."""
    _check_job(invitation.job_id, terms, plan)
    if invitation.plan != plan.root or [m.stage for m in invitation.members] != _stages(plan):
        raise BadInvitation(
            "the invitation's stages are not those that the job file is cut into here; nothing was signed",
            hint="compare the plan of `assay crew plan` with the leader's, and the versions of assay",
        )


def _check_job(job_id: JobId, terms: Terms, plan: Plan) -> None:
    if terms.main.root != plan.whole.root:
        raise BadInvitation(
            f"the job file trains another program than job {job_id.hex()[:16]}; nothing was sent",
            hint="use the job file with which it was posted",
        )


def _stages(plan: Plan) -> list[ProgramRef]:
    from assay.node.job_programs import program_ref

    return [program_ref(stage.program) for stage in plan.stages]

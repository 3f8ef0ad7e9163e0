"""Invitations to crews: their files, shares, and what a member refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assay.app.invitations import (
    BadInvitation,
    check,
    drafted,
    least_stake,
    read_invitation,
    shares_of,
    write_invitation,
)
from assay.disk import record
from assay.program.stages import Plan, cut
from assay.protocol.crew import WHOLE, Invitation, Member, to_json
from assay.protocol.types import JobId, Loop, Seconds, Terms, Wei
from assay.training import models
from assay.training.optimisers import AdamW
from tests.fakes.jobs import account
from tests.property.markets import TERMS
from tests.unit.training.steps import built, corpus

JOB = JobId(b"j" * 32)
ACCOUNTS = [account(name) for name in ("alice", "bob")]


@pytest.fixture(scope="module")
def plan() -> Plan:
    model = models.build(models.GptConfig(n_layer=2, n_head=2, d_model=16, context=8), 1)
    return cut(built(model, AdamW(0.01), corpus(8)).inner, 2)


@pytest.fixture(scope="module")
def terms(plan: Plan) -> Terms:
    loop = Loop(plan.whole.root, len(plan.whole.nodes), 8, 4, 1)
    return replace(TERMS, loops=(loop,), shards=1, rounds=3, max_unsettled=2)


def invited(plan: Plan, terms: Terms, shard: int = 0, stake: Wei | None = None) -> Invitation:
    return drafted(
        JOB,
        terms,
        plan,
        ACCOUNTS,
        shard=shard,
        least_price=Wei(3),
        stake=least_stake(terms) if stake is None else stake,
        expiry=Seconds(99),
        shares=shares_of(plan, [2, 1]),
    )


def test_a_file_has_what_was_written(plan: Plan, terms: Terms, tmp_path: Path) -> None:
    made = invited(plan, terms)
    write_invitation(tmp_path / "invitation.json", made)
    assert read_invitation(tmp_path / "invitation.json") == made
    assert (made.leader, made.place(ACCOUNTS[1]), made.place(account("carol"))) == (ACCOUNTS[0], 1, None)


MALFORMED: dict[str, list[object]] = {
    "job": [None, 5, "0x12", "12" * 32, "0x" + "zz" * 32, ["0x"]],
    "shard": [None, "0", 0.5, True, -1, 1 << 32],
    "leastPrice": [None, 3, "-1", "", "1e3", "9" * 40, str(1 << 128)],
    "stake": [7, "0x1", str(1 << 96)],
    "expiry": ["soon", -1, 1 << 64],
    "plan": [b"".hex(), {}],
    "members": [None, {}, "ab", [], [1, 2], [{}] * 2, [{}] * 9],
    "account": [None, 5, "alice", "0x12", "0x" + "g" * 40],
    "share": ["1", -1, 1 << 16, 0.1],
    "stage": [None, "a", []],
    "root": [7, "0x"],
    "nodes": ["9", 1 << 32],
    "slots": [None],
    "params": [[]],
}


@pytest.mark.parametrize(("field", "value"), [(f, value) for f in MALFORMED for value in MALFORMED[f]])
def test_a_file_with_a_malformed_field_is_refused(
    plan: Plan, terms: Terms, tmp_path: Path, field: str, value: object
) -> None:
    body = to_json(invited(plan, terms))
    member = body["members"][1]
    next(told for told in (body, member, member["stage"]) if field in told)[field] = value
    record.write(tmp_path / "invitation.json", "assay/crew-invitation/1", body)
    with pytest.raises(BadInvitation, match="is no invitation") as refused:
        read_invitation(tmp_path / "invitation.json")
    assert field in refused.value.message or isinstance(value, list)


@pytest.mark.parametrize("body", [None, 5, "text", [], {}])
def test_a_file_that_is_no_invitation_is_refused(tmp_path: Path, body: object) -> None:
    record.write(tmp_path / "invitation.json", "assay/crew-invitation/1", body)
    with pytest.raises(BadInvitation):
        read_invitation(tmp_path / "invitation.json")


def test_shares_are_ten_thousand_and_the_rest_is_the_leaders(plan: Plan) -> None:
    assert shares_of(plan, [1, 2]) == [3_334, 6_666]
    assert shares_of(plan, [0, 5]) == [0, WHOLE]
    by_work = shares_of(plan, None)
    assert sum(by_work) == WHOLE and min(by_work) > 3_000, "the cut is balanced"
    for given in ([1], [1, 2, 3], [-1, 2], [0, 0]):
        with pytest.raises(BadInvitation):
            shares_of(plan, given)


def test_a_member_consents_to_its_own_cut_of_the_jobs_program_alone(plan: Plan, terms: Terms) -> None:
    made = invited(plan, terms)
    check(made, terms, plan)
    other = replace(made.members[1].stage, nodes=made.members[1].stage.nodes + 1)
    for wrong in (
        replace(made, plan=b"p" * 32),
        replace(made, members=(made.members[0], Member(ACCOUNTS[1], 3_333, other))),
    ):
        with pytest.raises(BadInvitation, match="stages"):
            check(wrong, terms, plan)
    with pytest.raises(BadInvitation, match="another program"):
        check(made, TERMS, plan)


def test_an_invitation_with_which_nothing_is_committed_is_not_written(plan: Plan, terms: Terms) -> None:
    assert least_stake(terms) == 4 * terms.solver_stake + terms.miss_penalty
    assert least_stake(replace(terms, rounds=1)) == 2 * terms.solver_stake + terms.miss_penalty
    with pytest.raises(BadInvitation, match="shards"):
        invited(plan, terms, shard=1)
    with pytest.raises(BadInvitation, match="stake"):
        invited(plan, terms, stake=Wei(terms.solver_stake + terms.miss_penalty - 1))

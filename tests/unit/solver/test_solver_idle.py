"""A solver that does nothing says why, in one line that stays until something changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.protocol.errors import Retry
from assay.protocol.types import Kind, Phase, Role, Seconds, Wei
from assay.solver.observation import Observation
from assay.solver.policy import decide
from assay.solver.reasons import idle
from tests.fakes.market_day import MarketDay
from tests.unit.solver.test_solver_policy import DEAR, ME, NOW, OTHER, claim, observation

STAKED = Wei(1_000)


def seen(**changes: object) -> Observation:
    return replace(observation(**changes), staked=STAKED)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("looks", "says"),
    [
        (replace(observation(), staked=Wei(0)), "no solver stake"),
        (replace(seen(), jobs=()), "no open job"),
        (seen(holders=(OTHER, OTHER)), "every shard is taken"),
        (seen(unlocked=99), "shard and claim lock 0.000000000000000107 tok of stake"),
        (seen(limits=DEAR), "below the operator's floor"),
        (
            seen(holders=(ME, OTHER), claims=(claim(Kind.TASK, 0, 0, Phase.ACCEPTED, ME),)),
            "task 0/0 of job 0707070707070707 waits for its challenge window, until ",
        ),
        (
            seen(holders=(ME, OTHER), claims=(claim(Kind.TASK, 0, 0, Phase.SEEDED, ME),)),
            "waits for its verifiers' votes, until ",
        ),
        (
            seen(holders=(ME, OTHER), claims=(claim(Kind.TASK, 0, 0, Phase.SETTLED, ME),)),
            "round 0: waits for shard 1 of somebody else",
        ),
    ],
)
def test_why_a_solver_is_idle(looks: Observation, says: str) -> None:
    assert says in idle(looks)
    later = replace(looks.clock, block=looks.clock.block + 1)
    assert idle(looks) == idle(replace(looks, clock=later)), "no text that changes by itself"


def test_a_claims_wait_is_told_by_the_time_when_it_ends() -> None:
    looks = seen(holders=(ME, OTHER), claims=(claim(Kind.TASK, 0, 0, Phase.ACCEPTED, ME, since=NOW),))
    later = replace(looks, now=Seconds(NOW + 1))
    assert idle(looks) == idle(later)


def test_a_solver_without_stake_says_so_until_it_has_some(day: MarketDay) -> None:
    day.join("poor")
    solver = day.solver("poor")
    for _ in range(3):
        solver.tick()
    assert "no solver stake" in solver.status.action and "no solver stake" in solver.status.error
    (told,) = day.named("idle")
    assert "stake deposit" in told["reason"], "once, not at every look"
    day.markets["poor"].stake_up("stake", Role.SOLVER, Wei(500))
    solver.tick()
    assert solver.status.error == "" and solver.status.action == "no open job"


def test_a_fetch_that_failed_is_not_shown_once_its_job_is_over(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    ann = day.solver("ann")

    def fail() -> None:
        raise Retry("nobody has the block")

    ann.actions.attempt("Examine/of a job that is over", job_id, fail)
    assert "nobody has the block" in ann.status.error
    ann.tick()
    assert ann.status.error == ""


def test_an_idle_node_says_what_it_waits_for(day: MarketDay) -> None:
    day.post(rounds=1, shards=1)
    ann, vera = day.solver("ann"), day.verifier("vera")
    day.verifier("viv")
    whistle = day.whistleblower("wendy")
    assert day.run(lambda: Phase.ACCEPTED in {e.status.phase for e in day.market_state.claims.values()})
    for _ in range(3):
        for service in day.services.values():
            service.tick()
    assert "waits" in ann.status.action and "until" in ann.status.action, ann.status
    assert "waits for its challenge window" in vera.status.action, vera.status
    assert whistle.status.action == "has rechecked every claim that can still be challenged"
    assert {ann.status.error, vera.status.error, whistle.status.error} == {""}


def test_a_reason_never_keeps_a_solver_from_work() -> None:
    assert decide(seen()) and idle(seen()).startswith("takes no shard")

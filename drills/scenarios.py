"""Defines the scenarios: who takes part, who cheats how, what must be seen in the end, and which attacks of
docs/threats.md that shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from assay.devnet.market import NodeSpec
from assay.protocol.errors import Stop
from drills.disturbances import Disturbance
from drills.lineups import accused, alone, covered, fault_of, in_round, lineup, weighty
from drills.promises import (
    Promise,
    falls,
    hidden_promises,
    honest_promises,
    hostile_job_promises,
    junk,
    last_second_promises,
    lost_on_purpose_promises,
    one_ulp_promises,
    silent_verifier_promises,
    sock_puppet_promises,
    straggler_promises,
    unmoved,
    vote_promises,
)


@dataclass(frozen=True)
class Scenario:
    """A scenario. `promised`: returns broken promises of an outcome."""

    name: str
    attacks: tuple[int, ...]
    """Numbers in docs/threats.md; empty if nobody attacks, or it has no number."""
    summary: str
    nodes: Callable[[], list[NodeSpec]]
    promised: Promise
    times: Mapping[str, str] = field(default_factory=dict)
    """Changed times of the job, such as a short one for a move that never comes."""
    attackers: tuple[str, ...] = ("solver-1",)
    """Accounts of the attacker."""
    quick_rounds: int = 2
    """Rounds of the smaller job: as many as the cheat needs."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Replaced lines of the job file, by the template's line."""
    disturbances: tuple[Disturbance, ...] = ()
    """Disturbances of processes and chain."""
    hostile_job: str = ""
    """Kind of hostile job that a stranger posts before the client (``drills.hostile_jobs``)."""


def hostile(job: str, attack: int, summary: str) -> Scenario:
    """A scenario in which everybody is honest but a stranger, who posts a hostile job first."""
    return Scenario(
        *(job, (attack,), summary, lambda: lineup(2), hostile_job_promises),
        attackers=(),
        quick_rounds=1,
        hostile_job=job,
    )


SHORT_MOVES = {"move": "15s"}
"""For cheats that cannot move and lose by the clock."""
SHORT_VOTES = {"vote": "45s"}

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "one-ulp",
            (5, 15),
            "a solver changes one weight by one unit in the last place and every verifier covers for it",
            covered(
                "--fault", "1:9:4:777", verifiers=3, whistle_1=("--no-audit-votes", "--await-votes")
            ),  # on a slow machine it would come before the votes
            one_ulp_promises,
        ),
        Scenario(
            "wrong-state",
            (6,),
            "a solver computes a step honestly and claims another optimiser moment than the step gives",
            covered("--fault", "state:1:11:29:77"),
            falls("task", 1, "WrongSegment", "output"),
        ),
        Scenario(
            "wrong-input",
            (7,),
            "a solver starts round 1 from the genesis state instead of what the others have learnt",
            alone("--cheat", "wrong-input"),
            falls("task", 1, "WrongInput", None, winner=None),
        ),
        Scenario(
            "hidden-input",
            (35,),
            "a solver starts round 1 from a state that it shows to nobody, and is made to open it",
            covered("--cheat", "hidden-input", "--withhold"),
            falls("task", 1, "HiddenInput", None),
            SHORT_MOVES,
        ),
        Scenario(
            "invented-segments",
            (),
            "a solver computes nothing and invents every state",
            alone("--cheat", "invented-segments"),
            falls("task", 0, "WrongSegment", "timeout", winner=None),
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "wrong-data",
            (3, 4),
            "a solver trains on records of its own choice",
            alone("--cheat", "wrong-data"),
            falls("task", 0, "WrongSegment", "arithmetic", winner=None),
            quick_rounds=1,
        ),
        Scenario(
            "wrong-outer",
            (8,),
            "whoever averages the shards changes one weight of the aggregate by one unit in the last place",
            covered("--fault", "aggregate:4:77"),
            falls("outer", None, "WrongSegment", "arithmetic"),
        ),
        Scenario(
            "omitted-shard",
            (8,),
            "whoever averages the shards leaves out a tensor of the last one",
            covered("--cheat", "omitted-shard"),
            falls("outer", None, "WrongInput", None),
        ),
        Scenario(
            "withheld",
            (34,),
            "a solver lies about one weight and publishes nothing; its verifiers cover for it",
            covered("--fault", "1:9:4:777", "--withhold"),
            falls("task", 1, "WrongSegment", "arithmetic", shown=False),
        ),
        Scenario(
            "lazy-verifier",
            (9, 11),
            "a verifier attests without replaying anything: it invents its traces",
            lambda: lineup(2, verifier_1=("--lazy",)),
            vote_promises,
            SHORT_MOVES,
            attackers=("verifier-1",),
            quick_rounds=1,
        ),
        Scenario(
            "copied-trace",
            (10,),
            "a verifier attests with the traces that another one has handed to it",
            lambda: lineup(2, verifier_1=("--copy-from", "verifier-2")),
            vote_promises,
            SHORT_MOVES,
            attackers=("verifier-1",),
            quick_rounds=1,
        ),
        Scenario(
            "junk-challenge",
            (18,),
            "somebody challenges an honest claim and plays the game to its last move",
            accused("1:0"),
            junk("timeout", moves=6),
            SHORT_MOVES,
            attackers=("whistle-1",),
        ),
        Scenario(
            "hidden-chunk",
            (33,),
            "a solver computes honestly and shows its states to nobody, not even on demand",
            lambda: lineup(
                2,
                solver_1=("--cheat", "hidden-states", "--withhold"),
                whistle_1=("--demand", "--no-audit-votes"),
            ),
            hidden_promises,
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "straggler",
            (),
            "a solver holds its shard and stops working; the round is closed without it",
            lambda: lineup(2, solver_1=("--cheat", "idle"), solver_2=("--max-shards", "1")),
            straggler_promises,
            {"task": "40s", "straggler": "130s", "vote": "15s"},
            changes={"min_shards = 2": "min_shards = 1"},
        ),
        Scenario(
            "interpolated",
            (1, 17),
            "a solver draws the states between its first and its last, which is right, with a ruler",
            alone("--cheat", "interpolated"),
            falls("task", 0, "WrongSegment", "timeout", winner=None),
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "half-invented",
            (2,),
            "a solver computes the first half of its segments and invents the rest",
            alone("--cheat", "half-invented"),
            falls("task", 0, "WrongSegment", "timeout", winner=None),
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "sock-puppets",
            (12, 13, 19),
            "a cheat has two whistleblowers of its own, which accuse it before an honest one can",
            covered(
                *("--fault", "1:9:4:777"),
                whistle_2=("--no-audit-votes",),
                whistle_3=("--no-audit-votes", "--poll", "4"),
            ),
            sock_puppet_promises,
            attackers=("solver-1", "whistle-1", "whistle-2"),
        ),
        Scenario(
            "lost-on-purpose",
            (16,),
            "a cheat has itself accused of what is right and wins that game, so that it may seem cleared",
            covered(
                *("--fault", "1:9:4:777"),
                whistle_1=("--no-audit-votes", "--accuse", "1:solver-1"),
                whistle_2=("--no-audit-votes", "--poll", "4"),
            ),
            lost_on_purpose_promises,
            SHORT_MOVES | {"window": "60s"},
            attackers=("solver-1", "whistle-1"),
        ),
        Scenario(
            "junk-vote-challenge",
            (14,),
            "somebody challenges the true votes on an honest claim",
            accused("0:0:votes"),
            junk("timeout", moves=6),
            SHORT_MOVES,
            attackers=("whistle-1",),
            quick_rounds=1,
        ),
        Scenario(
            "junk-flood",
            (23,),
            "four accusers challenge every honest claim at once",
            accused("0:0", "0:1", "0:solver-1", "0:solver-2"),
            junk("timeout", accusers=tuple(f"whistle-{i}" for i in range(1, 5))),
            SHORT_MOVES,
            attackers=tuple(f"whistle-{i}" for i in range(1, 5)),
            quick_rounds=1,
        ),
        Scenario(
            "silent-challenger",
            (24,),
            "somebody challenges an honest claim and leaves both clocks to run out",
            accused("0:0:silent"),
            junk("timeout"),
            SHORT_MOVES,
            attackers=("whistle-1",),
            quick_rounds=1,
        ),
        Scenario(
            "slow-challenger",
            (25,),
            "somebody challenges an honest claim and makes every move in its last seconds",
            accused("0:0:slow"),
            junk("timeout", moves=6),
            SHORT_MOVES,
            attackers=("whistle-1",),
            quick_rounds=1,
        ),
        Scenario(
            "silent-verifier",
            (32,),
            "a verifier casts none of its votes, and others are called in its place",
            lambda: weighty("verifier-1", lineup(3, verifier_1=("--silent",))),
            silent_verifier_promises,
            SHORT_VOTES,
            attackers=("verifier-1",),
            quick_rounds=1,
        ),
        Scenario(
            "reorganisation",
            (31, 46),
            "the chain forgets its last blocks, twice, and other ones take their place",
            lambda: lineup(2),
            unmoved(2),
            attackers=(),
            disturbances=(
                Disturbance("solver-1", "committed", "reorganise", "4"),
                Disturbance("verifier-1", "replayed", "reorganise", "6"),
            ),
            quick_rounds=1,
        ),
        Scenario(
            "chain-restarts",
            (47,),
            "the one node of the chain stops in the middle of things and is started again",
            lambda: lineup(2),
            unmoved(1),
            attackers=(),
            disturbances=(Disturbance("solver-1", "trained", "restart", "chain"),),
            quick_rounds=1,
        ),
        Scenario(
            "killed",
            (48,),
            "a solver, a verifier and a whistleblower are killed while they work, and started again",
            lambda: lineup(2),
            unmoved(4),
            attackers=(),
            disturbances=(
                Disturbance("solver-1", "trained", "kill", "solver-1"),
                Disturbance("solver-2", "committed", "kill", "solver-2"),
                Disturbance("verifier-1", "replayed", "kill", "verifier-1"),
                Disturbance("whistle-1", "audited", "kill", "whistle-1"),
            ),
            quick_rounds=1,
        ),
        Scenario(
            "last-second",
            (26,),
            "an honest whistleblower challenges a covered-up lie in the last seconds of its window",
            covered("--fault", "0:9:4:777", whistle_1=("--no-audit-votes", "--late")),
            last_second_promises,
            {"window": "45s"},
            quick_rounds=1,
        ),
        hostile("hostile-manifest", 43, "a stranger posts a job whose manifest is a bomb for its readers"),
        hostile("unsound-program", 45, "a stranger posts a job whose program breaks the rules of programs"),
        Scenario("honest", (), "nobody cheats", lambda: lineup(3), honest_promises, attackers=()),
    )
}


def lineup_of(cheat: str, honest: list[NodeSpec]) -> list[NodeSpec]:
    """The nodes of the scenario in `cheat`, ``NAME`` or ``NAME@ROUND``, plus those of `honest` with other
    names.

    Of the scenario's honest whistleblowers only those in `honest` stay. Raises Stop for an unknown name, and
    for a round if the scenario has no fault to move.
    """
    name, at, round_ = cheat.partition("@")
    scenario = SCENARIOS.get(name)
    if scenario is None:
        known = ", ".join(SCENARIOS)
        raise Stop(f"there is no scenario {name!r}", hint=f"there are {known}", code="not-found")
    nodes = scenario.nodes()
    if at:
        nodes = [replace(spec, arguments=in_round(spec.arguments, name, round_)) for spec in nodes]
        if nodes == scenario.nodes() and not any(fault_of(spec.arguments) for spec in nodes):
            raise Stop(f"{name} takes no round: it happens whenever it can", hint=f"write {name}")
    wanted = {spec.name for spec in honest}
    nodes = [s for s in nodes if s.role != "whistleblower" or s.name in wanted or "--accuse" in s.arguments]
    names = {spec.name for spec in nodes}
    return [*nodes, *(spec for spec in honest if spec.name not in names)]

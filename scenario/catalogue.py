"""The scenarios that there are: who takes part, who cheats how, and what must be seen in the end.

Contract: a promise is checked against the chain, the nodes' events and the client's own replay of whatever
was convicted, so that a cheat that was not played, or was convicted for something else, fails the scenario.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from assay.app.units import parse_amount
from assay.devnet.market import NodeSpec, default_nodes
from assay.protocol.errors import Stop
from assay.scenario.outcome import Outcome

LOOK = ("--poll", "0.4")
PATIENT = (*LOOK, "--patience", "3s")


@dataclass(frozen=True)
class Scenario:
    """`promised`: what the outcome lacks of what the scenario promises."""

    name: str
    summary: str
    nodes: Callable[[], list[NodeSpec]]
    promised: Callable[[Outcome], list[str]]
    times: Mapping[str, str] = field(default_factory=dict)
    """Times of the job other than usual, such as a short one for a move that never comes."""
    quick_rounds: int = 2
    """Rounds of the smaller job: as many as the cheat needs."""
    changes: Mapping[str, str] = field(default_factory=dict)
    """Lines of the job file that read otherwise, by what the template has."""


def cast(verifiers: int, **arguments: tuple[str, ...]) -> list[NodeSpec]:
    """Two solvers, the second of which waits for a better price, verifiers and a whistleblower; `arguments`
    by name (solver_1) are added to a node's own."""
    own = {"solver-1": ("--max-shards", "1"), "solver-2": ("--min-price", "10.5tok")}
    specs = []
    for spec in default_nodes(2, verifiers, 1):
        common = LOOK if spec.role == "whistleblower" else PATIENT
        added = arguments.get(spec.name.replace("-", "_"), ())
        words = (*spec.arguments, *common, *own.get(spec.name, ()), *added)
        specs.append(NodeSpec(spec.name, spec.role, spec.tokens, spec.stake, words))
    return specs


def covered(*cheat: str, verifiers: int = 2) -> Callable[[], list[NodeSpec]]:
    """solver-1 cheats, every verifier passes whatever it claims, and one whistleblower watches."""
    accomplices = {f"verifier_{i + 1}": ("--collude-with", "solver-1") for i in range(verifiers)}
    return lambda: cast(verifiers, solver_1=cheat, whistle_1=("--no-audit-votes",), **accomplices)


def alone(*cheat: str) -> Callable[[], list[NodeSpec]]:
    """solver-1 cheats among honest people."""
    return lambda: cast(2, solver_1=cheat)


def _planted(outcome: Outcome, name: str) -> list[str]:
    return [] if outcome.reported(name, "fault-planted") else ["the fault was not planted"]


def _losers(outcome: Outcome, *names: str) -> list[str]:
    return [f"{name} lost nothing" for name in names if outcome.change(name) >= 0]


def _winners(outcome: Outcome, *names: str) -> list[str]:
    return [f"{name} won nothing" for name in names if outcome.change(name) <= 0]


def _votes(outcome: Outcome) -> list[str]:
    """Verifiers lose if they vouched for what was wrong, and otherwise nothing."""
    guilty = {name for fallen in outcome.convicted for name in fallen["guilty"]}
    verifiers = {name for name in outcome.parties() if name.startswith("verifier")}
    spared = [f"{name} lost nothing, though guilty" for name in guilty if outcome.change(name) >= 0]
    robbed = [f"{name} lost, though not guilty" for name in verifiers - guilty if outcome.change(name) < 0]
    return spared + robbed


def falls(
    kind: str, round_: int | None, finding: str, reason: str | None, winner: str | None = "whistle-1"
) -> Callable[[Outcome], list[str]]:
    """solver-1's claim of this kind (and round) is convicted, once, for the fault that was planted: the
    client's replay gives this `finding`, and a game ended for this `reason` (None: no game was needed)."""

    def promised(outcome: Outcome) -> list[str]:
        missing = _planted(outcome, "solver-1")
        guilty = [c for c in outcome.convicted if c["claimant"] == "solver-1" and c["kind"] == kind]
        if len(guilty) != 1 or (round_ is not None and guilty[0]["round"] != round_):
            missing.append(f"solver-1's {kind} fell {len(guilty)} times instead of once: {outcome.convicted}")
        elif not str(guilty[0]["finding"]).startswith(finding):
            missing.append(f"a replay of it gives {guilty[0]['finding']} instead of {finding}")
        if len(outcome.convicted) != len(guilty):
            missing.append("an honest claim was convicted")
        reasons = [game.reason for game in outcome.games if game.decided and game.challenger_won]
        if reason is not None and reason not in reasons:
            missing.append(f"no game was decided by {reason}, but by {reasons or 'none'}")
        if reason is None and reasons:
            missing.append(f"a game was needed: {reasons}")
        missing += _votes(outcome) + _losers(outcome, "solver-1")
        return missing + _winners(outcome, *([winner] if winner else []))

    return promised


def _one_ulp_promises(outcome: Outcome) -> list[str]:
    missing = falls("task", 1, "WrongSegment", "arithmetic")(outcome)
    if not missing and outcome.convicted[0]["passedBy"] < 2:
        missing.append("the convicted claim had not been passed by two colluding verifiers")
    return missing


def _vote_promises(outcome: Outcome) -> list[str]:
    missing = _planted(outcome, "verifier-1")
    if outcome.convicted:
        missing.append("a claim was convicted although only a verifier cheated")
    lies = [lie for lie in outcome.lies if lie["verifier"] == "verifier-1"]
    if not lies or not all(str(lie["finding"]).startswith("WrongVote") for lie in lies):
        missing.append(f"no vote of verifier-1 was convicted for a wrong trace: {outcome.lies}")
    if len(lies) != len(outcome.lies):
        missing.append("an honest verifier's vote was convicted")
    return missing + _losers(outcome, "verifier-1") + _winners(outcome, "whistle-1", "solver-1")


def _junk_promises(outcome: Outcome) -> list[str]:
    missing = _planted(outcome, "whistle-1")
    games = [game for game in outcome.games if game.decided]
    if [game.challenger_won for game in games] != [False]:
        missing.append(f"the junk challenge was not lost: {[(g.reason, g.challenger_won) for g in games]}")
    if outcome.convicted:
        missing.append("an honest claim was convicted")
    return missing + _losers(outcome, "whistle-1") + _winners(outcome, "solver-1", "solver-2")


def _honest_promises(outcome: Outcome) -> list[str]:
    return ["a claim was convicted although nobody cheated"] if outcome.convicted or outcome.games else []


def _hidden_promises(outcome: Outcome) -> list[str]:
    missing = _planted(outcome, "solver-1")
    guilty = [c for c in outcome.convicted if c["claimant"] == "solver-1"]
    if len(guilty) != 1 or len(outcome.convicted) != 1:
        missing.append(f"one claim of solver-1 should have fallen, not {outcome.convicted}")
    elif guilty[0]["finding"] or guilty[0]["guilty"]:
        missing.append(f"the claim itself was right, and nobody else's fault: {guilty[0]}")
    if "withheld" not in outcome.demands or "supplied" in outcome.demands:
        missing.append(f"the demand was not left without an answer: {outcome.demands}")
    return missing + _losers(outcome, "solver-1") + _winners(outcome, "whistle-1")


def _straggler_promises(outcome: Outcome) -> list[str]:
    missing = _planted(outcome, "solver-1")
    if outcome.convicted or outcome.games:
        missing.append("somebody was accused although nobody lied")
    if not outcome.missing_shards or any(place["round"] == 0 for place in outcome.missing_shards):
        missing.append(f"no later round was closed without a shard: {outcome.missing_shards}")
    if outcome.burnt() != MISS_PENALTY:
        missing.append(f"burnt was {outcome.burnt()}, not the penalty of one missed deadline")
    return missing + _winners(outcome, "solver-2")


SOLVER_STAKE, VERIFIER_STAKE = parse_amount("440tok"), parse_amount("40tok")
MISS_PENALTY = parse_amount("20tok")
"""The template's."""
SHORT_MOVES = {"move": "15s"}
"""For cheats that have no move to make and lose by the clock."""

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "one-ulp",
            "a solver changes one weight by one unit in the last place and every verifier covers for it",
            covered("--fault", "1:9:4:777", verifiers=3),
            _one_ulp_promises,
        ),
        Scenario(
            "wrong-state",
            "a solver computes a step honestly and claims another optimiser moment than the step gives",
            covered("--fault", "state:1:11:29:77"),
            falls("task", 1, "WrongSegment", "output"),
        ),
        Scenario(
            "wrong-input",
            "a solver starts round 1 from the genesis state instead of what the others have learnt",
            alone("--cheat", "wrong-input"),
            falls("task", 1, "WrongInput", None, winner=None),
        ),
        Scenario(
            "hidden-input",
            "a solver starts round 1 from a state that it shows to nobody, and is made to open it",
            covered("--cheat", "hidden-input", "--withhold"),
            falls("task", 1, "HiddenInput", None),
            SHORT_MOVES,
        ),
        Scenario(
            "invented-segments",
            "a solver computes nothing and invents every state",
            alone("--cheat", "invented-segments"),
            falls("task", 0, "WrongSegment", "timeout", winner=None),
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "wrong-data",
            "a solver trains on records of its own choice",
            alone("--cheat", "wrong-data"),
            falls("task", 0, "WrongSegment", "arithmetic", winner=None),
            quick_rounds=1,
        ),
        Scenario(
            "wrong-outer",
            "whoever averages the shards changes one weight of the aggregate by one unit in the last place",
            covered("--fault", "aggregate:4:77"),
            falls("outer", None, "WrongSegment", "arithmetic"),
        ),
        Scenario(
            "omitted-shard",
            "whoever averages the shards leaves out a tensor of the last one",
            covered("--cheat", "omitted-shard"),
            falls("outer", None, "WrongInput", None),
        ),
        Scenario(
            "withheld",
            "a solver lies about one weight and publishes nothing; its verifiers cover for it",
            covered("--fault", "1:9:4:777", "--withhold"),
            falls("task", 1, "WrongSegment", "arithmetic"),
        ),
        Scenario(
            "lazy-verifier",
            "a verifier attests without replaying anything: it invents its traces",
            lambda: cast(2, verifier_1=("--lazy",)),
            _vote_promises,
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "copied-trace",
            "a verifier attests with the traces that another one has handed to it",
            lambda: cast(2, verifier_1=("--copy-from", "verifier-2")),
            _vote_promises,
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "junk-challenge",
            "somebody challenges an honest claim and plays the game to its last move",
            lambda: cast(2, whistle_1=("--accuse", "1:0")),
            _junk_promises,
            SHORT_MOVES,
        ),
        Scenario(
            "hidden-chunk",
            "a solver computes honestly and shows its states to nobody, not even on demand",
            lambda: cast(
                2,
                solver_1=("--cheat", "hidden-states", "--withhold"),
                whistle_1=("--demand", "--no-audit-votes"),
            ),
            _hidden_promises,
            SHORT_MOVES,
            quick_rounds=1,
        ),
        Scenario(
            "straggler",
            "a solver holds its shard and stops working; the round is closed without it",
            lambda: cast(2, solver_1=("--cheat", "idle"), solver_2=("--max-shards", "1")),
            _straggler_promises,
            {"task": "40s", "straggler": "130s", "vote": "15s"},
            changes={"min_shards = 2": "min_shards = 1"},
        ),
        Scenario("honest", "nobody cheats", lambda: cast(3), _honest_promises),
    )
}


def cast_of(fault: str, honest: list[NodeSpec]) -> list[NodeSpec]:
    """Nodes among whom somebody cheats, from ``NAME`` or ``NAME@ROUND``: the scenario's own, and those honest
    ones whose names it does not have; no honest whistleblower that is not among these. Raises Stop for an
    unknown name, or a round where it has none."""
    name, at, round_ = fault.partition("@")
    scenario = SCENARIOS.get(name)
    if scenario is None:
        known = ", ".join(SCENARIOS)
        raise Stop(f"there is no scenario {name!r}", hint=f"there are {known}", code="not-found")
    nodes = scenario.nodes()
    if at:
        nodes = [replace(spec, arguments=_in_round(spec.arguments, name, round_)) for spec in nodes]
        if nodes == scenario.nodes() and not any(_fault_of(spec.arguments) for spec in nodes):
            raise Stop(f"{name} happens whenever it can, in no round of choice", hint=f"write --fault {name}")
    wanted = {spec.name for spec in honest}
    nodes = [s for s in nodes if s.role != "whistleblower" or s.name in wanted or "--accuse" in s.arguments]
    names = {spec.name for spec in nodes}
    return [*nodes, *(spec for spec in honest if spec.name not in names)]


def _fault_of(arguments: Sequence[str]) -> re.Match[str] | None:
    """The round in a node's fault, if it has one."""
    texts = [value for option, value in pairwise(arguments) if option == "--fault"]
    return re.fullmatch(r"((?:state:)?)(\d+)(:\d+:\d+:\d+)", texts[0]) if texts else None


def _in_round(arguments: tuple[str, ...], name: str, round_: str) -> tuple[str, ...]:
    """The same arguments with their fault in this round."""
    if not round_.isdecimal():
        raise Stop(f"{round_!r} is no round", hint=f"write --fault {name}@0", code="bad-fault")
    found = _fault_of(arguments)
    if found is None:
        return arguments
    moved = f"{found[1]}{round_}{found[3]}"
    return tuple(moved if text == found[0] else text for text in arguments)

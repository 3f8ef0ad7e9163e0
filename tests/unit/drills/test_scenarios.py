"""A scenario fails if its cheat was not played, or fell for another reason."""

from __future__ import annotations

from typing import Any

import pytest

from assay.app.units import parse_amount
from drills import whistleblowers
from drills.balances import Snapshot
from drills.lineups import lineup
from drills.outcome import Outcome, Played
from drills.promises import LATE_S
from drills.scenarios import SCENARIOS

NAMES = ("solver-1", "solver-2", "verifier-1", "verifier-2", "whistle-1", "client")


def played(reason: str, won: bool = True, moves: int = 9) -> Played:
    """A game that has ended so."""
    return Played(1, moves, reason, True, won)


def outcome(change: dict[str, int], reasons: tuple[str, ...] = (), burnt: int = 0, **parts: Any) -> Outcome:
    names = (*NAMES, *(name for name in change if name not in NAMES))
    before = Snapshot(dict.fromkeys(names, 100), 0, 0, 0, 600)
    after = Snapshot({name: 100 + change.get(name, 0) for name in names}, 0, burnt, 0, 600)
    games = parts.pop("games", [played(reason) for reason in reasons])
    return Outcome(before=before, after=after, games=games, **parts)


def fell(finding: str, claimant: str = "solver-1", kind: str = "task", round_: int = 1) -> dict[str, Any]:
    place = {"claimant": claimant, "kind": kind, "round": round_, "shard": 0}
    return place | {"passedBy": 2, "guilty": ["verifier-1"], "finding": finding}


PLANTED = [("solver-1", {"event": "fault-planted"})]
TOOK = [("solver-1", {"event": "took", "job": "c0"}), ("solver-2", {"event": "took", "job": "c0"})]
PAID = {"solver-1": -50, "whistle-1": 20, "verifier-1": -40, "verifier-2": 3}


def test_what_was_promised_and_happened_misses_nothing() -> None:
    right = outcome(PAID, ("output",), events=PLANTED, convicted=[fell("WrongSegment: segment 2")])
    assert SCENARIOS["wrong-state"].promised(right) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"events": []}, "not planted"),
        ({"convicted": []}, "0 times"),
        ({"convicted": [fell("WrongInput: input slot 3")]}, "instead of WrongSegment"),
        ({"convicted": [fell("")]}, "instead of WrongSegment"),
        ({"convicted": [fell("WrongSegment", round_=0)]}, "instead of once"),
        ({"convicted": [fell("WrongSegment"), fell("WrongSegment", "solver-2")]}, "honest claim"),
        ({"reasons": ("arithmetic",)}, "no game was decided by output"),
        ({"change": PAID | {"solver-1": 0}}, "solver-1 lost nothing"),
        ({"change": PAID | {"whistle-1": 0}}, "whistle-1 won nothing"),
        ({"change": PAID | {"verifier-1": 0}}, "verifier-1 lost nothing"),
        ({"change": PAID | {"verifier-2": -1}}, "verifier-2 lost, though not guilty"),
    ],
)
def test_what_is_missing_of_it_is_said(changes: dict[str, Any], says: str) -> None:
    parts: dict[str, Any] = {"events": PLANTED, "convicted": [fell("WrongSegment: segment 2")]}
    parts |= changes
    seen = outcome(parts.pop("change", PAID), parts.pop("reasons", ("output",)), **parts)
    missing = SCENARIOS["wrong-state"].promised(seen)
    assert any(says in line for line in missing), missing


def test_a_lie_of_a_verifier_must_be_in_its_trace() -> None:
    planted = [("verifier-1", {"event": "fault-planted"}), *TOOK[:1]]
    change = {"verifier-1": -40, "whistle-1": 20, "solver-1": 10}
    for finding, missing in (("WrongVote: sampled trace 0", 0), ("WrongSegment: segment 1", 1), ("", 1)):
        lies = [{"verifier": "verifier-1", "finding": finding}]
        seen = outcome(change, ("timeout",), events=planted, lies=lies)
        assert len(SCENARIOS["lazy-verifier"].promised(seen)) == missing


@pytest.mark.parametrize(
    ("took", "change", "says"),
    [
        (("solver-1", "solver-2"), {"solver-1": 10, "solver-2": 10}, None),
        (("solver-2",), {"solver-2": 20}, None),
        (("solver-2",), {"solver-1": -1, "solver-2": 20}, "solver-1 lost, though it took no shard"),
        (("solver-1", "solver-2"), {"solver-2": 20}, "solver-1 won nothing"),
        ((), {}, "no honest solver took a shard"),
    ],
)
def test_whoever_took_a_shard_must_have_earned_by_it(
    took: tuple[str, ...], change: dict[str, int], says: str | None
) -> None:
    """Which of two solvers takes a shard is a race, and no scenario promises it."""
    events = [("verifier-1", {"event": "fault-planted"}), *((name, {"event": "took"}) for name in took)]
    lies = [{"verifier": "verifier-1", "finding": "WrongVote: sampled trace 0"}]
    seen = outcome({"verifier-1": -40, "whistle-1": 20} | change, ("timeout",), events=events, lies=lies)
    assert SCENARIOS["lazy-verifier"].promised(seen) == ([] if says is None else [says])


def test_a_straggler_leaves_a_gap_pays_for_it_and_there_is_no_verdict() -> None:
    paid, fine = {"solver-1": -10, "solver-2": 20}, parse_amount("20tok")
    gap = [{"round": 1, "shard": 0}]
    promised = SCENARIOS["straggler"].promised
    assert promised(outcome(paid, burnt=fine, events=PLANTED, missing_shards=gap)) == []
    assert promised(outcome(paid, burnt=0, events=PLANTED, missing_shards=gap))
    assert promised(outcome(paid, burnt=fine, events=PLANTED, missing_shards=[]))
    assert promised(outcome(paid, burnt=fine, events=PLANTED, missing_shards=[{"round": 0, "shard": 0}]))
    assert promised(outcome(paid, ("timeout",), burnt=fine, events=PLANTED, missing_shards=gap))


def test_what_falls_for_hiding_its_states_is_right_and_nobody_elses_fault() -> None:
    fallen = fell("") | {"guilty": []}
    promised = SCENARIOS["hidden-chunk"].promised
    right: dict[str, Any] = {"events": PLANTED, "convicted": [fallen], "demands": ["withheld"]}
    assert promised(outcome(PAID, **right)) == []
    outer = fallen | {"kind": "outer"}
    assert promised(outcome(PAID, **(right | {"convicted": [fallen, outer]}))) == [], "claimed before it fell"
    others = {"convicted": [fallen, fallen | {"claimant": "solver-2"}]}
    wrong: dict[str, Any]
    for wrong in ({"demands": ["supplied"]}, {"demands": []}, {"convicted": [fell("WrongSegment")]}, others):
        assert promised(outcome(PAID, **(right | wrong)))


def test_an_honest_market_has_no_game() -> None:
    assert SCENARIOS["honest"].promised(outcome({})) == []
    assert SCENARIOS["honest"].promised(outcome({}, ("arithmetic",)))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_has_two_solvers_and_enough_verifiers(name: str) -> None:
    specs = SCENARIOS[name].nodes()
    roles = [spec.role for spec in specs]
    assert roles.count("solver") == 2 and roles.count("verifier") >= 2
    assert len({spec.name for spec in specs}) == len(specs)
    drills = {"--fault", "--cheat", "--lazy", "--copy-from", "--accuse", "--silent"}
    cheats = {spec.name for spec in specs if drills & set(spec.arguments)}
    elsewhere = bool(SCENARIOS[name].disturbances or SCENARIOS[name].hostile_job)
    assert bool(cheats) != (name == "honest" or elsewhere)
    assert cheats <= set(SCENARIOS[name].attackers) <= {spec.name for spec in specs}
    assert set(SCENARIOS[name].attacks) <= set(range(1, 49)), "of docs/threats.md"


def test_junk_must_be_planted_lost_and_paid_for() -> None:
    promised = SCENARIOS["silent-challenger"].promised
    change = {"whistle-1": -20, "solver-1": 5, "solver-2": 5}
    planted: dict[str, Any] = {"events": [*TOOK, ("whistle-1", {"event": "fault-planted"})]}
    lost = [played("timeout", won=False)]
    assert promised(outcome(change, games=lost, **planted)) == []
    for games in ([], [played("timeout")], [played("arithmetic", won=False)]):
        assert promised(outcome(change, games=games, **planted))
    assert promised(outcome(change, games=lost, events=TOOK))
    assert promised(outcome(change | {"whistle-1": 0}, games=lost, **planted))
    assert promised(outcome(change | {"verifier-2": -1}, games=lost, **planted))
    short = [played("timeout", won=False, moves=3)]
    assert SCENARIOS["slow-challenger"].promised(outcome(change, games=short, **planted))


def test_what_cost_nobody_anything_must_have_happened() -> None:
    promised = SCENARIOS["reorganisation"].promised
    seen = [("devnet", {"event": "disturbed"})] * 2 + TOOK
    change = {"solver-1": 5, "solver-2": 5}
    assert promised(outcome(change, events=seen)) == []
    assert promised(outcome(change, events=seen[1:]))
    assert promised(outcome(change, burnt=1, events=seen))
    assert promised(outcome(change | {"verifier-1": -1}, events=seen))


def test_sock_puppets_get_one_reward_and_lose_together() -> None:
    promised = SCENARIOS["sock-puppets"].promised
    change = {"solver-1": -300, "verifier-1": -40, "whistle-1": 90, "whistle-2": 60, "whistle-3": 30}
    parts: dict[str, Any] = {"events": PLANTED, "convicted": [fell("WrongSegment: segment 2")]}
    assert promised(outcome(change, ("arithmetic",), 200, **parts)) == []
    assert promised(outcome(change, ("arithmetic",), 179, **parts)), "more than one reward"
    assert promised(outcome(change | {"solver-1": -150}, ("arithmetic",), 200, **parts)), "nothing lost"
    assert promised(outcome(change | {"whistle-3": -1}, ("arithmetic",), 200, **parts)), "a bond lost"


def test_a_game_that_is_lost_on_purpose_clears_nothing() -> None:
    promised = SCENARIOS["lost-on-purpose"].promised
    change = {"solver-1": -300, "verifier-1": -40, "whistle-1": -20, "whistle-2": 180}
    games = [played("timeout", won=False), played("arithmetic")]
    events = [*PLANTED, ("whistle-1", {"event": "fault-planted"})]
    parts: dict[str, Any] = {"events": events, "convicted": [fell("WrongSegment: segment 2")]}
    assert promised(outcome(change, games=games, **parts)) == []
    assert promised(outcome(change, games=games[1:], **parts))
    assert promised(outcome(change, games=games, **(parts | {"events": PLANTED})))
    assert promised(outcome(change | {"whistle-2": 0}, games=games, **parts))


def test_votes_that_are_not_shown_are_fined_each() -> None:
    promised, fine = SCENARIOS["silent-verifier"].promised, parse_amount("20tok")
    change = {"verifier-1": -2 * fine, "verifier-2": 3, "solver-1": 5, "solver-2": 5}
    planted: dict[str, Any] = {"events": [*TOOK, ("verifier-1", {"event": "fault-planted"})]}
    assert promised(outcome(change, burnt=2 * fine, **planted)) == []
    assert promised(outcome(change, burnt=fine // 2, **planted)) and promised(outcome(change, **planted))
    assert promised(outcome(change, burnt=2 * fine, events=TOOK))
    assert promised(outcome(change | {"verifier-2": 0}, burnt=2 * fine, **planted))
    assert promised(outcome(change | {"verifier-3": -1}, burnt=2 * fine, **planted))
    assert promised(outcome(change, ("timeout",), burnt=2 * fine, **planted))


def test_arguments_are_added_to_a_nodes_own() -> None:
    first = lineup(2, solver_1=("--withhold",))[0]
    assert first.name == "solver-1" and first.arguments[-3:] == ("--max-shards", "1", "--withhold")


def hostile_outcome(**events: list[str]) -> Any:
    """A stranger's job "ba" next to the client's "c0", with the solvers' events about each, as
    ``abandoned:ba``."""
    said = [("stranger", {"event": "fault-planted", "job": "ba"})]
    for name, words in events.items():
        for event, job in (word.split(":") for word in words):
            said.append((name.replace("_", "-"), {"event": event, "job": job}))
    return outcome({"solver-1": 10, "solver-2": 10, "stranger": 0}, events=said)


def test_a_hostile_job_must_be_refused_by_both_and_its_budget_come_back() -> None:
    promised = SCENARIOS["hostile-manifest"].promised
    right = ["abandoned:ba", "took:c0"]
    assert promised(hostile_outcome(solver_1=right, solver_2=right)) == []
    assert any(
        "solver-2 did not refuse" in m for m in promised(hostile_outcome(solver_1=right, solver_2=right[1:]))
    )
    taken = promised(hostile_outcome(solver_1=[*right, "took:ba"], solver_2=right))
    assert any("took shards of ['ba', 'c0']" in m for m in taken)
    assert promised(outcome({}, events=[])) == ["the stranger posted nothing"]


@pytest.mark.parametrize(("left", "missing"), [([9], 0), ([LATE_S], 0), ([LATE_S + 1], 1), ([], 1)])
def test_a_late_challenge_must_be_late(left: list[int], missing: int) -> None:
    assert whistleblowers.LATE_S == LATE_S
    events = [*PLANTED, *(("whistle-1", {"event": "late", "left": seconds}) for seconds in left)]
    fallen = fell("WrongSegment: segment 2") | {"round": 0}
    seen = outcome(PAID, ("arithmetic",), events=events, convicted=[fallen])
    assert len(SCENARIOS["last-second"].promised(seen)) == missing

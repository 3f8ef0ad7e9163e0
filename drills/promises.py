"""Checks of scenarios: each returns what an outcome lacks of its promise.

Contract: a promise is checked against the chain, the nodes' events and the client's own replay of everything
convicted. So a cheat that was not played, or was convicted for something else, fails the scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.app.units import parse_amount
from drills.outcome import Outcome

MISS_PENALTY = parse_amount("20tok")
"""Miss penalty of the template."""
LATE_S = 15
"""Maximum seconds left of a window when a late challenge comes (``drills.whistleblowers``)."""
STRANGER = "stranger"
"""The account that posts a hostile job."""
Promise = Callable[[Outcome], list[str]]


def planted(outcome: Outcome, name: str) -> list[str]:
    return [] if outcome.reported(name, "fault-planted") else ["the fault was not planted"]


def losers(outcome: Outcome, *names: str) -> list[str]:
    return [f"{name} lost nothing" for name in names if outcome.change(name) >= 0]


def winners(outcome: Outcome, *names: str) -> list[str]:
    return [f"{name} won nothing" for name in names if outcome.change(name) <= 0]


def paid(outcome: Outcome, *solvers: str) -> list[str]:
    """Each of these solvers that took a shard has earned; one that found all shards taken has not lost."""
    took = [name for name in solvers if outcome.told(name, "took")]
    missing = [] if took else ["no honest solver took a shard"]
    lost = [name for name in solvers if name not in took and outcome.change(name) < 0]
    return missing + winners(outcome, *took) + [f"{name} lost, though it took no shard" for name in lost]


def votes(outcome: Outcome) -> list[str]:
    """Verifiers lose stake only if they attested something wrong."""
    guilty = {name for fallen in outcome.convicted for name in fallen["guilty"]}
    verifiers = {name for name in outcome.parties() if name.startswith("verifier")}
    spared = [f"{name} lost nothing, though guilty" for name in guilty if outcome.change(name) >= 0]
    robbed = [f"{name} lost, though not guilty" for name in verifiers - guilty if outcome.change(name) < 0]
    return spared + robbed


def falls(
    kind: str,
    round_: int | None,
    finding: str,
    reason: str | None,
    winner: str | None = "whistle-1",
    *,
    shown: bool = True,
) -> Promise:
    """solver-1's claim of this kind (and round) is convicted once, for the planted fault.

    The client's replay gives this `finding`, and a game ended for this `reason` (None: no game was needed).
    `shown`: whether its states are published, without which no vote that covers for it is refuted.
    """

    def promised(outcome: Outcome) -> list[str]:
        missing = planted(outcome, "solver-1")
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
        missing += (votes(outcome) if shown else []) + losers(outcome, "solver-1")
        return missing + winners(outcome, *([winner] if winner else []))

    return promised


def one_ulp_promises(outcome: Outcome) -> list[str]:
    missing = falls("task", 1, "WrongSegment", "arithmetic")(outcome)
    if not missing and outcome.convicted[0]["passedBy"] < 2:
        missing.append("the convicted claim had not been passed by two colluding verifiers")
    return missing


def vote_promises(outcome: Outcome) -> list[str]:
    missing = planted(outcome, "verifier-1")
    if outcome.convicted:
        missing.append("a claim was convicted although only a verifier cheated")
    lies = [lie for lie in outcome.lies if lie["verifier"] == "verifier-1"]
    if not lies or not all(str(lie["finding"]).startswith("WrongVote") for lie in lies):
        missing.append(f"no vote of verifier-1 was convicted for a wrong trace: {outcome.lies}")
    if len(lies) != len(outcome.lies):
        missing.append("an honest verifier's vote was convicted")
    missing += losers(outcome, "verifier-1") + winners(outcome, "whistle-1")
    return missing + paid(outcome, "solver-1", "solver-2")


def junk(*reasons: str, accusers: Sequence[str] = ("whistle-1",), moves: int = 0) -> Promise:
    """Every game is one of these accusers', and lost, for one of these `reasons` and after at least `moves`
    moves.

    Its bond is lost, and no honest account has lost anything.
    """

    def promised(outcome: Outcome) -> list[str]:
        missing = [line for name in accusers for line in planted(outcome, name)]
        games = [game for game in outcome.games if game.decided]
        if len(games) < len(accusers) or any(game.challenger_won for game in games):
            missing.append(
                f"not every junk challenge was lost: {[(g.reason, g.challenger_won) for g in games]}"
            )
        if others := {game.reason for game in games} - set(reasons):
            missing.append(f"games were decided by {sorted(others)}, not by {reasons}")
        if any(game.moves < moves for game in games):
            missing.append(f"a game had less than {moves} moves: {[game.moves for game in games]}")
        if outcome.convicted or outcome.lies:
            missing.append("an honest claim or vote was convicted")
        honest = [name for name in outcome.parties() if name.startswith("verifier")]
        missing += [f"{name} lost, though honest" for name in honest if outcome.change(name) < 0]
        return missing + losers(outcome, *accusers) + paid(outcome, "solver-1", "solver-2")

    return promised


def honest_promises(outcome: Outcome) -> list[str]:
    missing = ["a claim was convicted although nobody cheated"] if outcome.convicted or outcome.games else []
    return missing + ([f"{outcome.burnt()} was burnt"] if outcome.burnt() else [])


def unmoved(times: int) -> Promise:
    """The disturbances happened this many times and cost nobody anything."""

    def promised(outcome: Outcome) -> list[str]:
        seen = sum(event["event"] == "disturbed" for _, event in outcome.events)
        missing = [] if seen == times else [f"{seen} of {times} disturbances happened"]
        nodes = [name for name in outcome.parties() if name.startswith(("solver", "verifier"))]
        lost = [f"{name} lost" for name in nodes if outcome.change(name) < 0]
        return missing + honest_promises(outcome) + lost + paid(outcome, "solver-1", "solver-2")

    return promised


def sock_puppet_promises(outcome: Outcome) -> list[str]:
    """solver-1 and the first two whistleblowers are one person."""
    missing = falls("task", 1, "WrongSegment", "arithmetic", winner=None)(outcome)
    watchers = [name for name in outcome.parties() if name.startswith("whistle")]
    rewards = sum(outcome.change(name) for name in watchers)
    if not 0 < rewards <= outcome.burnt():
        missing.append(
            f"{len(watchers)} whistleblowers got {rewards}, more than one reward: {outcome.burnt()}"
        )
    if any(outcome.change(name) < 0 for name in watchers):
        missing.append("a whistleblower lost its bond")
    if (theirs := sum(outcome.change(name) for name in ("solver-1", *watchers[:2]))) >= 0:
        missing.append(f"the cheat and its sock puppets together lost nothing, but got {theirs}")
    return missing


def lost_on_purpose_promises(outcome: Outcome) -> list[str]:
    """whistle-1 loses a game on purpose for solver-1, and whistle-2 convicts it all the same."""
    missing = falls("task", 1, "WrongSegment", "arithmetic", winner="whistle-2")(outcome)
    missing += planted(outcome, "whistle-1")
    if not [game for game in outcome.games if game.decided and not game.challenger_won]:
        missing.append("no game was lost on purpose")
    return missing + losers(outcome, "whistle-1")


def silent_verifier_promises(outcome: Outcome) -> list[str]:
    missing = planted(outcome, "verifier-1")
    if outcome.convicted or outcome.games:
        missing.append("somebody was accused although nobody lied")
    fines, rest = divmod(outcome.burnt(), MISS_PENALTY)
    if not fines or rest:
        missing.append(f"burnt was {outcome.burnt()}, not a penalty for each draw that was dropped")
    honest = [name for name in outcome.parties() if name.startswith("verifier") and name != "verifier-1"]
    missing += [f"{name} lost, though honest" for name in honest if outcome.change(name) < 0]
    if not any(outcome.change(name) > 0 for name in honest):
        missing.append("nobody was paid in its place")
    return missing + losers(outcome, "verifier-1") + paid(outcome, "solver-1", "solver-2")


def hidden_promises(outcome: Outcome) -> list[str]:
    missing = planted(outcome, "solver-1")
    fallen = outcome.convicted  # its task; its outer step too, if that was claimed before the task fell
    if not fallen or any(claim["claimant"] != "solver-1" for claim in fallen):
        missing.append(f"claims of solver-1 alone should have fallen, not {fallen}")
    if wrong := [claim for claim in fallen if claim["finding"] or claim["guilty"]]:
        missing.append(f"the claim itself was right, and nobody else's fault: {wrong[0]}")
    if "withheld" not in outcome.demands or "supplied" in outcome.demands:
        missing.append(f"the demand was not left without an answer: {outcome.demands}")
    return missing + losers(outcome, "solver-1") + winners(outcome, "whistle-1")


def straggler_promises(outcome: Outcome) -> list[str]:
    missing = planted(outcome, "solver-1")
    if outcome.convicted or outcome.games:
        missing.append("somebody was accused although nobody lied")
    if not outcome.missing_shards or any(place["round"] == 0 for place in outcome.missing_shards):
        missing.append(f"no later round was closed without a shard: {outcome.missing_shards}")
    if outcome.burnt() != MISS_PENALTY:
        missing.append(f"burnt was {outcome.burnt()}, not the penalty of one missed deadline")
    return missing + winners(outcome, "solver-2")


def last_second_promises(outcome: Outcome) -> list[str]:
    """The claim falls although it was challenged in the window's last seconds."""
    missing = falls("task", 0, "WrongSegment", "arithmetic")(outcome)
    left = [int(event["left"]) for event in outcome.told("whistle-1", "late")]
    if not left or not all(0 <= seconds <= LATE_S for seconds in left):
        missing.append(f"the challenge did not come in the last {LATE_S} s of the window: {left}")
    return missing


def hostile_job_promises(outcome: Outcome) -> list[str]:
    """Both solvers refused the stranger's job before staking on it, and did the client's."""
    posted = outcome.told(STRANGER, "fault-planted")
    if not posted:
        return ["the stranger posted nothing"]
    job, missing = posted[0]["job"], honest_promises(outcome)
    for name in ("solver-1", "solver-2"):
        if job not in {event["job"] for event in outcome.told(name, "abandoned")}:
            missing.append(f"{name} did not refuse the stranger's job")
        taken = {event["job"] for event in outcome.told(name, "took")}
        if job in taken:
            missing.append(f"{name} took shards of {sorted(taken)}")
    if outcome.change(STRANGER):
        missing.append(f"the stranger's budget did not come back to it: {outcome.change(STRANGER)}")
    return missing + paid(outcome, "solver-1", "solver-2")

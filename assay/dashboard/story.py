"""A job's history in words, from the chain's events.

Contract: pure. `told` describes every event that a person would ask about, once, in the order of the chain,
also for the time in which nobody looked. Accounts have their names and roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assay.app.game_text import WHAT_IS_ASKED
from assay.app.outlook import Who
from assay.app.units import round_amount
from assay.chain.eth.events import Event
from assay.protocol.game_state import GamePhase
from assay.protocol.types import ZERO_ADDRESS, Address, ClaimId, Phase, Terms
from assay.protocol.words import show_state

Arguments = Mapping[str, Any]
MOVES = ("Moved", "Narrowed", "LeafRevealed")


@dataclass(frozen=True)
class Line:
    """One event in this block. `state`: the state whose colour it is shown in."""

    block: int
    text: str
    state: str = ""


def told(events: Iterable[Event], terms: Terms, places: Mapping[ClaimId, str], who: Who) -> Iterator[Line]:
    """Events of a job, one after the other. `places`: of its claims."""
    story = _Story(terms, places, who)
    for event in events:
        say: Callable[[Arguments], str | tuple[str, str]] | None
        say = getattr(story, f"_{'moved' if event.name in MOVES else event.name.lower()}", None)
        said = say(event.arguments) if say is not None else ""
        text, state = said if isinstance(said, tuple) else (said, "")
        if text:
            yield Line(event.block_number, text, state)


class _Story:
    """Words for events; counts each claim's votes."""

    def __init__(self, terms: Terms, places: Mapping[ClaimId, str], who: Who) -> None:
        self._terms, self._places, self._who = terms, places, who
        self._valid: dict[bytes, int] = {}

    def _place(self, a: Arguments) -> str:
        return self._places.get(a["claimId"], f"claim {a['claimId'].hex()[:8]}")

    def _client(self, account: Address) -> str:
        return self._with("client", account)

    def _solver(self, account: Address) -> str:
        return self._with("solver", account)

    def _verifier(self, account: Address) -> str:
        return self._with("verifier", account)

    def _with(self, role: str, account: Address) -> str:
        """Role and name, or the name alone if it contains the role."""
        name = self._who(account)
        return name if name.startswith(role) else f"{role} {name}"

    def _all(self, accounts: Iterable[Address]) -> str:
        return ", ".join(self._who(account) for account in accounts)

    def _verifiers(self, accounts: Iterable[Address]) -> str:
        return ", ".join(self._with("verifier", account) for account in accounts)

    def _jobposted(self, a: Arguments) -> str:
        return f"{self._client(a['client'])} posted the job: {round_amount(a['budget'])} in escrow"

    def _jobfunded(self, a: Arguments) -> str:
        return f"{round_amount(a['amount'])} more in escrow"

    def _jobhalted(self, a: Arguments) -> str:
        return "halted by its client: no further round begins"

    def _roundstarted(self, a: Arguments) -> str:
        return f"round {a['round']} begins"

    def _rewound(self, a: Arguments) -> tuple[str, str]:
        return f"rewound: the job goes on from round {a['round']}", "disputed"

    def _shardsmissing(self, a: Arguments) -> str:
        return f"round {a['round']} was closed without {a['missing']} of its shards"

    def _jobclosed(self, a: Arguments) -> tuple[str, str]:
        return f"closed: {round_amount(a['refunded'])} went back to the client", "settled"

    def _shardassigned(self, a: Arguments) -> str:
        return f"{self._solver(a['solver'])} took shard {a['shard']}, {round_amount(a['price'])} a task"

    def _shardreleased(self, a: Arguments) -> str:
        return f"shard {a['shard']} is open again, without {self._solver(a['solver'])}: {a['reason']}"

    def _committed(self, a: Arguments) -> tuple[str, str]:
        return f"{self._solver(a['claimant'])} committed {self._place(a)}", "unchecked"

    def _seedrecorded(self, a: Arguments) -> str:
        drawn = f"{self._verifiers(a['drawn'])} were drawn" if a["drawn"] else "nobody could be drawn"
        return f"{drawn} for {self._place(a)}"

    def _called(self, a: Arguments) -> str:
        return f"{self._verifiers(a['drawn'])} were called to empty seats of {self._place(a)}"

    def _voteabstained(self, a: Arguments) -> str:
        return f"{self._verifier(a['verifier'])} gave its seat of {self._place(a)} up"

    def _voteshown(self, a: Arguments) -> tuple[str, str]:
        self._valid[a["claimId"]] = self._valid.get(a["claimId"], 0) + a["valid"]
        verb = "attests" if a["valid"] else "calls false"
        return f"{self._verifier(a['verifier'])} {verb} {self._place(a)}", "" if a["valid"] else "disputed"

    def _votefined(self, a: Arguments) -> str:
        fine = f"{self._verifier(a['verifier'])} is fined {round_amount(a['penalty'])}"
        return f"{fine}: no vote on {self._place(a)}, or one that was wrong"

    def _voteconvicted(self, a: Arguments) -> tuple[str, str]:
        self._valid[a["claimId"]] = self._valid.get(a["claimId"], 0) - 1
        loses = f"{self._verifier(a['verifier'])} loses {round_amount(a['slashed'])}"
        by = self._who(a["challenger"])
        return f"{loses}: {by} showed that its vote on {self._place(a)} was false", "convicted"

    def _accepted(self, a: Arguments) -> tuple[str, str]:
        place, valid, seats = self._place(a), self._valid.get(a["claimId"], 0), self._terms.verifiers
        if place.startswith("outer"):
            return "", ""
        state = show_state(Phase.ACCEPTED, 0 < seats <= valid)
        return f"{place} is {state} ({valid} of {seats} votes): its challenge window begins", state

    def _settled(self, a: Arguments) -> tuple[str, str]:
        paid = f"{round_amount(a['paid'])} for {self._solver(a['claimant'])}"
        return f"{self._place(a)} is settled: {paid}", "settled"

    def _voided(self, a: Arguments) -> str:
        wasted = f"; {round_amount(a['compensation'])} for the wasted work" if a["compensation"] else ""
        return f"{self._place(a)} of {self._who(a['claimant'])} counts for nothing{wasted}"

    def _convicted(self, a: Arguments) -> tuple[str, str]:
        loses = f"{self._solver(a['claimant'])} loses {round_amount(a['slashed'])}"
        gets = f"{round_amount(a['reward'])} for {self._who(a['challenger'])}, who found it"
        return (
            f"{self._place(a)} is convicted: {loses}, {round_amount(a['burnt'])} of it burnt, {gets}",
            "convicted",
        )

    def _seatsfreed(self, a: Arguments) -> str:
        paid = f"{round_amount(a['fee'])} each for {self._all(a['verifiers'])}, whose votes stand"
        return f"{self._place(a)}, which fell: {paid}" if a["verifiers"] else ""

    def _rewardkept(self, a: Arguments) -> str:
        return f"the reward for {self._place(a)} waits until other disputes of it are over"

    def _rewardshared(self, a: Arguments) -> str:
        return (
            f"the reward for {self._place(a)}, {round_amount(a['amount'])}, goes to {self._all(a['finders'])}"
        )

    def _challenged(self, a: Arguments) -> tuple[str, str]:
        what = f"segment {a['segment']} of {self._place(a)}"
        if a["verifier"] != ZERO_ADDRESS:
            what = f"the vote of {self._verifier(a['verifier'])} on {self._place(a)}"
        elif a["segment"] >= self._terms.segments and a["segment"] >= self._terms.outer_segments:
            what = f"the input of {self._place(a)}"
        return f"{self._who(a['challenger'])} disputes {what}: game {a['gameId']}", "disputed"

    def _moved(self, a: Arguments) -> str:
        phase = GamePhase(a["phase"] if "phase" in a else a["cursor"]["phase"])
        side = "challenger" if phase.challengers else "defender"
        return f"game {a['gameId']}: a move; the {side} is to {WHAT_IS_ASKED[phase]}"

    def _gamedecided(self, a: Arguments) -> str:
        winner = "challenger" if a["challengerWon"] else "defender"
        return f"game {a['gameId']}: won by the {winner} ({a['reason']})"

    def _demanded(self, a: Arguments) -> str:
        return f"{self._who(a['demander'])} demands to see part of a state of {self._place(a)}"

    def _supplied(self, a: Arguments) -> str:
        return f"what was demanded of {self._place(a)} was shown"

    def _withheld(self, a: Arguments) -> str:
        return f"what was demanded of {self._place(a)} was not shown in time"

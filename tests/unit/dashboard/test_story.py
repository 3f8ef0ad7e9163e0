"""A job's history in words, from the contracts' events."""

from __future__ import annotations

from typing import Any

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.contracts.bindings import INTERFACES
from assay.chain.eth.events import Event
from assay.dashboard.story import MOVES, Line, _Story, told
from assay.protocol.types import ZERO_ADDRESS, Address, ClaimId
from tests.property.markets import TERMS

ANN, BOB, WENDY = (Address("0x" + digit * 40) for digit in "123")
NAMES = {ANN: "ann", BOB: "bob"}
TASK = ClaimId(b"\1" * 32)
PLACES = {TASK: "task 0/1"}
TOK = 10**18
NOT_TOLD = {
    *("FindingShown", "FindingKept", "Resolved", "BindingConvicted", "GameOpened"),  # another event says it
    "Redrawn",
}


def said(*events: tuple[str, dict[str, Any]]) -> list[Line]:
    all_of_it = [Event(name, "", a, 10 + i, "0x", i, "0x") for i, (name, a) in enumerate(events)]
    return list(told(all_of_it, TERMS, PLACES, lambda who: NAMES.get(who, "0x33…33")))


def test_every_event_of_a_job_is_told_or_known_not_to_be() -> None:
    artifacts = load_artifacts()
    names = set()
    for contract in INTERFACES:
        if contract not in ("Vault", "Stakes", "Keys", "Guardian", "Clock", "Classes"):
            for entry in artifacts[contract].abi:
                inputs = {each["name"] for each in entry.get("inputs", ())}
                if entry["type"] == "event" and inputs & {"jobId", "claimId", "gameId", "demandId"}:
                    names.add(entry["name"])
    worded = {name for name in names if name in MOVES or hasattr(_Story, f"_{name.lower()}")}
    assert len(worded) > 20 and names - worded == NOT_TOLD


def test_accounts_have_their_names_and_roles() -> None:
    took, committed = said(
        ("ShardAssigned", {"solver": ANN, "shard": 1, "price": 20 * TOK}),
        ("Committed", {"claimId": TASK, "claimant": ANN}),
    )
    assert (took.block, took.text) == (10, "solver ann took shard 1, 20 tok a task")
    assert (committed.text, committed.state) == ("solver ann committed task 0/1", "unchecked")


def test_what_is_accepted_is_called_by_its_votes() -> None:
    voted = {"claimId": TASK, "verifier": BOB, "valid": True}
    nobody = said(("Accepted", {"claimId": TASK}))[-1]
    one = said(("VoteShown", voted), ("Accepted", {"claimId": TASK}))[-1]
    both = said(*[("VoteShown", voted)] * TERMS.verifiers, ("Accepted", {"claimId": TASK}))[-1]
    assert nobody.text.startswith(f"task 0/1 is unchecked (0 of {TERMS.verifiers} votes)")
    assert (nobody.state, one.state, both.state) == ("unchecked", "unchecked", "attested")
    assert "accepted" not in nobody.text + one.text + both.text


def test_a_conviction_says_who_loses_and_who_gets_what() -> None:
    amounts = {"slashed": 440 * TOK, "burnt": 220 * TOK, "reward": 177 * TOK + TOK // 2}
    convicted, back = said(
        ("Convicted", {"claimId": TASK, "claimant": ANN, "challenger": WENDY, **amounts}),
        ("Rewound", {"round": 0}),
    )
    assert convicted.state == "convicted"
    loses, burnt, gets = (
        "solver ann loses 440 tok",
        "220 tok of it burnt",
        "177.5 tok for 0x33…33, who found it",
    )
    assert convicted.text == f"task 0/1 is convicted: {loses}, {burnt}, {gets}"
    assert back.text.endswith("goes on from round 0")


def test_a_game_is_told_move_by_move() -> None:
    opened, move, narrowed, won = said(
        (
            "Challenged",
            {"claimId": TASK, "challenger": WENDY, "segment": 2, "gameId": 4, "verifier": ZERO_ADDRESS},
        ),
        ("Moved", {"gameId": 4, "phase": 2}),
        ("Narrowed", {"gameId": 4, "cursor": {"phase": 1}}),
        ("GameDecided", {"gameId": 4, "challengerWon": True, "reason": "arithmetic"}),
    )
    assert opened.text == "0x33…33 disputes segment 2 of task 0/1: game 4"
    assert move.text.startswith("game 4: a move; the ") and narrowed.text != move.text
    assert won.text == "game 4: won by the challenger (arithmetic)"

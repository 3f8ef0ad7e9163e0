"""Which calls are due by a clock, so that more may be paid for them: moves, answers, votes and tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.chain.contracts.batches import send_together
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.abi import MalformedData
from assay.chain.eth.fees import Due
from assay.protocol.demands import Asked, Chunk
from assay.protocol.dispute import RevealSteps, Timeout
from assay.protocol.encoding import as_tuple
from assay.protocol.ports import Write
from assay.protocol.types import Address, ClaimId, ClaimStatus, Kind, Phase, Progress, Seconds, Vote, Wei
from tests.fakes.market_node import CLAIM, GAME, ME, TERMS, D, MarketNode, RecordingSender, digest, sample

OTHER = Address("0x" + "22" * 20)
SINCE, STAKE, SEAT, BOND, PENALTY = 1_000, Wei(100), Wei(60), Wei(20), Wei(5)


@pytest.fixture
def posted(node: MarketNode) -> ClaimId:
    """A job with a claim that may be voted on."""
    terms = replace(
        TERMS,
        solver_stake=STAKE,
        verifier_stake=SEAT,
        challenge_bond=BOND,
        miss_penalty=PENALTY,
        vote_time=Seconds(300),
        task_time=Seconds(500),
        move_time=Seconds(60),
    )
    claim_id = ClaimId(digest("claim"))
    claim = replace(CLAIM, job_id=D, kind=Kind.TASK)
    node.answers = {
        "progress": as_tuple(sample(Progress, due_since=Seconds(SINCE))),
        "balance": 5,
        "price": 5,
        "holder": [ME, 1, SINCE + 10],
        "status": as_tuple(sample(ClaimStatus, phase=Phase.SEEDED, since=Seconds(SINCE))),
        "votes": [as_tuple(sample(Vote))],
        "current": claim_id,
        "overtaken": False,
    }
    node.emit("Jobs", "JobPosted", jobId=D, client=ME, budget=5, terms=as_tuple(terms))
    common = {"claimId": claim_id, "jobId": D, "claimant": ME}
    node.emit("Tasks", "Committed", claim=as_tuple(claim), roots=[D, D], seedBlock=1, **common)
    return claim_id


def test_a_move_is_due_by_its_clock_for_what_its_side_has_at_stake(
    market: ChainMarket, sender: RecordingSender, posted: ClaimId
) -> None:
    accused = replace(GAME.accused, job_id=D)
    game = replace(GAME, accused=accused, deadline=Seconds(5_000), move_time=Seconds(60), ballot=0)
    sides: list[tuple[dict[str, Any], Wei]] = [
        ({"challenger": ME, "defender": OTHER}, BOND),
        ({"challenger": OTHER, "defender": ME}, STAKE),
        ({"challenger": OTHER, "defender": ME, "ballot": 1}, SEAT),
    ]
    for changes, stake in sides:
        market.move("k", 7, replace(game, **changes), RevealSteps((D, D)))
        assert sender.calls[-1].due == Due(4_940, 5_000, stake)
    market.move("k", 7, game, Timeout())
    assert sender.calls[-1].due is None, "nobody loses by waiting with it"


def test_votes_answers_and_tasks_are_due_and_what_anyone_may_do_is_not(
    market: ChainMarket, sender: RecordingSender, posted: ClaimId
) -> None:
    market.vote("v", posted, D, True, [D])
    assert sender.calls[-1].due == Due(SINCE, SINCE + 300, PENALTY)
    claim = replace(CLAIM, job_id=D, kind=Kind.TASK)
    asked = Asked(posted, D, OTHER, Seconds(7_000), ())
    market.supply("s", 3, asked, claim, [Chunk(b"n", (D,), b"d", (D,), (D,))])
    assert sender.calls[-1].due == Due(6_940, 7_000, STAKE)
    sender.logs = []
    with pytest.raises(MalformedData, match="did not emit"):
        market.commit("c", claim, [D, D])
    assert sender.calls[-1].due == Due(SINCE + 10, SINCE + 510, PENALTY)
    for write in (lambda: market.settle("t", claim), lambda: market.take_shard("n", D, 0, Wei(0))):
        write()
        assert sender.calls[-1].due is None


def test_votes_go_by_themselves_so_that_nothing_else_is_paid_as_dearly(
    market: ChainMarket, posted: ClaimId
) -> None:
    class Taken:
        def __init__(self) -> None:
            self.calls: list[tuple[list[str], Due | None]] = []

        def unsent(self, intent: str) -> bool:
            return True

        def send_batch(self, key: str, members: list[str], call: Any) -> None:
            self.calls.append((members, call.due))

    claim = replace(CLAIM, job_id=D)
    writes = [Write(f"v{i}", "vote", (posted, D, True, [D])) for i in range(2)]
    writes[1:1] = [Write(f"t{i}", "tally", (claim,)) for i in range(2)]
    taken: Any = Taken()
    assert send_together(taken, market.contracts["Tasks"], writes, market._due_of) == {}
    assert taken.calls == [(["v0", "v1"], Due(SINCE, SINCE + 300, PENALTY)), (["t0", "t1"], None)]

"""The index after a reorganisation is the one that a read from the beginning makes, and costs what is new."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from eth_utils.crypto import keccak
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.chain.contracts import followed_index
from assay.chain.contracts.ended_claims import EndedClaims
from assay.chain.contracts.followed_index import FollowedIndex
from assay.chain.contracts.index import MarketIndex
from assay.chain.eth.events import Event, RolledBack
from tests.unit.chain.contracts.test_index import event, life

JOBS = [keccak(bytes([number])) for number in range(4)]


def market_life(job_id: bytes) -> list[Event]:
    """A job's, with everything that is put and taken back on the way."""
    posted, *most, closed = life(job_id, 2)
    claim_id = most[0].arguments["claimId"]
    place = {"segmentEnd": 1, "stateRoot": bytes(32), "deadline": 9, "places": []}
    number = job_id[0]
    return [
        event("Stakes_Staked", account="0xa", role=0, amount=100),
        event("Stakes_Endpoint", account=f"0x{number}", url=f"http://{number}"),
        posted,
        event("Tasks_ShardAssigned", jobId=job_id, solver="0xa", shard=0),
        event("Vault_Transfer", **{"from": 0, "to": 3, "amount": 7}),
        *most[:3],
        event("Availability_Demanded", demandId=number, claimId=claim_id, demander="0xd", **place),
        event("Tasks_RewardKept", claimId=claim_id, amount=5, challenger="0xw", gone=False),
        event("Stakes_Endpoint", account=f"0x{number}", url=""),
        *most[3:],
        event("Tasks_ShardReleased", jobId=job_id, solver="0xa", shard=0, reason=""),
        event("Availability_Supplied", demandId=number),
        closed,
        event("Tasks_RewardShared", claimId=claim_id, finders=[], amount=5),
        event("Tasks_VoteShown", claimId=claim_id, verifier="0xz", valid=True, traces=[]),
        event("Stakes_Endpoint", account=f"0x{number}", url=f"http://again/{number}"),
    ]


LIVES = [market_life(job_id) for job_id in JOBS]


@dataclass
class Chain:
    """Blocks of events, as a follower has read them."""

    first_block: int = 0
    more: bool = False
    blocks: list[list[Event]] = field(default_factory=list)
    told: int = 0
    """Events that were read from its history."""

    @property
    def cursor(self) -> int:
        return len(self.blocks) - 1

    def history(self, heeded: Callable[[str, str], bool], after: int = -1) -> Iterator[Event]:
        for block in self.blocks[after + 1 :]:
            for each in block:
                self.told += 1
                if heeded(each.contract, each.name):
                    yield each

    def mine(self, events: list[Event]) -> list[Event]:
        placed = [replace(e, block_number=len(self.blocks), log_index=i) for i, e in enumerate(events)]
        self.blocks.append(placed)
        return placed

    def lose(self, depth: int) -> RolledBack:
        kept = max(len(self.blocks) - depth, 0)
        gone = [each for block in self.blocks[kept:] for each in block]
        del self.blocks[kept:]
        return RolledBack(kept - 1, tuple(reversed(gone)))


def from_genesis(chain: Chain) -> MarketIndex:
    index = MarketIndex()
    for block in chain.blocks:
        for each in block:
            index.apply(each)
    return index


def told(index: MarketIndex) -> dict[str, Any]:
    """Everything in the tables, with the order in which it stands there."""
    found = {each.name: getattr(index, each.name) for each in fields(index) if each.name != "just_over"}
    found |= {name: list(table.items()) for name, table in found.items() if isinstance(table, dict)}
    return found | {"over": [vars_of(index.over), index.claim_ids()], "gateways": index.gateways()}


def vars_of(ended: EndedClaims) -> dict[str, Any]:
    return {name: list(value) if name != "_later" else value for name, value in vars(ended).items()}


def test_every_table_is_copied_whole_and_apart() -> None:
    chain = Chain()
    half: list[list[Event]] = [events[: len(events) // 2] for events in LIVES[:2]]
    for events in (*half, *LIVES[2:]):
        chain.mine(events)
    index = from_genesis(chain)
    before = deepcopy(told(index))
    copy = index.copy()
    assert told(copy) == before
    for events in LIVES[:2]:
        for each in chain.mine(events[len(events) // 2 :]):
            index.apply(each)
    assert told(copy) == before != told(index)
    tables = [each.name for each in fields(index) if isinstance(getattr(index, each.name), dict | list | set)]
    assert len(tables) > 15
    for name in tables:
        assert getattr(copy, name) is not getattr(index, name), name


MOVES = st.one_of(
    st.tuples(st.just("mine"), st.lists(st.integers(0, len(JOBS) - 1), max_size=6)),
    st.tuples(st.just("idle"), st.integers(1, 9)),
    st.tuples(st.just("lose"), st.integers(1, 14)),
    st.tuples(st.just("fail"), st.integers(1, 4)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MOVES, max_size=40), st.integers(0, 20))
def test_it_is_what_a_read_from_genesis_makes(moves: list[tuple[str, Any]], first: int) -> None:
    """`fail`: the node ends this many polls after blocks were read, so that the next poll tells them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(followed_index, "SPACING", 4)
        chain = Chain(more=False)
        for _ in range(first):
            chain.mine([])
        followed, at = FollowedIndex(chain), [(0, 0, 0, 0)] * first  # type: ignore[arg-type]
        untold: list[Event | RolledBack] = []
        failing = 0
        for what, much in moves:
            if what == "mine":
                places, events = list(at[-1] if at else (0, 0, 0, 0)), []
                for job in much:
                    if places[job] < len(LIVES[job]):
                        events.append(LIVES[job][places[job]])
                        places[job] += 1
                untold += chain.mine(events)
                at.append((places[0], places[1], places[2], places[3]))
            elif what == "idle":
                for _ in range(much):
                    chain.mine([])
                    at.append(at[-1] if at else (0, 0, 0, 0))
            elif what == "lose":
                untold.append(chain.lose(much))
                del at[len(chain.blocks) :]
            else:
                failing = much
            if failing:
                failing -= 1
                continue
            followed.fold(untold)
            untold = []
            assert told(followed.index) == told(from_genesis(chain))
            assert all(a[0] + 4 <= b[0] for a, b in zip(followed._copies, followed._copies[1:], strict=False))
        if not untold:
            again = FollowedIndex(chain)  # type: ignore[arg-type]
            again.read()
            assert told(again.index) == told(followed.index)


def test_every_depth_is_taken_back_to_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_index, "SPACING", 4)
    for depth in range(1, 32):
        chain = Chain()
        followed = FollowedIndex(chain)  # type: ignore[arg-type]
        for number in range(30):
            followed.fold(chain.mine([event("Stakes_Staked", account=f"0x{number}", role=0, amount=1)]))
        followed.fold([chain.lose(depth)])
        assert list(followed.index.staked) == [f"0x{number}" for number in range(30 - depth)], depth


@pytest.mark.parametrize("fresh", [False, True])
def test_a_reorganisation_costs_what_has_happened_since(fresh: bool) -> None:
    """Of a market that is old, also for a node that has just started."""
    chain = Chain()
    stake = event("Stakes_Staked", account="0xa", role=0, amount=1)
    for _ in range(5_000):
        chain.mine([stake])
    followed = FollowedIndex(chain)  # type: ignore[arg-type]
    followed.read()
    if not fresh:
        for _ in range(500):
            followed.fold(chain.mine([stake]))
    for depth in (1, 2, 17, followed_index.SPACING):
        chain.told = 0
        back = chain.lose(depth)
        followed.fold([back, *chain.mine([stake])])
        assert chain.told <= 3 * followed_index.SPACING
        assert followed.index.staked == {"0xa": len(chain.blocks)}
        for _ in range(depth):
            followed.fold(chain.mine([stake]))
    chain.told = 0
    followed.fold([chain.lose(1_000)])
    assert chain.told == len(chain.blocks) > 3_000, "no copy is so old"
    chain.told = 0
    followed.fold([chain.lose(3)])
    assert chain.told <= 3 * followed_index.SPACING, "that read has left a copy"


def test_events_that_contradict_one_another_are_forgotten_with_every_copy() -> None:
    chain = Chain()
    for _ in range(200):
        chain.mine([event("Stakes_Staked", account="0xa", role=0, amount=1)])
    followed = FollowedIndex(chain)  # type: ignore[arg-type]
    followed.read()
    assert followed._copies
    with pytest.raises(KeyError):
        followed.fold(chain.mine([event("Availability_Supplied", demandId=4)]))
    followed.clear()
    assert not followed._copies and told(followed.index) == told(MarketIndex())


class FullDisk(Chain):
    """A chain whose file of events fails in the middle, once."""

    left: int | None = None

    def history(self, heeded: Callable[[str, str], bool], after: int = -1) -> Iterator[Event]:
        for each in super().history(heeded, after):
            if self.left == 0:
                self.left = None
                raise sqlite3.OperationalError("disk I/O error")
            self.left = None if self.left is None else self.left - 1
            yield each


@pytest.mark.parametrize("left", [0, 1, 30])
def test_a_fold_that_failed_is_made_good_by_the_next_one(left: int) -> None:
    """Its events are not told twice, and views at any block since are forgotten."""
    chain: Any = FullDisk()
    for number in range(100):
        chain.mine([event("Stakes_Staked", account=f"0x{number}", role=0, amount=1)])
    followed = FollowedIndex(chain)
    followed.read()
    chain.left = left
    with pytest.raises(sqlite3.OperationalError):
        followed.fold([chain.lose(3)])
    assert chain.left is None, "it has failed"
    new = chain.mine([event("Stakes_Staked", account="0xnew", role=0, amount=1)])
    assert followed.fold(new) == -1
    assert told(followed.index) == told(from_genesis(chain))
    assert followed.fold(chain.mine([])) is None

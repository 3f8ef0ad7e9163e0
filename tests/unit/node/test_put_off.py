"""Deferred fetches end, and do not keep a node from other work."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch

from assay.compute.orders import Cancelled
from assay.node.artifacts import publish_job
from assay.node.fetch_failures import Absent, MissCachingBlocks
from assay.node.replay_cache import ReplayCache
from assay.node.role import Node
from assay.node.states import Known
from assay.program.execute import Records
from assay.protocol.errors import BlockNotFound, Deferred
from assay.protocol.types import ZERO_ADDRESS, ClaimId, JobId, Kind, Phase, Role, Seconds
from assay.training.outer import outer_genesis
from assay.whistleblower import policy
from drills.solvers import WrongDataSolver
from tests.fakes.jobs import WIDTH, TinyFiles, tiny_files
from tests.fakes.market_day import MarketDay
from tests.fakes.opened import give_blocks, states_of
from tests.fakes.slow_blocks import DrippingBlocks, SlowBlocks

OWN_S = 32
"""For which a file is waited for that never comes."""


def bait(number: int) -> TinyFiles:
    """A job that shares no file with another."""
    start = [torch.linspace(-2 - number, 2 + number, WIDTH)]
    data = bytes((11 * i + 5 + 7 * number) % 256 for i in range(32 * WIDTH))
    tiny = tiny_files(1, rate=0.125)
    state = [*start, *tiny.genesis[1:]]
    return replace(tiny, records=Records(data, WIDTH), genesis=state, outer_genesis=outer_genesis(start, 1))


class PutOffDay:
    """A market day in which one node waits for files while all others run."""

    def __init__(self, folder: Path) -> None:
        self.day = MarketDay(folder)
        self.waiting: Node | None = None

    def meanwhile(self) -> None:
        for service in list(self.day.services.values()):
            if service is not self.waiting:
                service.tick()
        self.day.market_state.advance(4)

    def baits(self, count: int, **changes: Seconds) -> set[str]:
        """Posts junk jobs; returns the CIDs of their files."""
        publish_job(self.day.blocks(), tiny_files(1))
        theirs: set[str] = set()
        for number in range(count):
            known = set(self.day.network.blocks)
            self.day.post(bait(number), rounds=1, shards=1, nonce=10 + number, **changes)
            theirs |= set(self.day.network.blocks) - known
        return theirs

    def dripping(self, node: Node, job_id: JobId) -> DrippingBlocks:
        """Bob's published states of a job, which never reach this node."""
        theirs, known = self.day.blocks(), set(self.day.network.blocks)
        self.day.solver("bob", WrongDataSolver, blocks=theirs)
        self.waiting, blocks = node, DrippingBlocks(self.day.network, OWN_S, self.meanwhile)
        give_blocks(node, blocks)
        blocks.slow = lambda cid: cid in theirs.own and cid not in known
        assert self.day.run(lambda: bool(self.day.phases(job_id, Kind.TASK)))
        return blocks


@pytest.fixture
def put_off_day(tmp_path: Path) -> PutOffDay:
    return PutOffDay(tmp_path)


def test_attack_T42_states_that_never_come_cost_no_vote(put_off_day: PutOffDay) -> None:
    """No two of the files fit one look; what was found missing stays so until the replay has ended."""
    day = put_off_day.day
    v0 = day.verifier("v0")
    day.verifier("v1")
    del day.services["v1"]
    shape = {"steps_per_round": 12, "segment_steps": 1, "samples": 4}
    job_id = day.post(rounds=1, shards=1, vote_time=Seconds(2000), **shape)
    blocks = put_off_day.dripping(v0, job_id)
    assert day.run(lambda: bool(day.named("voted") or day.named("abstained")), turns=600)
    assert [event["address"] for event in day.named("voted")] == [v0.market.me]
    assert not next(iter(day.named("replayed")))["valid"]
    asked, finite = len(blocks.asked), len(set(blocks.asked))
    assert v0.status.counters["put_off"] > 2 and asked <= 3 * finite, "each only as often as its time takes"


def test_attack_T42_states_that_never_come_hide_no_false_claim(put_off_day: PutOffDay) -> None:
    """Of a whistleblower that demands what is not published, and has to find each of them missing first."""
    day = put_off_day.day
    shape = {"steps_per_round": 8, "segment_steps": 1, "challenge_window": Seconds(6000)}
    job_id = day.post(rounds=1, shards=1, **shape)
    wendy = day.whistleblower("wendy", demand=True)
    put_off_day.dripping(wendy, job_id)
    ended = {Phase.CONVICTED, Phase.SETTLED}
    assert day.run(lambda: bool(ended & set(day.phases(job_id, Kind.TASK))), turns=3000)
    assert Phase.CONVICTED in day.phases(job_id, Kind.TASK)
    assert wendy.status.counters["put_off"] > 2


def test_what_is_found_missing_is_so_until_the_action_has_ended(put_off_day: PutOffDay) -> None:
    day = put_off_day.day
    blocks = DrippingBlocks(day.network, 8, lambda: None)
    cid = day.blocks().put(b"late")
    blocks.slow = {cid}.__contains__
    absent = Absent()
    sparing = MissCachingBlocks(blocks, absent)

    def look(*ends: type[Exception]) -> None:
        with absent.during("audit"):
            with pytest.raises(BlockNotFound):
                sparing.read_file(cid, 8)
            for end in ends:
                raise end("ends")

    for asked in (1, 1):
        with pytest.raises(Deferred):
            look(Deferred)
        assert len(blocks.asked) == asked
    with absent.during("another"), pytest.raises(BlockNotFound):
        sparing.read_file(cid, 8)
    assert len(blocks.asked) == 2, "another action asks for itself"
    with pytest.raises(KeyError):
        look(KeyError)
    assert len(blocks.asked) == 2, "it went on with what it had found"
    look()
    assert len(blocks.asked) == 3, "it begins anew once it has failed"
    with pytest.raises(BlockNotFound):
        sparing.read_file(cid, 8)
    assert len(blocks.asked) == 4, "outside of actions everything is asked for"
    with pytest.raises(Deferred):
        look(Deferred)
    sparing.put(b"late")
    blocks.slow = set[str]().__contains__
    with absent.during("audit"):
        assert sparing.read_file(cid, 8) == b"late", "what was stored meanwhile is there"


def test_what_one_order_found_missing_is_so_for_the_next_ones_of_its_action(put_off_day: PutOffDay) -> None:
    """Until the action's last order has ended or one has failed, even if it was deferred or cancelled
    meanwhile."""
    day = put_off_day.day
    blocks = DrippingBlocks(day.network, 8, lambda: None)
    cid = day.blocks().put(b"late")
    blocks.slow = {cid}.__contains__
    absent = Absent()
    sparing = MissCachingBlocks(blocks, absent)

    def look(*, part: bool, end: type[Exception] | None = None) -> int:
        with suppress(Deferred, Cancelled, KeyError), absent.during("replay", part):
            with pytest.raises(BlockNotFound):
                sparing.read_file(cid, 8)
            if end is not None:
                raise end("ends")
        return len(blocks.asked)

    assert [look(part=True) for _ in range(3)] == [1, 1, 1]
    assert look(part=True, end=Deferred) == look(part=True) == look(part=True, end=Cancelled) == 1
    assert look(part=False) == 1 and look(part=True) == 2, "it begins anew once it has ended"
    assert look(part=True, end=KeyError) == 2 and look(part=True) == 3, "or failed"


def test_holes_are_looked_for_once_by_an_action(
    put_off_day: PutOffDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks, absent, maps = put_off_day.day.blocks(), Absent(), [[range(2)], [range(3)]]
    monkeypatch.setattr(blocks, "holes", lambda cid, max_bytes, order, most: maps.pop(0))
    sparing = MissCachingBlocks(blocks, absent)
    with pytest.raises(Deferred), absent.during("demand"):
        assert sparing.holes("b", 4, Random(1), 4) == [range(2)]
        raise Deferred("ends")
    with absent.during("demand"):
        assert sparing.holes("b", 4, Random(1), 4) == [range(2)]
    with absent.during("demand"):
        assert sparing.holes("b", 4, Random(1), 4) == [range(3)]


@pytest.mark.long
def test_attack_T43_baits_that_are_put_off_by_turns_cost_no_vote(put_off_day: PutOffDay) -> None:
    """Each poll is used up by one of the baits, yet the honest vote is replayed, committed and shown in
    time."""
    day = put_off_day.day
    v0 = day.verifier("v0")
    day.verifier("v1")
    blocks = SlowBlocks(day.network, 4000, put_off_day.meanwhile)
    put_off_day.waiting = v0
    give_blocks(v0, blocks)
    before = day.market_state.active[v0.market.me, Role.VERIFIER]
    blocks.slow = put_off_day.baits(4, vote_time=Seconds(4000)).__contains__
    for number in range(4):
        day.solver(f"mall{number}")
    del day.services["v0"]
    assert day.run(lambda: len({event["job"] for event in day.named("committed")}) == 4)
    day.services["v0"] = v0
    job_id = day.post(rounds=1, shards=1, nonce=2, vote_time=Seconds(240))
    day.solver("ann")
    assert day.run(day.closed(job_id), turns=600)
    assert day.market_state.active[v0.market.me, Role.VERIFIER] == before
    voted = [event["job"] for event in day.named("voted") if event["address"] == v0.market.me]
    assert voted == [job_id.hex()]
    assert v0.status.counters["put_off"] > 2


def test_attack_T43_what_was_found_is_pursued_beside_demands_that_are_put_off(
    put_off_day: PutOffDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    wendy = put_off_day.day.whistleblower("wendy", demand=True)
    place = JobId(b"j" * 32)
    demands = [policy.Demand(place, ClaimId(bytes([n]) * 32), "") for n in range(2)]
    pursue = policy.Pursue(place, ClaimId(b"c" * 32), ZERO_ADDRESS, "")
    done: list[policy.Action] = []

    def demand(action: policy.Demand) -> None:
        raise Deferred("no more time is left", hint="it is tried again")

    monkeypatch.setattr(wendy, "decide", lambda: [*demands, pursue])
    monkeypatch.setattr(wendy, "handlers", lambda: {policy.Demand: demand, policy.Pursue: done.append})
    wendy.tick()
    assert done == [pursue] and wendy.loop.at_once and wendy.status.counters["put_off"] == 1
    wendy.tick()
    assert done == [pursue, pursue] and wendy.status.counters["put_off"] == 2, "without a rest between them"


@pytest.mark.parametrize("baits", [1, 2, 3])
def test_attack_T44_junk_jobs_that_are_put_off_keep_no_solver_from_work(
    put_off_day: PutOffDay, baits: int
) -> None:
    """Their files never end; the honest job is examined after each of them had a turn, and then taken."""
    day = put_off_day.day
    blocks = SlowBlocks(day.network, 100_000, put_off_day.meanwhile)
    blocks.slow = put_off_day.baits(baits).__contains__
    job_id = day.post(rounds=1, shards=1, nonce=2)
    ann = day.solver("ann", blocks=blocks)
    put_off_day.waiting = ann
    for _ in range(2 * baits + 4):
        ann.tick()
        day.market_state.advance(4)
    assert [event["job"] for event in day.named("took")] == [job_id.hex()]
    assert ann.status.counters["put_off"] >= baits


def test_a_state_that_was_kept_is_not_asked_for(put_off_day: PutOffDay) -> None:
    """Neither one in memory, nor one of the node's own replays on its disk."""
    day = put_off_day.day
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    wendy = day.whistleblower("wendy")
    del day.services["wendy"]
    assert day.run(lambda: bool(day.phases(job_id, Kind.TASK)))
    view = next(claim for claim in wendy.market.claims(job_id) if claim.claim.kind == Kind.TASK)
    last = len(view.roots) - 1
    state = states_of(wendy, job_id).leaf(view, last)
    assert isinstance(state, Known)
    ReplayCache(day.folder / "wendy" / "replays", 1 << 20).keep_state(view.roots[last], state.state)
    blocks = DrippingBlocks(day.network, 8, partial(day.market_state.advance, 4))
    give_blocks(wendy, blocks)
    provider = states_of(wendy, job_id)
    provider.checkpoints(view)
    blocks.slow = lambda cid: True
    for _ in range(2):
        found = provider.leaf(view, last)
        assert isinstance(found, Known)
        assert [x.tolist() for x in found.state] == [x.tolist() for x in state.state]
        assert not blocks.asked
        for path in (day.folder / "wendy" / "replays" / "states").iterdir():
            path.unlink()  # from now on only memory has it

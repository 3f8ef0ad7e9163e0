"""A node replays no segment twice, and trusts nothing on its disk that is not what it wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.disk import record
from assay.node.artifacts import State
from assay.node.audit import audit_claim
from assay.node.findings import WrongSegment
from assay.node.orders import ReplayCacheSpec
from assay.node.pins import Pins, PinSpaceExceeded
from assay.node.replay_cache import ReplayCache
from assay.node.states import Known, StateProvider, open_state_provider
from assay.node.work import Work
from assay.program.fault import NodeFault
from assay.program.state import state_root
from assay.protocol import trees
from assay.protocol.errors import Retry
from assay.protocol.loops import FromClaim
from assay.protocol.types import ClaimId, ClaimView, JobId, Kind
from drills.orders import Plan
from drills.solvers import FaultySolver
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.jobs import RESOURCE_LIMITS, inner_program
from tests.fakes.market_day import MarketDay
from tests.fakes.workers import judged_together

SEGMENTS = 4
ROOM = 1 << 20


class Counted:
    """Segments that this process has run, in order; `most`: the run after so many is cut off."""

    def __init__(self) -> None:
        self.run: list[int] = []
        self.most: int | None = None

    def stop_after(self, most: int) -> None:
        self.run.clear()
        self.most = most


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    counted, run = Counted(), Work.run

    def counting(work: Work, kind: Kind, round_: int, shard: int, segment: int, *more: Any) -> Any:
        if counted.most is not None and len(counted.run) >= counted.most:
            raise Retry("the process was killed here", hint="start it again")
        counted.run.append(segment)
        return run(work, kind, round_, shard, segment, *more)

    monkeypatch.setattr(Work, "run", counting)
    yield counted


def task(day: MarketDay, withholds: bool = True, **solver: Any) -> tuple[JobId, ClaimView]:
    """A task whose states nobody publishes, unless it is said so."""
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann", blocks=day.blocks(withholds=withholds), **solver)
    assert day.run(lambda: bool(day.phases(job_id)))
    del day.services["ann"]
    (view,) = day.markets["client"].claims(job_id)
    return job_id, view


def provider(day: MarketDay, job_id: JobId, kept: ReplayCache | None) -> StateProvider:
    """As a process has it that has just been started."""
    market = day.markets["client"]
    return open_state_provider(market, day.blocks(), market.job(job_id), RESOURCE_LIMITS, kept=kept)


def test_a_restarted_whistleblower_replays_only_what_it_had_not(day: MarketDay, counted: Counted) -> None:
    task(day)
    wendy = day.whistleblower("wendy")
    counted.stop_after(2)
    wendy.tick()
    assert counted.run == [0, 1] and not day.named("audited"), "cut off within the claim"
    counted.stop_after(100)
    again = day.whistleblower("wendy")
    assert again is not wendy
    again.tick()
    assert counted.run == [2, 3]
    assert day.named("audited") and not again.findings


def test_what_builds_on_a_kept_state_knows_its_slots(
    day: MarketDay, counted: Counted, tmp_path: Path
) -> None:
    """It has happened: a restarted whistleblower had the state of an unpublished claim, and its slots not."""
    job_id, _ = task(day)
    place, folder = (Kind.TASK, 0, 0), tmp_path / "kept"
    _, state = provider(day, job_id, ReplayCache(folder, ROOM)).output(*place)
    counted.run.clear()
    again = provider(day, job_id, ReplayCache(folder, ROOM))
    view, leaf, way = again.source_proof(Kind.OUTER, 0, FromClaim(place, 0))
    assert view is not None and view.claim.output_root == state_root(state)
    assert trees.verify(state_root(state), len(state), 0, leaf, way)
    assert counted.run == []


def test_another_claim_with_the_same_roots_is_known_to_be_right(
    day: MarketDay, counted: Counted, tmp_path: Path
) -> None:
    job_id, view = task(day)
    assert audit_claim(provider(day, job_id, ReplayCache(tmp_path / "kept", ROOM)), view) is None
    counted.run.clear()
    other = replace(view, claim_id=ClaimId(b"\x07" * 32))
    assert audit_claim(provider(day, job_id, ReplayCache(tmp_path / "kept", ROOM)), other) is None
    assert counted.run == []
    elsewhere = replace(view, claim=replace(view.claim, shard=1))
    kept = ReplayCache(tmp_path / "kept", ROOM)
    assert [kept.knows(elsewhere, i) for i in range(SEGMENTS)] == [False] * SEGMENTS, "a shard's rows differ"


@pytest.mark.long
def test_segments_that_workers_have_replayed_are_kept_for_all(
    day: MarketDay, counted: Counted, tmp_path: Path
) -> None:
    job_id, view = task(day, withholds=False)
    folder = tmp_path / "kept"
    found = judged_together(day.markets["client"], day.blocks(), view, ReplayCacheSpec(folder, ROOM))
    assert found == [b""] * SEGMENTS
    counted.run.clear()
    assert audit_claim(provider(day, job_id, ReplayCache(folder, ROOM)), view) is None
    assert counted.run == []


def test_a_false_segment_is_replayed_by_each_process_that_accuses(
    day: MarketDay, counted: Counted, tmp_path: Path
) -> None:
    plan = Plan(0, 0, NodeFault(step=5, node=len(inner_program().nodes) - 1, element=0))
    job_id, view = task(day, kind=partial(FaultySolver, plan=plan))
    assert day.named("fault-planted")
    for ran in ([0, 1, 2], [2]):
        counted.run.clear()
        found = audit_claim(provider(day, job_id, ReplayCache(tmp_path / "kept", ROOM)), view)
        assert isinstance(found, WrongSegment) and found.segment == 2
        assert counted.run == ran


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_no_flipped_bit_passes_for_a_replay(
    day: MarketDay, counted: Counted, tmp_path: Path, where: str
) -> None:
    job_id, view = task(day, withholds=False)
    folder = tmp_path / "kept"
    assert audit_claim(provider(day, job_id, ReplayCache(folder, ROOM)), view) is None
    data = bytearray((folder / "segments").read_bytes())
    length = len(data) // SEGMENTS
    place = {"first": 0, "middle": length + 70, "last": len(data) - 2}[where]
    data[place] ^= 1
    (folder / "segments").write_bytes(data)
    counted.run.clear()
    assert audit_claim(provider(day, job_id, ReplayCache(folder, ROOM)), view) is None
    assert counted.run == [place // length], "that one again, and no other"
    counted.run.clear()
    assert audit_claim(provider(day, job_id, ReplayCache(folder, ROOM)), view) is None
    assert counted.run == [], "and it is kept anew"


@pytest.mark.parametrize("damage", ["a bit", "cut", "emptied", "another state"])
def test_a_damaged_state_is_computed_again(
    day: MarketDay, counted: Counted, tmp_path: Path, damage: str
) -> None:
    job_id, view = task(day)
    folder = tmp_path / "kept"
    counted.stop_after(3)
    with pytest.raises(Retry):
        audit_claim(provider(day, job_id, ReplayCache(folder, ROOM)), view)
    path, other = (folder / "states" / view.roots[i].hex() for i in (3, 2))
    data = bytearray(path.read_bytes())
    data[5] ^= 4
    given = {"a bit": bytes(data), "cut": bytes(data[:-1]), "emptied": b""}
    path.write_bytes(given.get(damage, other.read_bytes()))
    counted.stop_after(100)
    assert audit_claim(provider(day, job_id, ReplayCache(folder, ROOM)), view) is None
    assert counted.run == [2, 3], "segment 2 for its end, as what the disk has is not that"
    program = provider(day, job_id, None).work.program(Kind.TASK)
    mended = ReplayCache(folder, ROOM).state(view.roots[3], program)
    assert mended is not None and state_root(mended) == view.roots[3]


def test_the_disk_that_it_takes_is_bounded(day: MarketDay, tmp_path: Path) -> None:
    job_id, view = task(day)
    states = provider(day, job_id, None)
    size = states.work.program(Kind.TASK).state_bytes
    folder = tmp_path / "kept"
    kept = ReplayCache(folder, 2 * size + 1, most_segments=2)
    assert audit_claim(provider(day, job_id, kept), view) is None
    assert {path.name for path in (folder / "states").iterdir()} == {view.roots[i].hex() for i in (3, 4)}
    again = ReplayCache(folder, 2 * size + 1, most_segments=2)
    for known in (kept, again):
        assert [known.knows(view, i) for i in range(SEGMENTS)] == [False, False, True, True]
    assert len((folder / "segments").read_bytes().splitlines()) == 2
    stale(folder / "states" / "half-written.1-2.new")
    less = ReplayCache(folder, size)
    assert [path.name for path in (folder / "states").iterdir()] == [view.roots[4].hex()]
    none = ReplayCache(tmp_path / "none", size - 1)
    none.keep_state(view.roots[4], less.state(view.roots[4], states.work.program(Kind.TASK)) or [])
    assert not list((tmp_path / "none" / "states").iterdir())


def test_a_full_disk_costs_replays_and_nothing_else(
    day: MarketDay, counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    job_id, view = task(day)
    monkeypatch.setattr("assay.disk.record.append_line", full)
    monkeypatch.setattr("assay.disk.record.replace_file", full)
    states = provider(day, job_id, ReplayCache(tmp_path / "kept", ROOM))
    counted.run.clear()
    assert audit_claim(states, view) is None
    assert counted.run == [0, 1, 2, 3]


class HoldingBlocks(FakeBlocks):
    """Blocks of a node that has the roots of all files, and all of them or none `whole`."""

    def __init__(self, network: Network, whole: bool) -> None:
        super().__init__(network)
        self._whole = whole

    def has(self, cid: str) -> bool:
        return cid in self.network.blocks

    def holds(self, cid: str) -> bool:
        return self._whole and self.has(cid)


def state_at(states: StateProvider, view: ClaimView, leaf: int) -> State:
    found = states.leaf(view, leaf)
    assert isinstance(found, Known)
    return found.state


def claims(view: ClaimView, count: int) -> list[ClaimView]:
    return [replace(view, claim_id=ClaimId(bytes([i + 1]) * 32)) for i in range(count)]


def stale(path: Path) -> None:
    """A file that a process had begun before it died."""
    path.write_bytes(b"x")
    os.utime(path, (0, 0))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_is_pinned_stays_beside_any_budget_until_its_last_claim_is_over(
    day: MarketDay, tmp_path: Path
) -> None:
    job_id, view = task(day)
    states, folder = provider(day, job_id, None), tmp_path / "kept"
    whole = [state_at(states, view, leaf) for leaf in range(SEGMENTS + 1)]
    size, (one, two) = states.work.program(Kind.TASK).state_bytes, claims(view, 2)
    kept = ReplayCache(folder, 1)
    kept.pin(one, 0, whole[0])
    kept.pin(one, 2, whole[2])
    kept.pin(two, 2, whole[2])
    kept.keep_state(view.roots[3], whole[3])
    stale(folder / "pinned" / "half-written.1-2.new")
    again = ReplayCache(folder, size)
    assert again.pinned(one, 0) and again.pinned(one, 2) and again.pinned(two, 2)
    assert not again.pinned(one, 1) and not again.pinned(two, 0)
    for leaf in (1, 3, 4):
        again.keep_state(view.roots[leaf], whole[leaf])
    assert names(folder / "states") == {view.roots[i].hex() for i in (0, 2, 4)}
    found = again.state(view.roots[2], states.work.program(Kind.TASK))
    assert found is not None and state_root(found) == view.roots[2]
    pins = Pins(folder, size)
    pins.release(lambda _, claim_id: claim_id == one.claim_id)
    assert not again.pinned(one, 2) and again.pinned(two, 2)
    assert len(names(folder / "pinned")) == 1
    pins.release(lambda *_: True)
    assert not names(folder / "pinned") and len(names(folder / "states")) == 1, "no more than the budget"
    assert not ReplayCache(folder, size).pinned(two, 2)


def test_a_pinned_state_that_is_damaged_is_not_taken_for_one(day: MarketDay, tmp_path: Path) -> None:
    job_id, view = task(day)
    folder, states = tmp_path / "kept", provider(day, job_id, None)
    kept, state, program = ReplayCache(folder, 1), state_at(states, view, 2), states.work.program(Kind.TASK)
    path = folder / "states" / view.roots[2].hex()
    path.write_bytes(b"\x01" * program.state_bytes)
    kept.pin(view, 2, state)
    assert kept.state(view.roots[2], program) is not None, "what was there was not believed"
    data = bytearray(path.read_bytes())
    data[3] ^= 8
    path.write_bytes(data)
    again = ReplayCache(folder, 1)
    assert again.state(view.roots[2], program) is None and again.pinned(view, 2), "another claim may err"
    assert again.state(view.roots[2], program, view) is None and not again.pinned(view, 2)
    again.pin(view, 2, state)
    assert again.pinned(view, 2) and again.state(view.roots[2], program) is not None


def test_a_pin_takes_the_room_of_what_is_not_pinned_and_says_when_there_is_none(
    day: MarketDay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, view = task(day)
    folder, states = tmp_path / "kept", provider(day, job_id, None)
    size, write = states.work.program(Kind.TASK).state_bytes, record.replace_file
    whole = [state_at(states, view, leaf) for leaf in range(SEGMENTS + 1)]

    def small(path: Path, data: bytes, **options: Any) -> None:
        if data and len(names(folder / "states")) >= 2:
            raise OSError(28, "No space left on device")
        write(path, data, **options)

    monkeypatch.setattr("assay.disk.record.replace_file", small)
    kept = ReplayCache(folder, ROOM)
    for leaf in (3, 4):
        kept.keep_state(view.roots[leaf], whole[leaf])
    for leaf in (0, 1):
        kept.pin(view, leaf, whole[leaf])
    assert names(folder / "states") == {view.roots[i].hex() for i in (0, 1)}
    with pytest.raises(PinSpaceExceeded, match="No space left"):
        kept.pin(view, 2, whole[2])
    assert not kept.pinned(view, 2)
    limited = ReplayCache(folder, ROOM, pinned_bytes=2 * size)
    limited.pin(claims(view, 1)[0], 1, whole[1])  # the same state for another claim
    with pytest.raises(PinSpaceExceeded, match=f"would take {3 * size} bytes on disk, and {2 * size} are"):
        limited.pin(view, 2, whole[2])


def test_no_process_deletes_a_state_that_another_one_pins(
    day: MarketDay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any instant of it."""
    job_id, view = task(day)
    folder, states, write = tmp_path / "kept", provider(day, job_id, None), record.replace_file
    kept, state, others = ReplayCache(folder, 1), state_at(states, view, 2), list[Path]()

    def interrupted(path: Path, data: bytes, **options: Any) -> None:
        write(path, data, **options)
        if data:
            others.append(path)
            Pins(folder, 1).make_room()

    monkeypatch.setattr("assay.disk.record.replace_file", interrupted)
    kept.pin(view, 2, state)
    assert len(others) == 1 and kept.pinned(view, 2)
    assert kept.state(view.roots[2], states.work.program(Kind.TASK)) is not None


def test_a_file_that_cannot_be_read_for_the_moment_is_not_deleted(
    day: MarketDay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, view = task(day)
    states = provider(day, job_id, None)
    kept, program = ReplayCache(tmp_path / "kept", 1), states.work.program(Kind.TASK)
    kept.pin(view, 2, state_at(states, view, 2))

    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fails)
        assert kept.state(view.roots[2], program) is None
    assert kept.pinned(view, 2) and kept.state(view.roots[2], program) is not None


def test_a_computed_state_is_kept_unless_all_of_it_is_in_the_nodes_own_blocks(
    day: MarketDay, tmp_path: Path
) -> None:
    """A manifest that names its files does not show who has them."""
    job_id, view = task(day, withholds=False)
    market = day.markets["client"]
    for whole in (False, True):
        kept, blocks = ReplayCache(tmp_path / f"kept {whole}", ROOM), HoldingBlocks(day.network, whole)
        states = open_state_provider(market, blocks, market.job(job_id), RESOURCE_LIMITS, kept=kept)
        assert audit_claim(states, view) is None
        there = names(tmp_path / f"kept {whole}" / "states")
        assert there == (set() if whole else {view.roots[i].hex() for i in range(1, SEGMENTS + 1)})


def test_attack_T56_a_pin_whose_mark_has_no_room_costs_no_state_that_is_pinned(
    day: MarketDay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that has room for a state, and then none for another file: its last inode is taken."""
    job_id, view = task(day)
    folder, states, write = tmp_path / "kept", provider(day, job_id, None), record.replace_file
    state, other, marks_fail = state_at(states, view, 2), state_at(states, view, 3), 1

    def few(path: Path, data: bytes, **options: Any) -> None:
        nonlocal marks_fail
        if not data and marks_fail:
            marks_fail -= 1
            raise OSError(28, "No space left on device")
        write(path, data, **options)

    monkeypatch.setattr("assay.disk.record.replace_file", few)
    kept = ReplayCache(folder, ROOM)
    kept.keep_state(view.roots[3], other)
    kept.pin(view, 2, state)
    assert names(folder / "states") == {view.roots[2].hex()}, "what was made room with is not what is pinned"
    assert kept.pinned(view, 2)
    marks_fail = 2
    with pytest.raises(PinSpaceExceeded, match="No space left"):
        kept.pin(view, 3, other)
    assert not kept.pinned(view, 3) and kept.pinned(view, 2) and len(names(folder / "pinned")) == 1


def test_attack_T56_pins_leave_room_for_what_a_vote_and_a_move_are_signed_from(
    day: MarketDay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, view = task(day)
    states, folder = provider(day, job_id, None), tmp_path / "kept"
    whole = [state_at(states, view, leaf) for leaf in range(SEGMENTS + 1)]
    size = states.work.program(Kind.TASK).state_bytes
    total = 16 * 10 * size

    def usage(_: Path) -> Any:
        taken = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return SimpleNamespace(total=total, free=13 * size - taken)

    monkeypatch.setattr("assay.disk.record.shutil.disk_usage", usage)
    kept = ReplayCache(folder, ROOM)
    kept.keep_state(view.roots[4], whole[4])
    for leaf in range(3):
        kept.pin(view, leaf, whole[leaf])
    assert not (folder / "states" / view.roots[4].hex()).exists(), "what is not pinned makes room"
    with pytest.raises(PinSpaceExceeded, match="but for the node's own records"):
        kept.pin(view, 3, whole[3])
    kept.keep_state(view.roots[4], whole[4])
    assert usage(folder).free >= total // 16 and len(names(folder / "states")) == 3
    kept.pin(claims(view, 1)[0], 2, whole[2])  # the same state for another claim takes nothing

"""Settled data are deleted; data that are still needed are not."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.blocks import blockstore
from assay.blocks.blockstore import BlockStore
from assay.node.artifacts import load_job
from assay.node.checkpoints import publish_checkpoints, read_checkpoints
from assay.node.published_states import publish_state
from assay.node.retention import GRACE_S, Files, Retention, Unclaimed
from assay.node.slot_index import ENTRY_BYTES, MAX_INDEX_BYTES, decode_index
from assay.node.states import StateProvider, open_state_provider
from assay.node.work import Work
from assay.program.state import state_root
from assay.protocol.errors import BlockNotFound, CorruptBlock
from assay.protocol.types import ClaimView, JobId, Kind, Phase
from assay.solver.progress import TaskProgress
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import RESOURCE_LIMITS, WIDTH, tiny_files
from tests.fakes.later import Later
from tests.unit.examples.second import StoredDay

PARAMS, OUTER_SLOTS = 4 * WIDTH, 4


@pytest.fixture(name="day")
def day_of(tmp_path: Path) -> StoredDay:
    return StoredDay(tmp_path)


def crew(day: StoredDay, **changes: Any) -> JobId:
    job_id = day.post(**changes)
    day.solvers()
    day.verifiers()
    return job_id


def node_store(day: StoredDay, name: str = "node") -> BlockStore:
    """A node that holds every block there is, and has pinned none; its clock is past the grace."""
    shutil.copytree(day.store / "blocks", day.folder / name / "blocks")
    return BlockStore(day.folder / name, clock=lambda: time.time() + 2 * GRACE_S)


def retained(day: StoredDay, store: BlockStore) -> None:
    Retention(day.markets["client"], store)()


def test_of_a_closed_job_its_model_is_left_and_nothing_else(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store = node_store(day)
    assert store.usage().blocks > 50
    retained(day, store)
    last = day.markets["client"].current(job_id, Kind.OUTER, 1, 0)
    assert last is not None
    manifest = len(store.get(next(cid for cid in store.cids() if store.get(cid).startswith(b'{"schema'))))
    left = store.usage()
    assert (left.blocks, left.total_bytes) == (3, PARAMS + OUTER_SLOTS * ENTRY_BYTES + manifest)
    assert read_checkpoints(store, last.claim.manifest, last.roots)


def test_what_the_next_inputs_come_from_is_left(day: StoredDay) -> None:
    job_id = crew(day, rounds=4, max_unsettled=1)
    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.settled_rounds == 2)
    assert not day.market_state.jobs[job_id].view.progress.closed
    market = day.markets["client"]
    everything = open_state_provider(market, day.blocks(), market.job(job_id), RESOURCE_LIMITS)
    store = node_store(day)
    before = store.usage()
    retained(day, store)
    assert store.usage().total_bytes < before.total_bytes
    job = market.job(job_id)
    runs: list[int] = []

    class Idle(Work):
        def run(self, *args: Any) -> Any:
            runs.append(1)
            return super().run(*args)

    work = Idle(job.terms, load_job(store, job.terms, RESOURCE_LIMITS))
    provider = StateProvider(market, store, job_id, work)
    for shard in range(2):
        wanted = everything.input_state(Kind.TASK, 2, shard)
        assert state_root(provider.input_state(Kind.TASK, 2, shard)) == state_root(wanted)
    assert not runs, "from what is left, and by no recomputation"
    old = market.current(job_id, Kind.TASK, 0, 0)
    assert old is not None
    with pytest.raises(BlockNotFound):
        read_checkpoints(store, old.claim.manifest, old.roots)


def test_a_fallen_claim_goes_once_its_game_is_over_but_for_unfinished_work_like_it(day: StoredDay) -> None:
    job_id = day.post(rounds=1, shards=1, samples=4)
    day.solver("ann", lambda *a, **o: FaultySolver(*a, plan=WeightPlan(0, 3, 0, 5), **o))
    day.verifiers()

    def disputed() -> bool:
        return any(not entry.view.decided for entry in day.market_state.games.values())

    assert day.run(disputed), "the fault was planted and found"
    (view,) = day.markets["client"].claims(job_id)
    store = node_store(day)
    given = read_checkpoints(store, view.claim.manifest, view.roots)
    keeps = Retention(day.markets["client"], store, lambda _: Unclaimed(live=frozenset({given[1].cid})))
    keeps()
    assert all(store.has(checkpoint.cid) for checkpoint in given)
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id) and not disputed())
    assert not day.market_state.jobs[job_id].view.progress.closed
    keeps()
    assert [store.has(checkpoint.cid) for checkpoint in given] == [True, True, False, False, False]
    assert given[0].root == day.market_state.jobs[job_id].view.terms.genesis_root
    slots = decode_index(store.read_file(given[1].cid, MAX_INDEX_BYTES), 3)
    assert all(store.has(slot.cid) for slot in slots), "of whoever trains the task again"


def test_a_fallen_claim_stays_as_long_as_its_valid_votes_may_be_disputed(day: StoredDay) -> None:
    """A voter has to defend its vote, and a challenger needs the states that it vouched for."""
    job_id = day.post(rounds=1, shards=1, samples=4)
    conspiracy(day, WeightPlan(0, 3, 0, 5), "ann")
    day.whistleblower("wendy", await_votes=True)

    def look() -> ClaimView:
        return day.markets["client"].claims(job_id)[0]

    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id))
    assert look().fallen
    store = node_store(day)
    given = read_checkpoints(store, look().claim.manifest, look().roots)
    keeps = Retention(day.markets["client"], store)
    keeps()
    assert all(store.has(checkpoint.cid) for checkpoint in given)
    assert day.run(lambda: not look().fallen)
    keeps()
    assert not any(store.has(checkpoint.cid) for checkpoint in given[1:])


class Altered:
    """A market in which the first task of the last round stands otherwise."""

    def __init__(self, day: StoredDay, job_id: JobId, **how: Any) -> None:
        self._market, self.how = day.markets["client"], how
        last = max(view.claim.round for view in self._market.claims(job_id))
        place = Kind.TASK, last, 0
        (self.view,) = (
            view
            for view in self._market.claims(job_id)
            if (view.claim.kind, view.claim.round, view.claim.shard) == place
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._market, name)

    def claims(self, job_id: JobId) -> list[ClaimView]:
        return [self._altered(view) for view in self._market.claims(job_id)]

    def _altered(self, view: ClaimView) -> ClaimView:
        if view.claim_id != self.view.claim_id:
            return view
        phase, flags = self.how["phase"], {k: v for k, v in self.how.items() if k != "phase"}
        return replace(view, status=replace(view.status, phase=phase), **flags)


def test_an_overtaken_claim_keeps_its_states_until_it_is_voided(day: StoredDay) -> None:
    """It answers for the games that are open on it, from them alone: what it builds on is gone."""
    job_id = crew(day, rounds=2)
    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.round == 1)
    assert day.run(lambda: len(day.markets["client"].claims(job_id)) >= 5)
    store = node_store(day)
    market = Altered(day, job_id, phase=Phase.ACCEPTED, stale=True)
    given = read_checkpoints(store, market.view.claim.manifest, market.view.roots)
    keeps = Retention(market, store)
    keeps()
    for checkpoint in given:
        slots = decode_index(store.read_file(checkpoint.cid, MAX_INDEX_BYTES), 3)
        assert all(store.has(slot.cid) for slot in slots)
    market.how = {"phase": Phase.VOID}
    Retention(market, store)()
    assert not any(store.has(checkpoint.cid) for checkpoint in given[1:])


def test_a_claim_that_outlasts_its_job_keeps_its_states_and_the_jobs_files(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store = node_store(day)
    market = Altered(day, job_id, phase=Phase.COMMITTED, stale=True, left_out=True)
    keeps = Retention(market, store)
    keeps()
    given = read_checkpoints(store, market.view.claim.manifest, market.view.roots)
    assert all(store.has(checkpoint.cid) for checkpoint in given)
    assert load_job(store, day.markets["client"].job(job_id).terms, RESOURCE_LIMITS)
    market.how = {"phase": Phase.VOID}
    keeps()
    assert store.usage().blocks == 3, "the model with what tells of it"


def test_states_that_will_never_be_claimed_go_with_their_records(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store = node_store(day)
    genesis = tiny_files().genesis
    progress = TaskProgress(day.folder / "carl" / "tasks")
    started = publish_state(store, [torch.full((WIDTH,), 6.0), *genesis[1:]])
    trained = publish_state(store, [torch.full((WIDTH,), 5.0), *genesis[1:]])
    progress.save(job_id, 1, 0, [started, trained])
    keeps = Retention(day.markets["client"], store, lambda job: progress.indices(job, 1, store.has))
    keeps()
    assert store.has(trained.cid) and progress.load(job_id, 1, 0, started.root)
    keeps = Retention(day.markets["client"], store, lambda job: progress.indices(job, 2, store.has))
    keeps()
    assert not store.has(trained.cid)
    progress.indices(job_id, 2, store.has)
    assert not list((day.folder / "carl" / "tasks").iterdir())


def test_what_no_claim_names_is_never_touched(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store = node_store(day)
    made = publish_state(store, [torch.full((WIDTH,), 5.0)])
    retained(day, store)
    assert store.has(made.cid)


def test_what_was_put_a_moment_ago_goes_at_a_later_look(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    shutil.copytree(day.store / "blocks", day.folder / "young" / "blocks", copy_function=shutil.copy)
    clock = [time.time()]
    store = BlockStore(day.folder / "young", clock=lambda: clock[0])
    before = store.usage().blocks
    keeps = Retention(day.markets["client"], store)
    assert keeps().blocks == 0 and store.usage().blocks == before
    clock[0] += 2 * GRACE_S
    assert keeps().blocks == before - 3
    assert keeps() is None, "nothing has changed since"


def test_a_pinned_job_keeps_its_files(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    market, store = day.markets["client"], BlockStore(day.store, clock=lambda: time.time() + 2 * GRACE_S)
    Retention(market, store)()
    assert load_job(store, market.job(job_id).terms, RESOURCE_LIMITS).genesis
    day.fetch(job_id, day.folder / "model")


def test_a_manifest_of_nonsense_stops_nothing(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    market, store = day.markets["client"], node_store(day)
    view = market.current(job_id, Kind.TASK, 0, 0)
    assert view is not None
    given = read_checkpoints(store, view.claim.manifest, view.roots)
    digest = publish_checkpoints(store, [replace(given[0], cid="../" * 9), *given[1:]])
    forged = replace(view, claim=replace(view.claim, manifest=digest))
    found = Files(store).of_claim(forged, market.job(job_id).terms)
    assert given[1].cid in found and all(".." not in cid for cid in found)


def test_an_owner_may_give_up_the_models_too(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store = node_store(day)
    keeps = Retention(day.markets["client"], store, models=False)
    keeps()
    assert store.usage().blocks == 0 and not keeps.kept


def test_deleting_by_a_thread_waits_for_nobody_and_is_over_once(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store, later = node_store(day), Later()
    before = store.usage().blocks
    keeps = Retention(day.markets["client"], store, executor=later)
    assert keeps() is None and keeps() is None, "under way"
    assert len(later.given) == 1 and store.usage().blocks == before
    later.go()
    assert store.usage().blocks == 3
    assert keeps().blocks == before - 3
    assert keeps() is None and not later.given, "nothing has changed since"


def test_what_a_thread_could_not_delete_is_told_and_tried_again(day: StoredDay) -> None:
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store, later = node_store(day), Later()
    pinned = store.add_file(bytes(3 << 20))
    store.pin(pinned)
    next((store.root / "blocks").glob(f"*/{pinned}")).write_bytes(b"no block")
    before = store.usage().blocks
    keeps = Retention(day.markets["client"], store, executor=later)
    assert keeps() is None
    later.go()
    with pytest.raises(CorruptBlock):
        keeps()
    assert store.usage().blocks == before - 1, "what was damaged is set aside, and nothing is deleted"
    assert store.add_file(bytes(3 << 20)) == pinned
    assert keeps() is None and later.given
    later.go()
    assert keeps().blocks > 50 and len(store.read_file(pinned, 4 << 20)) == 3 << 20


def test_what_has_changed_meanwhile_is_seen_before_more_is_deleted(
    day: StoredDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of an ended job are those of one posted again; only the node's own store has them."""
    monkeypatch.setattr(blockstore, "AT_ONCE", 1)
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    market, store = day.markets["client"], node_store(day)
    everything = set(store.cids())
    with ThreadPoolExecutor(1) as deleting:
        keeps = Retention(market, store, executor=deleting)
        monkeypatch.setattr("assay.node.retention.REST", 1e9)  # it rests after the first block
        assert keeps() is None and keeps() is None
        again = day.post(shards=2)
        assert market.job(again).terms.manifest == market.job(job_id).terms.manifest
        assert keeps() is None, "decided anew"
        keeps.stop()
    assert len(everything - set(store.cids())) < 5
    monkeypatch.setattr("assay.node.retention.REST", 0.0)
    Retention(market, store)()
    files = load_job(node_store(day, "other"), market.job(again).terms, RESOURCE_LIMITS)
    assert everything > set(store.cids())
    lost = everything - set(store.cids())
    assert not lost & Files(store).of_job(market.job(again).terms)
    assert files.genesis


@pytest.mark.parametrize("portions", [1, 7, 20, 33, 46])
def test_whoever_is_cut_short_leaves_nothing_of_which_no_file_tells(
    day: StoredDay, monkeypatch: pytest.MonkeyPatch, portions: int
) -> None:
    monkeypatch.setattr(blockstore, "AT_ONCE", 1)
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    market, store = day.markets["client"], node_store(day)
    count = store.usage().blocks
    later, left = Later(), [portions]
    keeps = Retention(market, store, executor=later)

    def rested(took_s: float) -> bool:
        left[0] -= 1
        return left[0] > 0

    monkeypatch.setattr(keeps, "_rested", rested)
    assert keeps() is None
    later.go()
    assert store.usage().blocks == count - portions, "killed here"
    Retention(market, store)()
    assert store.usage().blocks == 3


def test_states_that_are_distrusted_stay_while_their_round_is_trained(day: StoredDay) -> None:
    """The same may be published again, of which no record tells until it lies on disk."""
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    store, genesis = node_store(day), tiny_files().genesis
    progress = TaskProgress(day.folder / "carl" / "tasks")
    trained = publish_state(store, [torch.full((WIDTH,), 5.0), *genesis[1:]])
    progress.save(job_id, 1, 0, [publish_state(store, genesis), trained])
    progress.distrust()
    for first, there in ((1, True), (2, False)):
        told = partial(progress.indices, first_round=first, has=store.has)
        Retention(day.markets["client"], store, told)()
        assert store.has(trained.cid) == there


def test_a_record_is_kept_until_all_that_it_tells_of_is_deleted(
    day: StoredDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockstore, "AT_ONCE", 1)
    job_id = crew(day)
    assert day.run(day.closed(job_id))
    market, store, genesis = day.markets["client"], node_store(day), tiny_files().genesis
    progress = TaskProgress(day.folder / "carl" / "tasks")
    started = publish_state(store, [torch.full((WIDTH,), 6.0), *genesis[1:]])
    trained = publish_state(store, [torch.full((WIDTH,), 5.0), *genesis[1:]])
    progress.save(job_id, 1, 0, [started, trained])
    (slot, *_) = decode_index(store.read_file(trained.cid, MAX_INDEX_BYTES), len(genesis))
    told = partial(progress.indices, first_round=2, has=store.has)
    later = Later()
    cut = Retention(market, store, told, executor=later)
    monkeypatch.setattr(cut, "_rested", lambda took_s: False)
    assert cut() is None
    later.go()
    cut()
    assert store.has(trained.cid) and told(job_id).over >= {trained.cid}, "cut short after one block"
    Retention(market, store, told)()
    assert not store.has(trained.cid) and not store.has(slot.cid)
    assert told(job_id) == Unclaimed() and not list((day.folder / "carl" / "tasks").iterdir())

"""Segments replayed elsewhere come to what they come to here, whoever dies on the way."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest

from assay.dispute.replay import Replay
from assay.node import replays as replaying
from assay.node.audit import WrongSegment, attest, audit_claim
from assay.node.engine import Engine, ExecutorKind
from assay.node.replays import LocalReplays, Order, Replayed, ReplayLost, Replays, order_of, replayed
from assay.protocol.errors import Ask
from assay.protocol.types import Kind
from assay.verifier.service import VerifierService
from tests.fakes.market_day import MarketDay
from tests.fakes.programs import Sample, random_sample, training_sample

SEED = b"replays".ljust(32, b"\0")
KEY = b"k" * 32


def replay(sample: Sample, first_step: int = 3) -> Replay:
    return Replay(sample.program, sample.state, sample.dataset, SEED, 1, first_step)


def wanted(sample: Sample, first_step: int, steps: int) -> Replayed:
    run = replay(sample, first_step)
    trace = run.trace(steps - 1, KEY).root
    return Replayed(run.root(steps), trace)


class InThreads(Replays):
    """Replays in threads of this process, each of which gets its order as another process would."""

    def __init__(self, width: int) -> None:
        self.width, self.orders = width, 0
        self._pool = ThreadPoolExecutor(width)

    def submit(self, order: Order) -> Callable[[], Replayed]:
        self.orders += 1
        return self._pool.submit(replayed, pickle.loads(pickle.dumps(order))).result

    def close(self) -> None:
        self._pool.shutdown()


@pytest.mark.parametrize("seed", range(6))
def test_an_order_holds_all_that_its_replay_needs(seed: int) -> None:
    sample = random_sample(seed)
    order = pickle.loads(pickle.dumps(order_of(replay(sample), 2, KEY)))
    assert replayed(order) == wanted(sample, 3, 2)


def test_an_order_has_the_records_that_it_reads_and_no_others() -> None:
    sample = training_sample()
    order = order_of(replay(sample), 1, None)
    assert 0 < len(order.steps.records) < order.steps.record_count == len(sample.dataset)
    assert replayed(order) == Replayed(wanted(sample, 3, 1).root, b"")
    fewer = dict(list(order.steps.records.items())[1:])
    missing = replace(order, steps=replace(order.steps, records=fewer))
    with pytest.raises(KeyError):
        replayed(missing)


def test_what_orders_come_to_is_given_in_order_with_what_needs_no_replay_between() -> None:
    sample = training_sample()
    elsewhere = InThreads(2)
    items = [order_of(replay(sample, first), 1, KEY) if first % 3 else first for first in range(8)]
    found = list(elsewhere.run(iter(items)))
    elsewhere.close()
    assert found == [wanted(sample, first, 1) if first % 3 else first for first in range(8)]


@pytest.mark.long
def test_a_process_of_its_own_gives_the_bits_of_a_replay_here() -> None:
    sample = training_sample()
    elsewhere = LocalReplays(1)
    try:
        found = list(elsewhere.run([order_of(replay(sample, first), 2, KEY) for first in (0, 1)]))
    finally:
        elsewhere.close()
    assert found == [wanted(sample, first, 2) for first in (0, 1)]
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_a_killed_process_costs_its_own_segment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, made, begun = training_sample(), [], replaying._process
    monkeypatch.setattr(replaying, "_process", lambda: made.append(1) or begun())
    elsewhere = LocalReplays(2)
    orders = [order_of(replay(sample, first), 200, None) for first in (0, 1)]
    try:
        waiting = [elsewhere.submit(order) for order in orders]
        while len(others := multiprocessing.active_children()) < 2:
            pass
        os.kill(others[0].pid or 0, signal.SIGKILL)
        found = [wait() for wait in waiting]
        assert found == [Replayed(replay(sample, first).root(200), b"") for first in (0, 1)]
        assert len(made) == 3
        assert others[1].is_alive() and not others[0].is_alive()
    finally:
        elsewhere.close()
    assert not multiprocessing.active_children()


def test_a_segment_of_which_every_process_dies_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying:
        def submit(self, *_: object) -> Future[Replayed]:
            future: Future[Replayed] = Future()
            future.set_exception(BrokenProcessPool())
            return future

        def shutdown(self, wait: bool = True) -> None: ...

    monkeypatch.setattr(replaying, "_process", Dying)
    elsewhere = LocalReplays(1)
    with pytest.raises(ReplayLost, match="3 processes that replayed the segment from step 3 have died"):
        elsewhere.submit(order_of(replay(training_sample()), 1, None))()
    elsewhere.close()


@pytest.fixture
def elsewhere() -> Iterator[InThreads]:
    found = InThreads(3)
    yield found
    found.close()


def test_an_audit_elsewhere_finds_what_one_here_finds(tmp_path: Path, elsewhere: InThreads) -> None:
    day = MarketDay(tmp_path)
    job_id = day.post()
    day.solver("ann")
    day.solver("bob")
    verifiers = [
        day.verifier(name, VerifierService, engine=engine)
        for name, engine in (
            ("here", Engine("cpu", ExecutorKind.EAGER)),
            ("there", Engine("cpu", ExecutorKind.EAGER, replays=elsewhere)),
        )
    ]
    assert day.run(lambda: bool(day.named("committed")))
    market = day.markets["there"]
    view = next(v for v in market.claims(job_id) if v.claim.kind == Kind.TASK)
    here, there = (verifier.state_provider(job_id) for verifier in verifiers)
    assert audit_claim(here, view) is None and elsewhere.orders == 0
    assert audit_claim(there, view) is None and elsewhere.orders == len(view.roots) - 1
    wrong = replace(view, roots=(*view.roots[:3], bytes(32), *view.roots[4:]))
    assert audit_claim(there, wrong) == WrongSegment(view.claim_id, 2, wrong.roots, view.roots[3])
    assert audit_claim(there, wrong) == audit_claim(here, wrong)
    me = day.markets["here"].me
    assert attest(here, view, me) == attest(there, view, me)
    assert attest(there, view, me).traces


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_its_address_is_refused_with_what_to_install() -> None:
    from assay.node.ray_replays import RayReplays

    with pytest.raises(Ask, match="Ray is not installed") as refused:
        RayReplays("local")
    assert "pip install 'assay-market[ray]'" in refused.value.hint


@pytest.mark.slow
def test_ray_gives_the_bits_of_a_replay_here_and_outlives_its_workers() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'assay-market[ray]'")
    from assay.node.ray_replays import RayReplays

    sample = training_sample()
    cluster = RayReplays("local")
    try:
        orders = [order_of(replay(sample, first), 3, KEY) for first in range(5)]
        right = [wanted(sample, first, 3) for first in range(5)]
        assert list(cluster.run(orders)) == right
        long = cluster.submit(order_of(replay(sample, 0), 3000, None))
        workers = _workers()
        assert workers
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        assert long() == Replayed(replay(sample, 0).root(3000), b"")
        assert list(cluster.run(orders)) == right
    finally:
        cluster.close()


def _workers() -> list[int]:
    """Process ids of Ray's workers that are at a replay, or are idle after one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if title.startswith(b"ray::") and b"replayed" in title:
            found.append(int(folder.name))
    return found

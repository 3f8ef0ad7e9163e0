"""Segments replayed elsewhere come to what they come to here, whoever dies on the way."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.compute.orders import Bench, Order, WorkerConfig
from assay.compute.pool import Pool, Progress
from assay.compute.replay import Replayed, ReplaySegment, order_of, replayed
from assay.dispute.replay import Replay
from assay.node.audit import WrongSegment, attest, audit_claim, sampled
from assay.node.engine import Engine, ExecutorKind
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


class InThread:
    """A worker in a thread of this process, which gets its orders as another process would."""

    device = "cpu"

    def __init__(self) -> None:
        self.orders = 0
        self._bench = Bench(WorkerConfig())

    def run(self, order: Order[Any], progress: Progress, cancelled: threading.Event) -> Any:
        self.orders += 1
        order = pickle.loads(pickle.dumps(order))
        return order.run(replace(self._bench, progress=progress))

    def close(self) -> None: ...


def here(order: ReplaySegment) -> Replayed:
    return order.run(Bench(WorkerConfig()))


@pytest.mark.parametrize("seed", range(6))
def test_an_order_holds_all_that_its_replay_needs(seed: int) -> None:
    sample = random_sample(seed)
    order = pickle.loads(pickle.dumps(order_of(replay(sample), 2, KEY)))
    assert here(order) == wanted(sample, 3, 2)


def test_an_order_has_the_records_that_it_reads_and_no_others() -> None:
    sample = training_sample()
    order = order_of(replay(sample), 1, None)
    assert 0 < len(order.steps.records) < order.steps.record_count == len(sample.dataset)
    assert here(order) == Replayed(wanted(sample, 3, 1).root, b"")
    fewer = dict(list(order.steps.records.items())[1:])
    missing = replace(order, steps=replace(order.steps, records=fewer))
    with pytest.raises(KeyError):
        here(missing)


def test_what_orders_come_to_is_given_in_order_with_what_needs_no_replay_between() -> None:
    sample = training_sample()
    items = [order_of(replay(sample, first), 1, KEY) if first % 3 else first for first in range(8)]
    with Pool([InThread(), InThread()]) as pool:
        found = list(replayed(pool, iter(items)))
    assert found == [wanted(sample, first, 1) if first % 3 else first for first in range(8)]


@pytest.fixture
def elsewhere() -> InThread:
    return InThread()


def test_an_audit_elsewhere_finds_what_one_here_finds(tmp_path: Path, elsewhere: InThread) -> None:
    pool, day = Pool([elsewhere]), MarketDay(tmp_path)
    job_id = day.post()
    day.solver("ann")
    day.solver("bob")
    verifiers = [
        day.verifier(name, VerifierService, engine=engine)
        for name, engine in (
            ("here", Engine("cpu", ExecutorKind.EAGER)),
            ("there", Engine("cpu", ExecutorKind.EAGER, pool=pool)),
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
    for verifier in verifiers:
        assert verifier.kept_replays is not None
        starts = sampled(here, view, me)
        assert all(verifier.kept_replays.pinned(view, start) for start in starts)
        others = set(range(len(view.roots))) - set(starts)
        assert not any(verifier.kept_replays.pinned(view, leaf) for leaf in others)
    pool.close()

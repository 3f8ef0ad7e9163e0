"""Rules of when nodes act (docs/nodes.md).

Polls, finished orders, lost workers, restarts and blocks come in any order. An honest job always ends with
every claim settled, and nobody loses anything.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Part
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from assay.node.role import Node
from assay.protocol.types import Kind, Phase
from assay.solver import state_publisher
from assay.solver.orders import Train
from assay.solver.trainer import TaskTrainer
from tests.fakes.manual_pool import LateExecutor, ManualPool
from tests.fakes.market_day import MarketDay

SOLVERS, VERIFIERS = ("ann", "bob"), ("v0", "v1", "v2")
NAMES = st.sampled_from(SOLVERS + VERIFIERS)


class Rules(RuleBasedStateMachine):
    """A job of two shards and two rounds."""

    @initialize()
    def begin(self) -> None:
        LateExecutor.every.clear()
        self._folder = tempfile.TemporaryDirectory()
        self.day = MarketDay(Path(self._folder.name))
        self.pools: dict[str, ManualPool] = {}
        self.job_id = self.day.post()
        for name in SOLVERS + VERIFIERS:
            self.start(name)

    def start(self, name: str) -> None:
        def pool(home: object) -> ManualPool:
            self.pools[name] = ManualPool(home)  # type: ignore[arg-type]
            return self.pools[name]

        if name in SOLVERS:
            self.day.solver(name, pool=pool)
        else:
            self.day.verifier(name, pool=pool)

    def node(self, name: str) -> Node:
        return self.day.services[name]

    @rule(name=NAMES)
    def looks(self, name: str) -> None:
        self.node(name).tick()

    @rule(name=NAMES)
    def order_is_done(self, name: str) -> None:
        self.pools[name].step()

    @rule(name=NAMES, steps=st.integers(0, 6))
    def worker_dies_in_an_order(self, name: str, steps: int) -> None:
        self.pools[name].step(dies_after=steps)

    @rule(name=NAMES)
    def worker_dies_idle(self, name: str) -> None:
        self.pools[name].renew()

    @rule(name=NAMES)
    def node_is_killed_and_started(self, name: str) -> None:
        self.pools[name].close()
        self.start(name)

    @rule(turns=st.integers(1, 6), orders=st.integers(0, 2))
    def time_goes_by(self, turns: int, orders: int) -> None:
        """Everybody looks and has some orders done, turn by turn."""
        for _ in range(turns):
            for name, node in self.day.services.items():
                node.tick()
                for _ in range(orders):
                    self.pools[name].step()
            self.day.market_state.advance(4)

    @rule(which=st.integers(0, 7))
    def a_state_is_stored(self, which: int) -> None:
        for executor in LateExecutor.every[which : which + 1]:
            executor.step()

    @rule(seconds=st.integers(1, 4))
    def blocks_come(self, seconds: int) -> None:
        self.day.market_state.advance(seconds)

    @invariant()
    def nothing_is_begun_twice(self) -> None:
        for pool in getattr(self, "pools", {}).values():
            training = [order.what for order in pool.orders() if isinstance(order, Train)]
            assert len(training) == len(set(training)) <= pool.width

    @invariant()
    def no_place_is_claimed_twice_and_no_claim_is_false(self) -> None:
        if not hasattr(self, "day"):
            return
        state = self.day.market_state
        places = Counter((e.claim.kind, e.claim.round, e.claim.shard) for e in state.claims.values())
        assert all(count == 1 for count in places.values()), places
        assert state.burnt == 0 and not state.games
        assert not any(node.status.counters.get("bugs") for node in self.day.services.values())
        assert not any(node.status.abandoned for node in self.day.services.values())

    def teardown(self) -> None:
        """From any state all services continue undisturbed, and the job ends."""
        if not hasattr(self, "day"):
            return
        closed = self.day.closed(self.job_id)
        for _ in range(300):
            for name, node in self.day.services.items():
                node.tick()
                while self.pools[name].step():
                    pass
            for executor in LateExecutor.every:
                executor.step()
            if closed():
                break
            self.day.market_state.advance(4)
        assert closed(), [node.status for node in self.day.services.values()]
        assert self.day.phases(self.job_id) == [Phase.SETTLED] * 6
        self.no_place_is_claimed_twice_and_no_claim_is_false()
        assert all(not locked for locked in self.day.market_state.locked.values())
        tasks = {
            (e.claim.round, e.claim.shard): e.claim.output_root
            for e in self.day.market_state.claims.values()
            if e.claim.kind == Kind.TASK
        }
        assert tasks == UNDISTURBED.setdefault("tasks", tasks), "the bits of any other run"
        for pool in self.pools.values():
            pool.close()
        self._folder.cleanup()


UNDISTURBED: dict[str, object] = {}


@pytest.mark.parametrize("stored_late", [False, True])
def test_honest_nodes_lose_nothing_in_any_order_of_events(
    stored_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stored_late:
        monkeypatch.setattr(TaskTrainer, "background_bytes", 0)
        monkeypatch.setattr(state_publisher, "ThreadPoolExecutor", LateExecutor)
    run_state_machine_as_test(
        Rules,
        settings=settings(
            max_examples=12,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Part.explicit, Part.reuse, Part.generate),  # to shrink takes minutes
        ),
    )

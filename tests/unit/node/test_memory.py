"""A node's memory over the rounds of a job."""

from __future__ import annotations

import gc
import sys
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch

from assay.compute.inline import InlinePool
from assay.node.job_cache import opened
from assay.node.slots import SlotReader, TensorCache, TensorKey
from assay.protocol.types import JobId, Wei
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.market_day import MarketDay

_OUTSIDE = (type, ModuleType, FunctionType)
_MARKETS = ("assay.protocol", "assay.node.rounds")
"""Modules whose objects describe a job on the market, and grow with its claims."""


def footprint(service: Any, outside: list[Any]) -> int:
    """Bytes of everything that a service reaches, without the fakes of its surroundings."""
    seen = {id(thing) for thing in outside}
    waiting, total = [service], 0
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, _OUTSIDE) or type(thing).__module__.startswith(_MARKETS):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, torch.Tensor):
            total += thing.numel() * thing.element_size()
        waiting += gc.get_referents(thing)
    return total


def after_rounds(folder: Path, rounds: int, at: tuple[int, ...]) -> dict[int, dict[str, int]]:
    """The footprint of everybody once so many rounds of a job are settled."""
    day = MarketDay(folder)
    day.join("client")
    day.market_state.mint(day.address("client"), 100 * rounds)
    day.markets["client"].deposit("more", Wei(100 * rounds))
    day.solvers()
    day.verifier("vera")
    day.whistleblower("wendy")
    job_id: JobId = day.post(rounds=rounds, verifiers=1)
    found: dict[int, dict[str, int]] = {}

    def settled(number: int) -> bool:
        return day.market_state.jobs[job_id].view.progress.settled_rounds >= number

    for number in at:
        assert day.run(partial(settled, number), turns=200 * rounds)
        gc.collect()
        world = [day, day.market_state, day.network, day.events, *day.markets.values()]
        for service in day.services.values():
            world += [service.blocks, service.clock]
        world += [
            thing for blocks in world if isinstance(blocks, FakeBlocks) for thing in vars(blocks).values()
        ]
        found[number] = {name: footprint(service, world) for name, service in day.services.items()}
    return found


def grown(found: dict[int, dict[str, int]]) -> dict[str, float]:
    """Bytes by which everybody has grown a round."""
    first, last = min(found), max(found)
    return {name: (found[last][name] - had) / (last - first) for name, had in found[first].items()}


A_ROUND = 4_096
"""Bytes: the names of what a node has replayed and audited, and no state."""


@pytest.mark.long
def test_settled_rounds_leave_the_memory_of_every_role(tmp_path: Path) -> None:
    found = after_rounds(tmp_path, 24, (8, 20))
    assert {name: more for name, more in grown(found).items() if more > A_ROUND} == {}


@pytest.mark.slow
def test_two_hundred_rounds_take_the_memory_of_twenty(tmp_path: Path) -> None:
    found = after_rounds(tmp_path, 200, (20, 196))
    assert {name: more for name, more in grown(found).items() if more > A_ROUND} == {}


def key(number: int) -> TensorKey:
    return number.to_bytes(32, "big"), torch.float32, (256,)


def test_a_cache_of_several_readers_is_bounded_and_each_lets_go_of_its_own() -> None:
    cache = TensorCache(4 * 1024)
    one, other = (SlotReader(FakeBlocks(Network()), cache) for _ in range(2))
    for number in range(3):
        one._put(key(number)[0], torch.zeros(256))
    other._put(key(3)[0], torch.zeros(256))
    other._put(key(4)[0], torch.zeros(256))
    there = {number for number in range(5) if cache.get(key(number)) is not None}
    assert there == {1, 2, 3, 4}, "the least recently used has gone, of whichever reader"
    one.used.turn()
    one._put(key(2)[0], torch.zeros(256))
    one.used.turn()
    there = {number for number in range(5) if cache.get(key(number)) is not None}
    assert there == {2, 3, 4}, "what was not used since the turn before, and no other's"


def test_all_jobs_of_a_worker_have_one_cache(day: MarketDay) -> None:
    solver = day.solver("ann")
    assert isinstance(solver.pool, InlinePool)
    caches = set()
    for job_id in (day.post(), day.post(nonce=77)):
        with opened(solver.pool.context, solver.spec(job_id), "a look") as job:
            caches.add(id(job.state_provider.reader.cache))
    assert len(caches) == 1 and len(solver.pool.context.cache["jobs"]) == 2

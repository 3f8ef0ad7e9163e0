"""A node whose memory is too small for a step replays it streamed: votes, audits, games, outer steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from math import inf
from pathlib import Path
from time import sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.compute.orders import WorkerConfig, WorkerContext
from assay.disk import record
from assay.node.artifacts import load_programs, publish_job
from assay.node.audit import replayed
from assay.node.engine import Engine
from assay.node.manifests import BadManifest
from assay.node.obligations import open_games
from assay.node.orders import PinStarts
from assay.node.pins import TooSlow
from assay.node.replay_cache import ReplayCache
from assay.node.slots import PARALLEL, SlotReader, TensorCache, store_state
from assay.node.states import StateProvider, open_state_provider
from assay.node.work import OPENED
from assay.numerics import slow_paths
from assay.program import streamed, validate
from assay.program.execute import StepContext
from assay.program.fault import NodeFault
from assay.program.isa import DType, Node, Op
from assay.program.streamed import StreamedExecutor
from assay.program.validate import measure
from assay.protocol.types import Address, ClaimView, Kind, Phase
from assay.solver.crew_node import of_whole
from drills.orders import Plan
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import RESOURCE_LIMITS, account, inner_program, tiny_files, tiny_terms
from tests.fakes.market_day import MarketDay

NODES = len(inner_program().nodes)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes in which the tiny job's steps run streamed only: every tensor is large, and no kernel has
    scratch."""
    monkeypatch.setattr(streamed, "SMALL_BYTES", 1)
    monkeypatch.setattr(validate, "SCRATCH_BYTES", 0)
    monkeypatch.setattr(slow_paths, "_kept", {})
    costs = [measure(program) for program in (inner_program(), tiny_files().outer)]
    most, least = max(cost.streamed_bytes for cost in costs), min(cost.peak_bytes for cost in costs)
    assert most < least
    return most


def test_a_job_is_refused_only_if_it_fits_neither_way(memory: int) -> None:
    blocks = FakeBlocks(Network())
    terms = tiny_terms(publish_job(blocks, tiny_files()), account("client"))
    load_programs(blocks, terms, replace(RESOURCE_LIMITS, memory_bytes=memory))
    with pytest.raises(BadManifest, match=f"replayed streamed, and this node has {memory - 1}"):
        load_programs(blocks, terms, replace(RESOURCE_LIMITS, memory_bytes=memory - 1))


def test_the_memory_of_a_streamed_step_includes_a_slot_and_its_file(memory: int) -> None:
    """No kernel has scratch here, and no other node of the outer program is larger than a slot."""
    program = tiny_files().outer
    assert measure(program).widest_bytes == 2 * max(node.bytes for node in program.state)


def test_slots_that_belong_on_disk_are_read_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = FakeBlocks(Network())
    state = [torch.full((4,), float(i)) for i in range(PARALLEL)]
    slots, held = store_state(blocks, state).slots, [0, 0]
    nodes = [Node(Op.STATE, DType.F32, (4,))] * PARALLEL

    def read(cid: str, size: int, before: Any = blocks.read_file) -> Any:
        held[0] += 1
        held[1] = max(held)
        sleep(0.05)
        return before(cid, size)

    def place(x: torch.Tensor) -> torch.Tensor:
        held[0] -= 1
        return x

    monkeypatch.setattr(blocks, "read_file", read)
    found = SlotReader(blocks, TensorCache(0), place).tensors(slots, nodes)
    assert held == [0, 1]
    assert all(x is not None and torch.equal(x, y) for x, y in zip(found, state, strict=True))


def test_spilled_tensors_leave_room_for_the_nodes_own_records(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, x = Engine(room=memory, spill=tmp_path / "spill"), torch.zeros(100)
    place = engine.place((inner_program(),))
    assert place is not None and torch.equal(place(x), x)
    disk = SimpleNamespace(total=record.SPARE_BYTES * 100, free=record.SPARE_BYTES)
    monkeypatch.setattr("assay.disk.record.shutil.disk_usage", lambda _: disk)
    for spill in (place, engine.eager(inner_program()).place):
        with pytest.raises(OSError, match="but for the node's own records"):
            spill(x)


def test_a_crews_leader_has_its_own_memory_for_whole_steps(memory: int) -> None:
    whole = of_whole(replace(RESOURCE_LIMITS, memory_bytes=memory, step_bytes=memory), 3)
    assert (whole.step_bytes, whole.memory_bytes) == (3 * memory, memory)


def test_attack_05_a_whistleblower_without_the_memory_of_a_step_convicts(
    day: MarketDay, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It audits, plays the game to its end and says in its status that it replays streamed. So does a solver
    of its outer steps."""
    ran: list[int] = []

    def run(executor: StreamedExecutor, *more: Any, before: Any = StreamedExecutor.interpreted) -> Any:
        ran.append(executor.program.slots)
        return before(executor, *more)

    monkeypatch.setattr(StreamedExecutor, "interpreted", run)
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    whistle = day.whistleblower("wendy")
    whistle.resource_limits = replace(RESOURCE_LIMITS, memory_bytes=memory)
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    game = next(p.view for p in day.market_state.games.values() if p.view.decided)
    assert game.challenger_won and game.game.challenger == whistle.market.me
    (status,) = whistle.pool.status()
    assert any("replayed streamed" in why for why in status.slower) and ran


@pytest.mark.parametrize(("step_s", "games"), [(0.1, 0), (1e6, 0), (0.1, 10**9)])
def test_nothing_is_staked_on_a_segment_whose_moves_would_come_late(
    day: MarketDay, memory: int, monkeypatch: pytest.MonkeyPatch, step_s: float, games: int
) -> None:
    """A whistleblower keeps its bond, and a verifier its vote. Moves of open games take turns."""
    monkeypatch.setattr("assay.node.accusations.open_games", lambda market, me: games)
    monkeypatch.setattr(StreamedExecutor, "streamed_s", property(lambda _: step_s, lambda *_: None))
    job_id = day.post(rounds=1)
    conspiracy(day, Plan(0, 1, NodeFault(step=3, node=NODES - 1, element=0)))
    day.services.pop("v1")
    for service in (day.verifier("vera"), day.whistleblower("wendy")):
        service.resource_limits = replace(RESOURCE_LIMITS, memory_bytes=memory)
    convicted = day.run(lambda: Phase.CONVICTED in day.phases(job_id), turns=60)
    opened = any(
        play.view.game.challenger == day.address("wendy") for play in day.market_state.games.values()
    )
    slow = step_s > 1 or games > 1
    assert convicted == opened == (not slow)
    assert bool(day.named("abstained")) == slow


def steps_take(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Sets the measured time of the next streamed steps; the last one lasts."""
    times = (at for took in chain(seconds, repeat(seconds[-1])) for at in (0.0, took))
    monkeypatch.setattr(streamed, "time", SimpleNamespace(monotonic=lambda: next(times)))


def started(day: MarketDay, memory: int, folder: Path, **terms: Any) -> tuple[StateProvider, ClaimView]:
    """A task, and the states of it in a process that has just been started and streams."""
    job_id = day.post(rounds=1, shards=1, **terms)
    day.solver("ann")
    assert day.run(lambda: bool(day.phases(job_id)))
    market = day.markets["client"]
    engine, kept = Engine(room=memory, spill=folder / "spill"), ReplayCache(folder / "kept", 1 << 30)
    job, limits = market.job(job_id), replace(RESOURCE_LIMITS, memory_bytes=memory)
    return open_state_provider(market, day.blocks(), job, limits, engine=engine, kept=kept), market.claims(
        job_id
    )[0]


def pin_starts(provider: StateProvider, view: ClaimView, beside: int | None) -> None:
    job: Any = SimpleNamespace(state_provider=provider)
    spec: Any = None
    PinStarts(spec, "", view, (1, 2), beside).do(job, WorkerContext(WorkerConfig()))


def test_what_a_vote_is_defended_from_is_pinned_however_slow_steps_are(
    day: MarketDay, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps_take(monkeypatch, 1e6)
    provider, view = started(day, memory, tmp_path)
    pin_starts(provider, view, None)
    assert {path.name for path in (tmp_path / "kept" / "states").iterdir()} == {
        view.roots[i].hex() for i in (1, 2)
    }


def test_a_step_is_measured_before_a_game_is_opened_and_again_if_it_was_slow(
    day: MarketDay, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has just been started knows no time, and one slow step refuses no later game."""
    steps_take(monkeypatch, 1e6, 1e6, 0.1)
    provider, view = started(day, memory, tmp_path)
    for _ in range(2):
        with pytest.raises(TooSlow, match="nothing is staked"):
            pin_starts(provider, view, 0)
    pin_starts(provider, view, 0)


def test_a_node_with_open_games_needs_the_time_for_their_moves_too(
    day: MarketDay, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, view = started(day, memory, tmp_path)
    work = provider.work
    steps = work.segment_steps(Kind.TASK, 1, 0) + OPENED
    steps_take(monkeypatch, work.terms.move_time / 2 / steps / 3)
    pin_starts(provider, view, 2)
    with pytest.raises(TooSlow, match="beside 3 open games"):
        pin_starts(provider, view, 3)
    key = bytes(32)
    assert isinstance(replayed(provider, view, 1, key, 2), bytes)
    with pytest.raises(TooSlow, match="beside 3 open games"):
        replayed(provider, view, 1, key, 3)


def test_a_segment_that_is_too_slow_is_given_up_after_its_first_step(
    day: MarketDay, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, view = started(day, memory, tmp_path, segment_steps=4)
    steps_take(monkeypatch, 1e6)
    told: list[int] = []
    with pytest.raises(TooSlow, match="nothing is staked"):
        replayed(provider, view, 1, bytes(32), told=lambda done, steps: told.append(done))
    assert told == [0, 1]


def test_open_games_are_those_that_the_account_plays() -> None:
    me, other = account("me"), account("other")

    def game(challenger: Address, defender: Address, decided: bool) -> Any:
        return SimpleNamespace(
            decided=decided, game=SimpleNamespace(challenger=challenger, defender=defender)
        )

    games = [game(me, other, False), game(other, me, False), game(me, other, True), game(other, other, False)]
    market: Any = SimpleNamespace(games=lambda: games)
    assert open_games(market, me) == 2


def test_a_slow_step_among_fast_ones_is_not_what_a_step_takes(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Engine(room=memory, spill=tmp_path).eager(inner_program())
    steps_take(monkeypatch, 1, 3, 1e6, 2, 2, 2)
    state, context = tiny_files().genesis, StepContext(tiny_files().records, bytes(32), 0, 0)
    assert executor.streamed_s == inf
    seen = []
    for _ in range(6):
        executor.step(state, context)
        seen.append(executor.streamed_s)
    assert seen == [1, 1, 1, 2, 2, 2]


def test_a_job_of_nodes_that_replay_streamed_comes_to_its_end(day: MarketDay, memory: int) -> None:
    """Verifiers vote by keyed traces, and solvers make outer steps."""
    job_id = day.post(rounds=2)
    day.solvers()
    day.verifiers()
    for service in day.services.values():
        service.resource_limits = replace(RESOURCE_LIMITS, memory_bytes=memory)
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    assert set(day.phases(job_id)) == {Phase.SETTLED}
    assert len(slow_paths.noted()) == 2, "of a task's program and of the outer one"

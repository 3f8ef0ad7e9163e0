"""The solver in a fake market: an honest job to its end, crashes, hostile jobs, withheld data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.compute.inline import InlinePool
from assay.compute.node_calls import Home
from assay.compute.orders import WorkerConfig
from assay.node.artifacts import State
from assay.node.checkpoints import Checkpoint
from assay.node.engine import ExecutorKind
from assay.node.manifests import raw_cid
from assay.program.compiled.background_compile import WarmingExecutor
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor
from assay.protocol.canonical_json import canonical_json
from assay.protocol.errors import Retry
from assay.protocol.ports import Blocks
from assay.protocol.types import Kind, Phase
from assay.solver import state_publisher
from assay.solver.service import SolverService
from assay.solver.trainer import TaskTrainer
from tests.fakes.blocks import cid_of
from tests.fakes.jobs import TinyFiles, inner_program, tiny_files
from tests.fakes.market_day import MarketDay
from tests.fakes.opened import opened_jobs
from tests.fakes.port import Killed


def staffed(day: MarketDay, verifiers: int = 3) -> None:
    day.solvers()
    day.verifiers(verifiers)


def test_an_honest_job_is_trained_verified_paid_and_closed(day: MarketDay) -> None:
    job_id = day.post()
    staffed(day)
    supply = day.market_state.supply
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.phases(job_id) == [Phase.SETTLED] * 6
    assert not day.market_state.games
    assert day.market_state.supply == supply and day.market_state.burnt == 0
    assert all(not locked for locked in day.market_state.locked.values())
    losses = [e["loss"] for e in day.named("committed") if e["kind"] == Kind.TASK.name]
    assert len(losses) == 4 and len(set(losses)) == 4
    assert all(not s.status.error for s in day.services.values()), [s.status for s in day.services.values()]


@pytest.mark.parametrize("instant", ["takeShard", "commit", "recordSeed", "tally", "settle"])
def test_attack_48_a_solver_killed_after_any_call_restarts_without_a_double_commit(
    day: MarketDay, instant: str
) -> None:
    job_id = day.post()
    staffed(day)
    day.markets["ann"].kill_after(instant)
    with pytest.raises(Killed):
        day.run(day.closed(job_id))
    trained = len(day.named("trained"))
    day.solver("ann")
    assert day.run(day.closed(job_id))
    assert day.phases(job_id) == [Phase.SETTLED] * 6
    assert day.market_state.burnt == 0
    commits = [
        intent for market in day.markets.values() for intent in market.sent if intent.startswith("commit/")
    ]
    assert len(commits) == len(set(commits)) == 6
    assert len(day.named("trained")) == 16 and trained <= 16


def test_attack_48_a_solver_killed_between_segments_trains_none_of_them_twice(day: MarketDay) -> None:
    job_id = day.post()
    staffed(day)
    day.run(lambda: len(day.named("trained")) >= 3)
    first = len(day.named("trained"))
    day.solver("ann")
    day.solver("bob")
    assert day.run(lambda: len(day.phases(job_id)) >= 2)
    assert first >= 3 and len(day.named("trained")) == 8


def test_attack_48_a_solver_killed_while_it_publishes_repeats_at_most_one_segment(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskTrainer, "background_bytes", 0)
    job_id = day.post()
    staffed(day)
    day.run(lambda: len(day.named("trained")) >= 3)
    first = len(day.named("trained"))
    day.solver("ann")
    day.solver("bob")
    assert day.run(day.closed(job_id))
    assert day.phases(job_id) == [Phase.SETTLED] * 6 and day.market_state.burnt == 0
    assert first >= 3 and 16 <= len(day.named("trained")) <= 18


def test_a_segment_that_cannot_be_published_is_not_claimed_and_is_trained_again(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, publish = iter(range(100)), state_publisher.publish_state

    def failing(blocks: Blocks, state: State, *known: Any) -> Checkpoint:
        if next(calls) == 2:
            raise Retry("the disk is full", hint="make room")
        return publish(blocks, state, *known)

    monkeypatch.setattr(TaskTrainer, "background_bytes", 0)
    monkeypatch.setattr(state_publisher, "publish_state", failing)
    job_id = day.post()
    staffed(day)
    assert day.run(day.closed(job_id))
    assert [e["error"] for e in day.named("retry")] == ["the disk is full; make room"]
    assert day.phases(job_id) == [Phase.SETTLED] * 6 and day.market_state.burnt == 0
    assert len(day.named("trained")) >= 16


def test_attack_33_withheld_checkpoints_of_an_honest_solver_are_recomputed(day: MarketDay) -> None:
    job_id = day.post()
    day.solver("ann", blocks=day.blocks(withholds=True))
    day.solver("bob", blocks=day.blocks(withholds=True))
    day.verifiers(3)
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.network.withheld
    assert day.phases(job_id) == [Phase.SETTLED] * 6


def hostile(day: MarketDay, body: bytes) -> str:
    """Post a job whose manifest block is `body`; what the solver says of it."""
    from hashlib import sha256

    digest = sha256(body).digest()
    day.blocks().put(body)
    job_id = day.post(manifest=digest)
    solver = day.solver("ann")
    for _ in range(3):
        solver.tick()
    assert not day.named("took")
    assert "refused" in solver.why(job_id)
    return solver.why(job_id)


def manifest(day: MarketDay) -> dict:
    """The honest manifest of the tiny job."""
    import json

    from assay.node.artifacts import publish_job

    published = publish_job(day.blocks(), tiny_files())
    return json.loads(day.blocks().get(raw_cid(published.manifest)))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"not json", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"{}", "fields"),
        (b'{"a":1,"a":2}', "canonical"),
        (b'{"schema": "assay/job/2"}', "canonical"),
        (b" " * (1 << 21), "limit"),
    ],
)
def test_attack_43_a_hostile_manifest_is_refused_before_anything_is_staked(
    day: MarketDay, body: bytes, says: str
) -> None:
    assert says in hostile(day, body)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"inner": [{"cid": "../../etc/passwd", "root": "00"}]}, "root"),
        ({"inner": {"cid": "../../etc/passwd", "root": "00"}}, "list"),
        ({"outer": []}, "list"),
        ({"slots": ["w", "w", "w"]}, "slots"),
        ({"slots": 7}, "slots"),
        ({"dataset": {"cid": 5, "root": "", "records": 1, "recordSize": 1}}, "dataset"),
        ({"model": []}, "model"),
        ({"more": 1}, "fields"),
    ],
)
def test_attack_43_a_manifest_with_one_wrong_field_is_refused(
    day: MarketDay, change: dict, says: str
) -> None:
    assert says in hostile(day, canonical_json({**manifest(day), **change}))


def test_attack_43_a_file_that_is_not_what_its_root_says_is_refused(day: MarketDay) -> None:
    entry = manifest(day)
    other = tiny_files().genesis
    other[0] = other[0] + 1
    from assay.program.state import state_bytes

    entry["genesis"]["cid"] = day.blocks().add_file(state_bytes(other))
    assert "genesis" in hostile(day, canonical_json(entry))


def test_attack_45_a_program_that_fails_validation_is_refused(day: MarketDay) -> None:
    files = tiny_files()
    nodes = list(files.inner.nodes)
    from dataclasses import replace

    last = len(nodes) - 1
    nodes[last] = replace(nodes[last], attrs=(1, 2, 3))
    bad = replace(files.inner, nodes=tuple(nodes))
    fields = {name: getattr(files, name) for name in TinyFiles.__dataclass_fields__}
    job_id = day.post(TinyFiles(**{**fields, "inner": bad}))
    solver = day.solver("ann")
    for _ in range(3):
        solver.tick()
    assert not day.named("took")
    assert f"node {last}" in solver.why(job_id)


def test_a_solver_says_why_it_takes_nothing(day: MarketDay) -> None:
    job_id = day.post()
    poor = day.join("poor", solver=50)
    assert poor.me
    service = day.solver("poor")
    assert "validated" in day.solver("ann").why(job_id)
    for _ in range(2):
        assert "stake" in service.why(job_id), "which is known without the job's files"
        service.tick()
    assert not day.named("examined")


def test_a_service_survives_a_bug_in_a_tick(day: MarketDay) -> None:
    day.post()
    service: SolverService = day.solver("ann")

    def broken() -> None:
        service.clock.stopped = True  # type: ignore[attr-defined]
        raise RuntimeError("boom")

    service.tick = broken
    service.run()
    assert service.status.counters["bugs"] == 1 and "boom" in service.status.error


def test_an_unfetched_manifest_is_asked_for_again(day: MarketDay) -> None:
    digest = bytes.fromhex("11" * 32)
    job_id = day.post(manifest=digest)
    solver = day.solver("ann")
    for _ in range(5):
        solver.tick()
        day.market_state.advance(20)
    assert solver.status.counters["retries"] == 5 and not solver.status.abandoned
    assert "not fetched" in solver.why(job_id)
    assert cid_of(b"")[:4] == raw_cid(digest)[:4]


def test_a_solver_whose_store_lost_its_checkpoints_trains_them_again(day: MarketDay) -> None:
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    kept = set(day.network.blocks)
    day.run(lambda: len(day.named("trained")) >= 3)
    for cid in set(day.network.blocks) - kept:
        del day.network.blocks[cid]
    day.solver("ann")
    day.verifier("v0")
    day.verifier("v1")
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.phases(job_id) == [Phase.SETTLED] * 2
    assert [e["segment"] for e in day.named("trained")] == [0, 1, 2, 0, 1, 2, 3]


def test_too_little_memory_is_a_question_until_there_is_more(
    day: MarketDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = day.post()
    staffed(day)
    computed = Executor._run_plan
    scarce = True

    def starved(executor: Executor, *given: object) -> object:
        if scarce:
            raise MemoryError
        return computed(executor, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Executor, "_run_plan", starved)
    ann = day.services["ann"]
    assert day.run(lambda: bool(ann.status.questions)), ann.status
    (question,) = ann.status.questions.values()
    assert "has too little memory for a step" in question and "end other programs" in question
    assert not ann.status.abandoned and day.named("ask")[0]["code"] == "out-of-memory"
    scarce = False
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.phases(job_id) == [Phase.SETTLED] * 6 and not ann.status.questions


@pytest.mark.slow
def test_compiled_and_eager_nodes_agree_on_a_whole_job(day: MarketDay, tmp_path: Path) -> None:
    forms = tmp_path / "forms"
    CompiledExecutor(inner_program(), cache_dir=forms)

    def on(executor: ExecutorKind) -> Callable[[Home], InlinePool]:
        return lambda home: InlinePool(home, WorkerConfig(executor=executor.value, forms=forms))

    job_id, ways = day.post(), (ExecutorKind.COMPILED, ExecutorKind.REFERENCE)
    for name, way in zip(("ann", "bob"), ways, strict=True):
        day.solver(name, pool=on(way))
    for i, way in enumerate((*ways, ExecutorKind.EAGER)):
        day.verifier(f"v{i}", pool=on(way))
    day.whistleblower("wendy")
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert day.phases(job_id) == [Phase.SETTLED] * 6 and not day.market_state.games
    works: list[Any] = [job.work for job in opened_jobs(day.services["ann"]).values()]
    (used,) = (work._executor(Kind.TASK, 0) for work in works)
    assert isinstance(used, WarmingExecutor) and used.ready

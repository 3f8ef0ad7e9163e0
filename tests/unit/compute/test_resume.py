"""A member that stops and comes back: all go on from the latest step that each has saved, and get the same
bits."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.queues import Queue
from pathlib import Path

import pytest
import torch

from assay.compute.inline import InlinePool
from assay.compute.member import Segment, TrainStage
from assay.compute.peers import Blame, Lost
from assay.compute.stage_progress import Progress, SavedProgress, Told
from assay.program.execute import StepContext
from assay.program.state import begin_roots
from assay.training import models
from assay.training.optimisers import AdamW
from tests.unit.compute.test_member import CONTEXT, STEPS, Job, expected, orders
from tests.unit.training.steps import SEED, built, corpus

STOPS_AT, SAVES_EVERY = 3, 2


@pytest.fixture(scope="module")
def job() -> Job:
    model = models.build(models.GptConfig(n_layer=2, n_head=2, d_model=16, context=CONTEXT), 1)
    made = built(model, AdamW(0.01), corpus(CONTEXT))
    return made.inner, list(made.genesis), StepContext(made.records, SEED, 0, 0)


class Stopped(Exception):
    """A member's process ends."""


def saving(job: Job, folder: Path, members: int = 3) -> list[TrainStage]:
    return [
        replace(order, folder=folder / str(i), save_every=SAVES_EVERY)
        for i, order in enumerate(orders(job, folder, members))
    ]


def ran(order: TrainStage, progress: Callable[[int, int], None] | None = None) -> Segment:
    return InlinePool().submit(order, progress=progress).result()


def stops(done: int, total: int) -> None:
    if done == STOPS_AT:
        raise Stopped


def stopped_and_run_again(
    each: list[TrainStage], again: TrainStage, caplog: pytest.LogCaptureFixture
) -> tuple[list[Segment], set[str]]:
    """The last member stops, and `again` runs in its place; returns all segments, and what they said of where
    they went on."""
    with ThreadPoolExecutor(len(each)) as threads, caplog.at_level(logging.INFO):
        others = [threads.submit(ran, order) for order in each[:-1]]
        with pytest.raises(Stopped):
            ran(each[-1], stops)
        caplog.clear()
        segments = [ran(again), *(other.result() for other in others)]
    return segments, {text for text in caplog.messages if text.startswith("all members begin")}


def test_a_member_comes_back_and_all_go_on(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    each = saving(job, tmp_path)
    segments, said = stopped_and_run_again(each, each[-1], caplog)
    assert said == {f"all members begin with step {SAVES_EVERY}"}
    transcripts = {segment.transcripts for segment in segments}
    assert all(list(segment.roots) == expected(job) for segment in segments) and len(transcripts) == 1


def test_another_machine_takes_the_members_place_with_what_it_saved(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    each = saving(job, tmp_path, members=2)
    again = replace(each[-1], folder=tmp_path / "copy")
    (tmp_path / "copy").symlink_to(tmp_path / "1")
    segments, said = stopped_and_run_again(each, again, caplog)
    assert said == {f"all members begin with step {SAVES_EVERY}"}
    assert all(list(segment.roots) == expected(job) for segment in segments)


def test_a_machine_with_nothing_begins_at_the_start_and_so_do_all(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    each = saving(job, tmp_path, members=2)
    segments, said = stopped_and_run_again(each, replace(each[-1], folder=tmp_path / "new"), caplog)
    assert said == {"all members begin with step 0"}
    assert all(list(segment.roots) == expected(job) for segment in segments)


def test_a_run_that_has_ended_is_run_again_at_once(
    job: Job, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    each = saving(job, tmp_path, members=2)
    for says in ("all members begin with step 0", f"all members begin with step {STEPS}"):
        caplog.clear()
        with ThreadPoolExecutor(2) as threads, caplog.at_level(logging.INFO):
            for segment in threads.map(ran, each):
                assert list(segment.roots) == expected(job)
        assert says in caplog.messages


def test_a_member_that_stays_away_is_blamed(job: Job, tmp_path: Path) -> None:
    crew = [replace(order, crew=replace(order.crew, patience_s=1.5)) for order in saving(job, tmp_path, 2)]
    with ThreadPoolExecutor(1) as threads:
        other: Future[Segment] = threads.submit(ran, crew[0])
        with pytest.raises(Stopped):
            ran(crew[1], stops)
        outcome = other.exception()
    assert isinstance(outcome, Blame) and not isinstance(outcome, Lost) and outcome.member == 1


def _process(order: TrainStage, kills_itself: bool, out: Queue[tuple[int, tuple[bytes, ...]]]) -> None:
    def progress(done: int, total: int) -> None:
        if kills_itself and done == STOPS_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    out.put((order.crew.member, ran(order, progress).roots))


@pytest.mark.long
def test_a_killed_process_is_started_again(job: Job, tmp_path: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    each = [replace(order, crew=replace(order.crew, patience_s=120.0)) for order in saving(job, tmp_path)]
    out = spawned.Queue()
    processes = [spawned.Process(target=_process, args=(order, i == 1, out)) for i, order in enumerate(each)]
    for process in processes:
        process.start()
    processes[1].join(120)
    assert processes[1].exitcode == -signal.SIGKILL
    again = spawned.Process(target=_process, args=(each[1], False, out))
    again.start()
    found = dict(out.get(timeout=120) for _ in each)
    for process in (processes[0], again, processes[2]):
        process.join(60)
        assert process.exitcode == 0
    assert all(list(found[member]) == expected(job) for member in range(3))


def _progress(step: int) -> Progress:
    state = [torch.full((3, 5), float(step)), torch.arange(4, dtype=torch.int32)]
    own, other = Told(begin_roots(state)(), [bytes([1] * 32)], []), Told([bytes([2] * 32)], [], [])
    said: list[list[list[bytes]]] = [[[bytes(64)], [bytes(64)]], [[], []]]
    return Progress(step, state, [own, other], said, [bytes([3] * 32)], ["cid"])


def test_what_was_saved_is_loaded_and_the_latest_two_are_kept(tmp_path: Path) -> None:
    saved = SavedProgress(tmp_path, b"a" * 32)
    for step in (2, 4, 6):
        saved.save(_progress(step), 0)
    again = SavedProgress(tmp_path, b"a" * 32)
    assert again.steps() == [4, 6] and len(list(tmp_path.iterdir())) == 4
    found, wanted = again.load(6), _progress(6)
    assert found is not None and all(
        torch.equal(a, b) for a, b in zip(found.state, wanted.state, strict=True)
    )
    assert replace(found, state=[]) == replace(wanted, state=[])
    assert SavedProgress(tmp_path, b"b" * 32).steps() == [], "another run's are not its own"


def test_an_earlier_step_that_is_saved_later_is_kept(tmp_path: Path) -> None:
    """As when another member had to begin at the start."""
    saved = SavedProgress(tmp_path, bytes(32))
    for step in (8, 10, 2):
        saved.save(_progress(step), 0)
    assert saved.steps() == [10, 2]
    saved.save(_progress(4), 0)
    assert saved.steps() == [2, 4]


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:-9] + b"\1" + data[-8:], None])
def test_a_damaged_progress_is_absent(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes] | None
) -> None:
    saved = SavedProgress(tmp_path, bytes(32))
    for step in (2, 4):
        saved.save(_progress(step), 0)
    (path,) = tmp_path.glob(f"*-4.{suffix}")
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    assert SavedProgress(tmp_path, bytes(32)).steps() == [2]


def test_what_a_killed_process_left_is_deleted(tmp_path: Path) -> None:
    saved = SavedProgress(tmp_path, bytes(32))
    saved.save(_progress(2), 0)
    half = tmp_path / f"{bytes(8).hex()}-4.safetensors.new"
    half.write_bytes(b"half")
    assert SavedProgress(tmp_path, bytes(32)).steps() == [2] and not half.exists()

"""A solver whose own disk lies to it: nothing it has not checked in this process is ever staked on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.node.checkpoints import Checkpoint
from assay.protocol.types import JobId, Phase
from assay.solver.progress import TaskProgress
from tests.fakes.market_day import MarketDay


def begun(day: MarketDay, segments: int = 3) -> Path:
    """Ann has trained some of the four segments of the only task; the file that tells her so."""
    day.post(rounds=1, shards=1)
    day.solver("ann")
    assert day.run(lambda: len(day.named("trained")) >= segments)
    (file,) = (day.folder / "ann" / "tasks").iterdir()
    return file


def ends_well(day: MarketDay) -> None:
    """The job is done, and nobody has lost anything."""
    day.verifiers()
    day.whistleblower("wendy")
    (job_id,) = day.market_state.jobs
    assert day.run(day.closed(job_id)), (day.phases(job_id), day.services["ann"].status)
    assert day.phases(job_id) == [Phase.SETTLED] * 2
    assert day.market_state.burnt == 0 and not day.market_state.games


def flip_root(file: Path, leaf: int) -> None:
    """One bit of one hex digit of a leaf's root, so that it still reads as a root."""
    text = file.read_bytes()
    at = -1
    for _ in range(leaf + 1):
        at = text.index(b'"root"', at + 1)
    at = text.index(b'"', text.index(b":", at)) + 30
    digit = next(d for bit in range(8) if (d := text[at] ^ 1 << bit) in b"0123456789abcdef")
    file.write_bytes(text[:at] + bytes([digit]) + text[at + 1 :])
    planted = file.read_bytes()
    assert sum((a ^ b).bit_count() for a, b in zip(text, planted, strict=True)) == 1
    json.loads(planted)


@pytest.mark.parametrize(("segments", "restart"), [(3, True), (3, False), (4, True), (4, False)])
@pytest.mark.parametrize("leaf", [1, 2])
def test_a_flipped_bit_in_a_root_on_disk_never_becomes_a_claim(
    day: MarketDay, leaf: int, segments: int, restart: bool
) -> None:
    flip_root(begun(day, segments), leaf)
    if restart:
        day.solver("ann")
    ends_well(day)


def entries(file: Path, day: MarketDay) -> tuple[TaskProgress, JobId, list[Checkpoint]]:
    (job_id,) = day.market_state.jobs
    progress = TaskProgress(file.parent)
    root = day.market_state.jobs[job_id].view.terms.genesis_root
    return progress, job_id, progress.load(job_id, 0, 0, root)


@pytest.mark.parametrize("leaf", [1, 2, 3])
def test_a_wrong_root_under_a_right_checksum_never_becomes_a_claim(day: MarketDay, leaf: int) -> None:
    progress, job_id, leaves = entries(begun(day), day)
    assert len(leaves) == 4
    leaves[leaf] = Checkpoint(leaves[leaf].cid, bytes(31) + b"\1")
    progress.save(job_id, 0, 0, leaves)
    day.solver("ann")
    ends_well(day)
    trained = [e["segment"] for e in day.named("trained")]
    assert trained == [0, 1, 2, *range(leaf - 1, 4)], "from the last end that could be believed"


def test_states_in_another_order_are_not_believed(day: MarketDay) -> None:
    progress, job_id, leaves = entries(begun(day), day)
    progress.save(job_id, 0, 0, [leaves[0], Checkpoint(leaves[2].cid, leaves[1].root), *leaves[2:]])
    day.solver("ann")
    ends_well(day)


def test_progress_of_another_task_with_the_same_input_is_not_believed(day: MarketDay) -> None:
    day.post(rounds=1, shards=2)
    day.solver("ann")
    assert day.run(lambda: len(day.named("trained")) >= 4)
    (file,) = (day.folder / "ann" / "tasks").iterdir()
    shard = day.named("trained")[0]["shard"]
    other = file.with_name(file.name.replace(f"-0-{shard}-", f"-0-{1 - shard}-"))
    file.rename(other)
    (job_id,) = day.market_state.jobs
    terms = day.market_state.jobs[job_id].view.terms
    assert TaskProgress(file.parent).load(job_id, 0, 1 - shard, terms.genesis_root) == []

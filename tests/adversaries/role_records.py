"""Files that solvers, verifiers and whistleblowers keep on disk, written and read as they do
(`disk_subjects`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from assay.node.checkpoints import Checkpoint
from assay.node.orders import WantedLeaves
from assay.node.pausing import Drained
from assay.node.replay_cache import ReplayCache
from assay.program.state import state_root
from assay.protocol.demands import StateLeaf
from assay.protocol.types import Address, ClaimId, JobId, Kind, Seconds
from assay.solver.convictions import Convictions, Fallen
from assay.solver.progress import TaskProgress
from assay.solver.release import Released
from assay.verifier.ballots import Ballots
from assay.verifier.left_class import LeftClass
from assay.verifier.policy import Ballot
from assay.whistleblower.demand_store import DemandStore
from assay.whistleblower.service import Audited
from tests.fakes.jobs import inner_program

Snap = Callable[[], None]
"""Keeps the files as they are now: a state to which a lost write may bring one back."""


def digest(number: int) -> bytes:
    return bytes([number]) * 32


def fewer(truth: Any, found: Any) -> bool:
    """Some of the truth and nothing else."""
    return all(entry in truth for entry in found)


def write_progress(folder: Path, snap: Snap) -> None:
    progress = TaskProgress(folder)
    leaves = [Checkpoint(f"bafy{i}", digest(i)) for i in range(9)]
    for count in range(1, len(leaves) + 1):
        progress.save(JobId(digest(7)), 3, 1, leaves[:count])
        snap()


def read_progress(folder: Path) -> list[Checkpoint]:
    return TaskProgress(folder).load(JobId(digest(7)), 3, 1, digest(0))


def write_ballots(folder: Path, snap: Snap) -> None:
    ballots = Ballots(folder)
    for i in range(3):
        ballots.put(ClaimId(digest(i)), digest(i + 9), Ballot(i != 1, (digest(40 + i),) * 2, i == 1))
        snap()


def read_ballots(folder: Path) -> list[Any]:
    return list(Ballots(folder).all().items())


def write_demands(folder: Path, snap: Snap) -> None:
    store = DemandStore(folder)
    for i in range(2):
        store.keep(ClaimId(digest(i)), WantedLeaves(4, (StateLeaf(1, 70), StateLeaf(i, 12))))
        snap()


def read_demands(folder: Path) -> list[WantedLeaves | None]:
    store = DemandStore(folder)
    return [store.of(ClaimId(digest(i))) for i in range(2)]


def chosen_again(truth: Any, found: Any) -> bool:
    """A demand whose record is gone altogether was sent, and is on the chain, or is chosen again."""
    return all(entry in (None, true) for entry, true in zip(found, truth, strict=True))


def write_audited(folder: Path, snap: Snap) -> None:
    audited = Audited(folder / "audited")
    for i in range(12):
        audited.add((ClaimId(digest(i)), Address("0x" + f"{i:02x}" * 20)))
        snap()


def read_audited(folder: Path) -> set[Any]:
    return Audited(folder / "audited").targets


def write_convictions(folder: Path, snap: Snap) -> None:
    claim = SimpleNamespace(committed_at=5)
    for i in range(2):
        view: Any = SimpleNamespace(claim_id=ClaimId(digest(i)), claim=claim)
        convictions = Convictions(folder / "convictions.json")
        convictions.heed([Fallen(view, silent=False)], Seconds(4))
        snap()
    assert convictions.alarm


def read_convictions(folder: Path) -> Any:
    kept = Convictions(folder / "convictions.json")
    return kept.alarm, kept._heeded, kept._at


def write_released(folder: Path, snap: Snap) -> None:
    for i in range(3):
        Released(folder / "released.json").add(JobId(digest(i)), range(i + 1))
        snap()


def read_released(folder: Path) -> Any:
    return Released(folder / "released.json").read()


def write_left_class(folder: Path, snap: Snap) -> None:
    left = LeftClass(folder)
    left.keep(digest(1))
    snap()
    left.drawn_until(50, lambda: 10)


def read_left_class(folder: Path) -> list[bytes]:
    found = LeftClass(folder)
    return [found.class_id] if any(found.class_id) else []


def write_drained(folder: Path, snap: Snap) -> None:
    Drained(folder, "solver").set()


def read_drained(folder: Path) -> bool:
    return Drained(folder, "solver").holds()


def write_replays(folder: Path, snap: Snap) -> None:
    kept = ReplayCache(folder, 1 << 20)
    for i in range(6):
        kept.add(_REPLAYED, i)
        kept.keep_state(state_root(_STATES[i]), _STATES[i])
        if i % 2:
            kept.pin(_REPLAYED, i, _STATES[i])
        snap()


_PROGRAM = inner_program()
_STATES = [[torch.full(spec.shape, i, dtype=torch.float32) for spec in _PROGRAM.state] for i in range(6)]
_REPLAYED: Any = SimpleNamespace(
    claim_id=ClaimId(digest(2)),
    claim=SimpleNamespace(job_id=JobId(digest(1)), kind=Kind.TASK, round=0, shard=0),
    roots=[*(state_root(state) for state in _STATES), digest(6)],
)


def read_replays(folder: Path) -> list[Any]:
    """What is known of each segment, with the digest of its end state."""
    kept = ReplayCache(folder, 1 << 20)
    states = [kept.state(state_root(state), _PROGRAM) for state in _STATES]
    return [
        entry
        for i, state in enumerate(states)
        for entry in (
            (i, kept.knows(_REPLAYED, i)),
            (i, state and state_root(state)),
            (i, kept.pinned(_REPLAYED, i) and "pinned"),
        )
        if entry[1]
    ]


def told_again(truth: Any, found: Any) -> bool:
    """An earlier state: the chain shows the rest of the convictions, which are then heeded again."""
    return found in (("", (), 0), ("", truth[1][:1], 4))

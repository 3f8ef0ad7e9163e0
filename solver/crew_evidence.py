"""What the members of a crew have said and signed of its tasks: the evidence of an accusation.

Contract: one record (``disk.record``) for each task and attempt, written before the task is committed. A
damaged one is an error: without it nobody can be accused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assay.disk import record
from assay.protocol import trees
from assay.protocol.crew import Said
from assay.solver.crew_orders import Trained
from assay.solver.worker_reports import Place

_KIND = "assay/crew-task/1"


def transcript_root(steps: Sequence[bytes]) -> bytes:
    """Root of one member's steps (docs/protocol.md, 8.5)."""
    return trees.root([trees.leaf(step) for step in steps])


def said_at(steps: Sequence[bytes], at: int) -> Said:
    """One of these steps, with its proof."""
    proof = trees.build([trees.leaf(step) for step in steps]).proof(at)
    return Said(at, steps[at][:32], steps[at][32:], tuple(proof))


def received_name(round_: int, shard: int, attempt: int) -> str:
    """Folder of what a member has received in a task (``solver.crew_dispute``)."""
    return f"{round_}-{shard}-{attempt}"


class Evidence(NamedTuple):
    """What each member says of each step, by segment, and its signatures, by member."""

    said: list[list[list[bytes]]]
    signatures: list[list[bytes]]


class SignedTasks:
    """The evidence of one crew's tasks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, place: Place, attempt: int, trained: Trained) -> None:
        """Saves a task durably."""
        job_id, round_, shard = place
        body = {
            "job": job_id.hex(),
            "round": round_,
            "shard": shard,
            "attempt": attempt,
            "roots": [root.hex() for root in trained.roots],
            "said": [[[step.hex() for step in steps] for steps in said] for said in trained.said],
            "signatures": [[each.hex() for each in member] for member in trained.signatures],
        }
        record.write(self._path(place, attempt), _KIND, body)

    def load(self, place: Place, attempt: int) -> Evidence | None:
        """The evidence of a task; None if there is none. Raises DamagedRecord."""
        body = record.read(self._path(place, attempt), _KIND, hint="no member can be accused without it")
        if body is None:
            return None
        said = [[[bytes.fromhex(step) for step in steps] for steps in each] for each in body["said"]]
        return Evidence(said, [[bytes.fromhex(each) for each in member] for member in body["signatures"]])

    def _path(self, place: Place, attempt: int) -> Path:
        _, round_, shard = place
        return self._folder / f"{received_name(round_, shard, attempt)}.json"

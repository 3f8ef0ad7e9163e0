"""Records a solver's trained and published segments on disk, so that a restart resumes there.

Contract: one record (``disk.record``) per task and input state, replaced after every segment; the states are
in the block store. A damaged record counts as absent: its segments are trained again and give the same roots.
Not guaranteed: that a record's roots are those of its states; ``solver.trainer`` recomputes them before it
uses any.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.disk import record
from assay.node.checkpoints import Checkpoint
from assay.node.retention import Unclaimed
from assay.protocol.types import JobId

log = logging.getLogger(__name__)

_KIND = "assay/progress/1"


class TaskProgress:
    """Published checkpoints of tasks, by job, round, shard and input root."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder.with_name(folder.name + ".distrusted")
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, job_id: JobId, round_: int, shard: int, input_root: bytes) -> Path:
        return self._folder / f"{job_id.hex()}-{round_}-{shard}-{input_root.hex()[:16]}.json"

    def load(self, job_id: JobId, round_: int, shard: int, input_root: bytes) -> list[Checkpoint]:
        """Checkpoints of a task so far, the input's first; empty if there are none."""
        path = self._path(job_id, round_, shard, input_root)
        place = _place(job_id, round_, shard)
        body = record.read_or_quarantine(path, _KIND, instead="what it told of is computed again")
        if body is None:
            return []
        found = [Checkpoint(str(e["cid"]), bytes.fromhex(e["root"])) for e in body["checkpoints"]]
        same = {name: body[name] for name in place} == place
        return found if same and found and found[0].root == input_root else []

    def save(self, job_id: JobId, round_: int, shard: int, checkpoints: list[Checkpoint]) -> None:
        """Replaces the record of a task."""
        path = self._path(job_id, round_, shard, checkpoints[0].root)
        record.write(path, _KIND, {**_place(job_id, round_, shard), "checkpoints": _entries(checkpoints)})

    def indices(self, job_id: JobId, first_round: int, has: Callable[[str], bool]) -> Unclaimed:
        """Indices of the published states of a job's tasks, by these records.

        The record of a finished task is deleted once `has` is false for all its indices: they are deleted
        first.
        """
        live, over = set[str](), set[str]()
        for folder in (self._folder, self._aside):
            for path in sorted(folder.glob(f"{job_id.hex()}-*.json")):
                body = record.read_or_quarantine(path, _KIND, instead="what it told of is computed again")
                found = {str(entry["cid"]) for entry in (body or {}).get("checkpoints", ())}
                if int(path.stem.split("-")[1]) >= first_round:
                    # of what is distrusted the same may be published again, before any record tells of it
                    live |= found if folder == self._folder else set()
                elif any(has(cid) for cid in found - {""}):
                    over |= found
                elif folder == self._folder:
                    path.unlink(missing_ok=True)
        return Unclaimed(frozenset(live - {""}), frozenset(over - {""}))

    def distrust(self) -> None:
        """Moves all records aside for inspection; they are never read again."""
        aside = self._aside
        shutil.rmtree(aside, ignore_errors=True)
        self._folder.replace(aside)
        self._folder.mkdir()
        record.sync_folder(self._folder.parent)
        log.warning("all progress on disk is distrusted and now lies in %s", aside)


def _place(job_id: JobId, round_: int, shard: int) -> dict[str, Any]:
    """Fields that identify the task of a record, as two tasks may start from the same state."""
    return {"job": job_id.hex(), "round": round_, "shard": shard}


def _entries(checkpoints: list[Checkpoint]) -> list[dict[str, str]]:
    return [{"cid": c.cid, "root": c.root.hex()} for c in checkpoints]

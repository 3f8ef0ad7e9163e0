"""What a solver has trained and published, on its disk, so that a restart goes on where it was.

Contract: one small JSON file for each task and input state, replaced atomically after every segment; the
states themselves are in the block store. A file that does not parse counts as absent: the segments are
trained again, and, computation being exact, give the same roots. Nothing here is believed by anyone else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from assay.node.artifacts import Checkpoint
from assay.protocol.types import JobId


class TaskProgress:
    """Published checkpoints of tasks, by job, round, shard and input root."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _path(self, job_id: JobId, round_: int, shard: int, input_root: bytes) -> Path:
        return self._folder / f"{job_id.hex()}-{round_}-{shard}-{input_root.hex()[:16]}.json"

    def load(self, job_id: JobId, round_: int, shard: int, input_root: bytes) -> list[Checkpoint]:
        """Leaves so far: the input's checkpoint first; empty if nothing was done."""
        try:
            entries = json.loads(self._path(job_id, round_, shard, input_root).read_text())
            found = [Checkpoint(str(e["cid"]), bytes.fromhex(e["root"])) for e in entries]
        except (OSError, ValueError, TypeError, KeyError):
            return []
        return found if found and found[0].root == input_root else []

    def save(self, job_id: JobId, round_: int, shard: int, checkpoints: list[Checkpoint]) -> None:
        """Replace what is known of a task."""
        path = self._path(job_id, round_, shard, checkpoints[0].root)
        fresh = path.with_suffix(".tmp")
        with fresh.open("w") as file:
            json.dump([{"cid": c.cid, "root": c.root.hex()} for c in checkpoints], file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

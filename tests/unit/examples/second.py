"""Running the second client, and markets whose blocks lie in a store that it can read."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.blocks.blockstore import BlockStore
from assay.protocol.types import JobId
from tests.fakes.market_day import MarketDay

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "examples" / "second_client"


def imported(source: str) -> set[str]:
    """The modules that a source imports."""
    tree = ast.parse(source)
    names = {n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def run(folder: Path, *places: Path | str) -> subprocess.CompletedProcess[str]:
    """The second client, in a process that cannot see the project."""
    command = [sys.executable, "-I", str(CLIENT), str(folder), *map(str, places)]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=600)


def found(folder: Path, *places: Path | str) -> dict[str, Any]:
    """The result for a job without faults."""
    ended = run(folder, *places)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@dataclass
class StoredDay(MarketDay):
    """A market whose blocks lie in one folder, as a node's store keeps them."""

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def blocks(self, **options: Any) -> Any:
        assert not options, "a folder withholds nothing"
        return BlockStore(self.store)

    def replayed(self, job_id: JobId, folder: Path) -> dict[str, Any]:
        """The second client's result for the job as its client fetches it."""
        self.fetch(job_id, folder)
        return found(folder, self.store)

"""``assay storage``: what is kept, and whether it is what its names say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.blocks.blockstore import BlockStore


def assay(home: Path, *words: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "assay", "--home", str(home), "--json", "storage", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    return ended.returncode, json.loads(ended.stdout)["data"] if ended.stdout else ended.stderr


@pytest.mark.long
def test_blocks_are_counted_and_compared_with_their_names(tmp_path: Path) -> None:
    one = BlockStore(tmp_path / "nodes" / "ann" / "store")
    BlockStore(tmp_path / "nodes" / "bob" / "store")
    cid = one.put(b"a block")
    one.pin(cid)
    one.put(b"another")
    empty = {"blocks": 0, "bytes": 0, "pinned": 0, "damaged": 0}
    told = {"ann": {"blocks": 2, "bytes": 14, "pinned": 1, "damaged": 0}, "bob": empty}
    assert assay(tmp_path, "ls") == (0, told)
    assert assay(tmp_path, "check") == (0, {"ann": [], "bob": []})
    next((one.root / "blocks").glob(f"*/{cid}")).write_bytes(b"A block")
    assert assay(tmp_path, "check", "ann") == (1, {"ann": [cid]})
    left = {"blocks": 1, "bytes": 7, "pinned": 1, "damaged": 1}
    assert assay(tmp_path, "ls", "ann") == (0, {"ann": left})


def test_a_node_that_is_not_here_is_named(tmp_path: Path) -> None:
    BlockStore(tmp_path / "nodes" / "ann" / "store")
    status, told = assay(tmp_path, "check", "nobody")
    assert status == 4 and "nobody" in told and "ann" in told

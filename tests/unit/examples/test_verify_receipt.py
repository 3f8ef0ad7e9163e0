"""The independent verifier agrees with ours, on what holds and on each forging that can be found offline."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.client import receipt
from assay.client.receipt import BadReceipt, read_receipt
from assay.client.verifying import verify
from assay.protocol.encoding import words
from tests.unit.client.test_forged_receipts import Forgery, inflated

SCRIPT = Path(__file__).parents[3] / "examples" / "verify_receipt.py"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """In a process that cannot see the project."""
    command = [sys.executable, "-I", str(SCRIPT), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd="/")


def test_it_imports_nothing_of_the_project() -> None:
    tree = ast.parse(SCRIPT.read_text())
    names = {n.name for node in ast.walk(tree) if isinstance(node, ast.Import) for n in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names == {"json", "struct", "sys", "hashlib", "pathlib", "Crypto.Hash"}


def test_it_passes_what_we_pass(copy: Path) -> None:
    ended = run(copy)
    assert ended.returncode == 0, ended.stderr
    found = verify(copy)
    assert f"job {found.job_id}, 6 claims, root {found.params_root}" in ended.stdout


@pytest.mark.parametrize("forging", ["weights", "seed", "chain", "claim", "manifest", *receipt.FILES])
def test_it_refuses_what_we_refuse(copy: Path, forging: str) -> None:
    forgery = Forgery(copy)
    true = read_receipt(copy)
    changes: dict[str, Any] = {
        "seed": {"terms": words(replace(true.terms, seed=b"\x22" * 32)).hex()},
        "chain": {"chain": {"id": 7, "contracts": dict(true.chain.contracts)}},
        "claim": {"claims": forgery.body()["claims"][:-1]},
    }
    if forging == "weights":
        inflated(forgery, new_id=False)
    elif forging in changes:
        forgery.seal(**changes[forging])
    else:
        name = "manifest.json" if forging == "manifest" else forging
        data = bytearray((copy / name).read_bytes())
        data[-2] ^= 1
        (copy / name).write_bytes(bytes(data))
        forgery.seal()
    with pytest.raises(BadReceipt):
        verify(copy)
    ended = run(copy)
    assert ended.returncode == 1 and "Error" in ended.stderr

"""What a command imports: no more than it needs, which is what its first output waits for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import sys
from assay.cli.main import main
sys.argv[1:] = sys.argv[1].split()
try:
    main()
except SystemExit:
    print("imported:", *sys.modules)
"""
HEAVY = ("torch", "web3", "eth_account", "fastapi", "uvicorn", "httpx", "sklearn")


def imported(command: str, folder: Path) -> set[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, command], cwd=folder, env=environment, capture_output=True, text=True
    )
    last = done.stdout.splitlines()[-1]
    assert last.startswith("imported:"), done.stderr
    return set(last.split()[1:])


@pytest.mark.parametrize(
    "command", ["--help", "job --help", "dispute --help", "devnet --help", "account ls", "config"]
)
def test_help_and_what_needs_no_chain_imports_nothing_heavy(command: str, tmp_path: Path) -> None:
    assert imported(command, tmp_path) & {*HEAVY, "requests", "eth_abi", "assay.chain.eth.rpc"} == set()


def test_a_command_that_reads_imports_no_torch_and_no_keys() -> None:
    program = "import sys, assay.app.wiring; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert set(done.stdout.split()) & set(HEAVY) == set() and "requests" in done.stdout.split()


def test_the_measure_would_notice(tmp_path: Path) -> None:
    assert {"torch", "requests"} <= imported("solver run", tmp_path)

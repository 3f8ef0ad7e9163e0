"""Imports of commands: no more than each needs, since its first output waits for them.

Every line of `usual_lines` runs with a market that knows one job and nothing else, in a process that cannot
import LATER: whatever is imported before the first output delays it, some by seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.job.templates import LOCAL, template
from tests.unit.cli.usual_lines import CASES

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
HEAVY = ("torch", "web3", "eth_account", "starlette", "uvicorn", "httpx", "sklearn")


LATER = (
    *("torch", "numpy", "numba", "scipy", "sklearn", "safetensors", "starlette", "uvicorn"),
    "py_ecc.optimized_bls12_381",
)
"""Slow modules, which may only be imported after the first output, and not to refuse wrong input."""
WATCHED = """
import io, json, os, sys, tempfile
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from unittest.mock import MagicMock

sys.path.append(os.getcwd())
lines, later = json.loads(sys.argv[1]), tuple(sys.argv[2].split())
tried, said = [], io.StringIO()

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in later:
            tried.append((name, bool(said.getvalue().strip())))
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
from assay.app.invocation import App
from assay.chain.eth import keystore
from assay.cli.main import main

keystore.STRONG_SCRYPT_N = keystore.DEVNET_SCRYPT_N
market = MagicMock()
market.job_ids.return_value = [bytes(32)]
market.job.return_value = SimpleNamespace(job_id=bytes(32), terms=MagicMock())
connection = SimpleNamespace(market=market, writer=market, clock=MagicMock(), chain=MagicMock(), journal=None)
App.view = lambda self: connection
App.connect = lambda self, account=None: connection
keystore.Keystore.find = lambda self, name: SimpleNamespace(name=name, address="0x" + "11" * 20)

found = []
for line in lines:
    folder = tempfile.mkdtemp(dir=os.environ["HOME"])
    os.chdir(folder)
    tried.clear(), said.seek(0), said.truncate()
    sys.argv, sys.stdin = ["assay", *line.replace("{empty}", folder).split()], io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main()
        except SystemExit:
            pass
    found.append((line, list(tried), said.getvalue()))
print(json.dumps(found))
"""


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
    assert imported(command, tmp_path) & {*HEAVY, "httpcore", "eth_abi", "assay.chain.eth.rpc"} == set()


@pytest.mark.long
def test_a_command_that_reads_imports_no_torch_and_no_keys() -> None:
    program = "import sys, assay.app.wiring; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert set(done.stdout.split()) & set(HEAVY) == set() and "httpcore" in done.stdout.split()


def test_web3_comes_without_the_pairing_curve() -> None:
    """It takes as long as all the rest of web3."""
    program = "import sys; from assay.chain.eth.rpc import eth_module; eth_module(print); print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert "web3" in done.stdout.split() and not set(LATER) & set(done.stdout.split())


def test_a_job_file_is_written_and_read_without_torch() -> None:
    modules = "assay.cli.commands.job_init, assay.job.read, assay.job.templates, assay.job.use_sections"
    program = f"import sys, {modules}; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert "assay.training.catalogue" in done.stdout.split(), done.stderr
    assert set(done.stdout.split()) & set(LATER) == set()


@pytest.mark.long
def test_the_measure_would_notice(tmp_path: Path) -> None:
    assert {"torch", "httpcore"} <= imported("doctor --role solver", tmp_path)


def heard(lines: list[str], folder: Path) -> list[Any]:
    """Of each line: itself, what of LATER it tried to import and whether it had spoken, and what it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    command = [sys.executable, "-c", WATCHED, json.dumps(lines), " ".join(LATER)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
def test_no_command_imports_what_takes_long_before_it_has_said_a_word(tmp_path: Path) -> None:
    job, model = tmp_path / "job.toml", tmp_path / "model"
    job.write_text(template("mlp", source="digits", rounds=1, times=LOCAL))
    model.mkdir()
    (model / "manifest.json").write_text("{}")
    (model / "model.safetensors").write_text("")
    lines = [line.replace("{c}", command) for command, lines in CASES.items() for line in lines]
    lines = [f" {line} ".replace(" job.toml ", f" {job} ").replace(" model ", f" {model} ") for line in lines]
    found = heard(lines, tmp_path)
    assert [(line, tried) for line, tried, _ in found if any(not spoken for _, spoken in tried)] == []
    assert [line for line, _, said in found if not said.strip()] == []
    late = {" ".join(line.split()) for line, tried, _ in found if tried}
    for line in (
        "job show latest",
        "job watch latest",
        "whistle scan latest",
        f"job eval {model} {job}",
        "--account solver-1 solver run",
    ):
        assert line in late, "the measure would notice"
    wrong = [tried for line, tried, _ in found if "0123456789abcdef" in line or "no-such-file" in line]
    assert len(wrong) > 15 and not any(wrong), "what is not there is refused without them"

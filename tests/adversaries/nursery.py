"""`assay` commands as processes of their own that start at once, to be killed by the hundred.

A start takes seconds, nearly all of it for loading modules. One process loads them and forks itself into any
command; what a fork opens, locks and writes is its own, and nothing of it is left when it is killed.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOADED = (
    *("torch", "uvicorn", "httpx", "assay.cli.main", "assay.cli.node.run", "assay.cli.commands.job"),
    *("assay.cli.commands.solver", "assay.cli.commands.verifier", "assay.cli.commands.whistle"),
    *("assay.cli.commands.job_post", "assay.jobfile.build", "assay.jobfile.post", "assay.storage.node"),
    *("assay.node.states", "assay.solver.adversary", "assay.verifier.adversary", "assay.app.wiring"),
    *("assay.whistleblower.service", "assay.verifier.service", "assay.app.machine", "assay.app.web"),
)


class Nursery:
    """The process that has loaded everything."""

    def __init__(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "ETH_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversaries.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )

    def start(self, words: Sequence[str], log: Path) -> int:
        """Run `assay` with these words; its process id."""
        assert self._process.stdin is not None and self._process.stdout is not None
        log.parent.mkdir(parents=True, exist_ok=True)
        self._process.stdin.write(json.dumps([list(words), str(log)]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it; what it has started goes on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def main() -> None:
    """For each line of words and a log, the id of a fork that runs them."""
    for name in LOADED:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for line in sys.stdin:
        words, log = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(words, log)
        print(pid, flush=True)


def _become(words: list[str], log: str) -> None:
    """The fork: the command, to its end."""
    command = importlib.import_module("assay.cli.main").main
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, number in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(target, number)
        random.seed()
        sys.argv = ["assay", *words]
        command()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()

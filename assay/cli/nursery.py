"""The process behind ``devnet.nursery``: it loads what nodes need, and forks itself into any command.

Contract: for each line of JSON, [package, words, log], on standard input a fork that runs `python -m package`
with these words; its process id on standard output. What a fork opens, locks and writes is its own, and
nothing of it is left when it is killed. Nothing that is loaded here starts a thread or looks for a GPU, which
no fork survives.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from assay.cli import cycles
from assay.protocol.bounded_json import loads

LOADED = (
    *("torch", "uvicorn", "httpx", "assay.cli.main", "assay.cli.node.run", "assay.cli.commands.job"),
    *("assay.cli.commands.solver", "assay.cli.commands.verifier", "assay.cli.commands.whistle"),
    *("assay.cli.commands.job_post", "assay.job.build", "assay.job.post", "assay.blocks.node"),
    *("assay.node.states", "assay.app.wiring", "assay.solver.service", "assay.verifier.service"),
    *("assay.whistleblower.service", "assay.app.machine", "assay.app.web"),
)


def show(words: Sequence[str]) -> None:
    """Have the system show these words as this process's command line, in the room that its own had (Linux).
    Raises ValueError where they have no room."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49 of proc(5)
    line = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(line) > end - begin:
        raise ValueError(f"a command line of {len(line)} bytes has no room in {end - begin}")
    ctypes.memmove(begin, line.ljust(end - begin, b"\0"), end - begin)


def main() -> None:
    """For each line of words and a log, the id of a fork that runs them."""
    cycles.rest()
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        package, words, log = loads(line)
        pid = os.fork()
        if not pid:
            _become(package, words, log)
        print(pid, flush=True)


def _become(package: str, words: list[str], log: str) -> NoReturn:
    """The fork: the command, to its end, which is that of any process."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, number in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(target, number)
    os.close(out)
    os.close(nothing)
    show([sys.executable, "-m", package, *words])
    sys.argv = [package, *words]
    importlib.import_module(f"{package}.__main__").main()
    raise SystemExit(0)


if __name__ == "__main__":
    main()

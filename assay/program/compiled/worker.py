"""Compiling one program in a process of its own, so that training goes on meanwhile.

Contract: `start` returns at once; the process compiles at low priority into the cache and ends with status 0
when the form is there, or was already. What it prints goes to the form's log. It reads a program that the
caller has validated. Not guaranteed: that it ends; `Worker.stop` ends it with everything that it started.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from assay.program.compiled.cache import StoredForm
from assay.program.compiled.executor import compile_program, load_form, stored_form
from assay.program.compiled.process import command
from assay.program.isa import Program, decode, encode

_NICENESS = 10
_LAST_BYTES = 4096


class Worker:
    """A running compilation."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, stored: StoredForm) -> None:
        self._process, self._file, self._stored = process, file, stored
        atexit.register(self.stop)

    @property
    def ended(self) -> bool:
        """Whether it is over, well or not."""
        return self._process.poll() is not None

    @property
    def failure(self) -> str:
        """Why no form came of it; empty while it runs and when it went well."""
        status = self._process.poll()
        if not status:
            return ""
        lines = _tail(self._stored.log)
        last = lines[-1] if lines else "it printed nothing"
        ended = f"signal {-status}" if status < 0 else f"status {status}"
        return f"compiling ended with {ended}: {last[:300]} (all of it in {self._stored.log})"

    def stop(self) -> None:
        """End it if it still runs, and remove its program file."""
        atexit.unregister(self.stop)
        if not self.ended:
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        self._file.unlink(missing_ok=True)


def _tail(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = path.read_bytes()[-_LAST_BYTES:].decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()]


def start(program: Program, device: torch.device, stored: StoredForm) -> Worker:
    """Begin to compile the program's form for this process's number of threads."""
    stored.log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=stored.log.parent, suffix=".program", delete=False) as file:
        file.write(encode(program))
    given = [file.name, str(stored.log.parent), str(device), str(torch.get_num_threads())]
    with stored.log.open("wb") as log:
        process = subprocess.Popen(
            command(__name__, *given),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Worker(process, Path(file.name), stored)


def main() -> None:
    """The process: program file, cache folder, device, threads."""
    file, folder, name, threads = sys.argv[1:]
    os.nice(_NICENESS)
    torch.set_num_threads(int(threads))
    program, device = decode(Path(file).read_bytes()), torch.device(name)
    stored = stored_form(program, device, Path(folder))
    with stored.held():
        if load_form(program, device, stored) is None:
            compile_program(program, device, stored)

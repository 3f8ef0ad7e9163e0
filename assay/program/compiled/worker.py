"""Compiles a program in another process, while training goes on.

Contract: `start` returns at once; the process compiles at low priority into the cache and exits with status 0
when the form is there. Its output goes to the form's log. It reads a program that the caller has validated.
Not guaranteed: that it ends; `Worker.stop` ends it with all its children.
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
        """True if it has ended, successfully or not."""
        return self._process.poll() is not None

    @property
    def failure(self) -> str:
        """Why there is no form; empty while it runs and on success."""
        status = self._process.poll()
        if not status:
            return ""
        lines = _tail(self._stored.log)
        last = lines[-1] if lines else "it printed nothing"
        ended = f"signal {-status}" if status < 0 else f"status {status}"
        return f"compiling ended with {ended}: {last[:300]} (all of it in {self._stored.log})"

    def stop(self) -> None:
        """Stops it if it still runs, and removes its program file."""
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
    """Starts compiling the program's form for this process's number of threads."""
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
    """Runs the process; arguments: program file, cache folder, device, threads."""
    file, folder, name, threads = sys.argv[1:]
    os.nice(_NICENESS)
    torch.set_num_threads(int(threads))
    program, device = decode(Path(file).read_bytes()), torch.device(name)
    stored = stored_form(program, device, Path(folder))
    with stored.held():
        if load_form(program, device, stored) is None:
            compile_program(program, device, stored)

"""Nodes of a devnet that start at once: forks of one process that has loaded what they need.

Contract: what `Nursery.start` gives is what the command by itself would be: a process in a session of its
own, with that command line and these settings, whose output is appended to its log. A start by itself takes
seconds of a processor, nearly all of it for loading modules, and so does a nursery, once, and beside what its
user does. There is one where the system lets a process say what its command line is, and has no GPU, whose
libraries say that they do not survive a fork (`able`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from assay.protocol.errors import Stop

ROOM = 1 << 12
"""Bytes of a fork's command line at most."""
GPUS = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
_PROCESS = "assay.cli.nursery"


def able() -> bool:
    """Whether forks can be told from one another here, and are of use."""
    told_apart = sys.platform == "linux" and Path("/proc/self/stat").exists()
    return told_apart and not any(gpu.exists() for gpu in GPUS)


class Nursery:
    """The process that loads everything, from now on until it is closed; what it has started goes on."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", _PROCESS, "." * ROOM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def start(self, words: Sequence[str], log: Path, package: str = "assay") -> int:
        """Run a package's command line with these words; its process id. Raises Stop where the nursery has
        ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        log.parent.mkdir(parents=True, exist_ok=True)
        log.open("ab").close()  # what cannot be written is told here, and not by the fork
        said = ""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([package, list(words), str(log)]) + "\n")
            self._process.stdin.flush()
            said = self._process.stdout.readline()
        if not said.strip().isdigit():
            self.close()
            raise Stop(
                f"the process that starts a devnet's nodes has ended ({self._process.returncode})",
                hint="what it wrote stands above; `assay doctor` looks at this installation",
                code="node-failed",
            )
        return int(said)

    def close(self) -> None:
        """End it, and whatever it has started of which nobody was told."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()  # it has nothing to lose, and may still be loading
        self._process.wait()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._process.stdout.closed:
            return
        for pid in self._process.stdout.read().split():
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(pid), signal.SIGTERM)
        self._process.stdout.close()


@contextmanager
def nursery_for(nodes: int) -> Iterator[Nursery | None]:
    """A nursery where it is of use: for more than one node, and where there can be one."""
    if nodes < 2 or not able():
        yield None
        return
    with Nursery() as nursery:
        yield nursery

"""A local chain for a test: it ends with the test's process, also when that is killed (Linux)."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.chain.eth import anvil

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class AnvilOptions(anvil.AnvilOptions):
    """Options with a log of its own."""

    log_file: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="anvil-"), "log"))


class Anvil(anvil.Anvil):
    """A running local chain. Use as a context manager, or call `stop`."""

    def __init__(self, options: anvil.AnvilOptions | None = None) -> None:
        super().__init__(options or AnvilOptions())

    def _spawn(self, **how: Any) -> subprocess.Popen[str]:
        # The kernel's death signal follows the thread that forked, so only the main thread may ask for it.
        bound = sys.platform == "linux" and threading.current_thread() is threading.main_thread()
        process = super()._spawn(preexec_fn=end_with_parent if bound else None)
        atexit.register(self.stop)
        return process

    def stop(self, timeout_s: float = 10.0) -> None:
        atexit.unregister(self.stop)
        super().stop(timeout_s)
        if self.options.log_file.parent.name.startswith("anvil-"):
            shutil.rmtree(self.options.log_file.parent, ignore_errors=True)

    def kill(self) -> None:
        """Kills the node, as a crash would."""
        self._process.kill()
        self.stop()

    def __enter__(self) -> Anvil:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def end_with_parent() -> None:
    """Runs in the child before exec: makes the kernel kill it when the parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # the parent died between fork and here
        os._exit(1)

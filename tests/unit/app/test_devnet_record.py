"""Which processes a devnet's record speaks of."""

from __future__ import annotations

import subprocess
import sys

from assay.app.devnet_record import runs


def test_a_number_that_another_process_has_by_now_is_not_the_devnets() -> None:
    words = ("--account", "solver-1", "/a/home")
    with subprocess.Popen([sys.executable, "-c", "input()", *words], stdin=subprocess.PIPE) as process:
        while not runs(process.pid, *words) and process.poll() is None:
            continue  # until it has its own command line
        assert runs(process.pid, *words)
        assert not runs(process.pid, "--account", "solver-2", "/a/home")
        process.communicate(b"\n")
    assert not runs(process.pid, *words) and not runs(0, *words)

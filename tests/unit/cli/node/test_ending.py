"""A node stops when asked, even if something blocks it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

NODE = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from assay.cli.node.run import end_when_told
stopped = threading.Event()
end_when_told(stopped.set, 0.5 if sys.argv[1] == "held" else 60.0)
if sys.argv[1] == "held":  # as by a transaction that is not mined
    ThreadPoolExecutor(1).submit(time.sleep, 60)
atexit.register(print, "closed", flush=True)
print("ready", flush=True)
stopped.wait(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", ["free", "held"])
def test_it_ends_soon_whatever_holds_it_up(number: int, how: str) -> None:
    node = subprocess.Popen([sys.executable, "-c", NODE, how], stdout=subprocess.PIPE)
    try:
        assert node.stdout is not None and node.stdout.readline() == b"ready\n"
        for _ in range(2):  # the second one changes nothing
            node.send_signal(number)
        ended = node.wait(20)
        # The interpreter gives the signals up after all exit handlers: the second may end what is then left.
        assert ended == 0 or (how == "free" and ended == -number)
        assert node.stdout.read() == (b"" if how == "held" else b"closed\n")
    finally:
        node.kill()
        node.communicate()

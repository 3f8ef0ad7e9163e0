"""Bringing the processes of a group together: started by this one, or by ``torchrun``.

Contract: `Ranks.join` gives the first rank its group, whole; after a rank was lost it starts all others
anew, where this process started them, and raises RankLost where ``torchrun`` did, which then ends them all.
The others end when the first does, however that ends. Not guaranteed: that nobody else on this machine joins
in their place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

import torch
from torch.distributed import Store, TCPStore, rendezvous

from assay.program.ranks.executor import end, serve
from assay.program.ranks.group import Group, RankLost
from assay.protocol.errors import Ask

LOCAL = "127.0.0.1"
MOST_RANKS = 64
JOIN_S = 120
"""How long processes may take to start."""
ENDS_S = 10
_LOOK_S = 0.05


class Ranks:
    """What a first rank needs: who the others are."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._group: Group | None = None

    def join(self) -> Group:
        """The group, with all ranks in it. Raises RankLost."""
        if self._group is None or self._group.broken:
            self._group = self._formed()
        return self._group

    def _formed(self) -> Group:
        raise NotImplementedError

    def close(self) -> None:
        """Let the others go."""
        if self._group is not None:
            with suppress(RankLost):
                end(self._group)
            self._group = None


class LocalRanks(Ranks):
    """Ranks on this machine, each a process that this one starts, with as many threads as this one has."""

    def __init__(self, size: int) -> None:
        """Raises Ask for a number of ranks that cannot be."""
        super().__init__(size)
        if not 1 <= size <= MOST_RANKS:
            raise Ask(f"{size} ranks cannot be started", hint=f"choose 1 to {MOST_RANKS}", code="bad-ranks")
        self._others: list[subprocess.Popen[bytes]] = []

    def _formed(self) -> Group:
        self._stop()
        store = TCPStore(LOCAL, 0, is_master=True, wait_for_workers=False)
        head = [sys.executable, "-m", __name__, str(store.port), str(self.size), str(torch.get_num_threads())]
        self._others = [
            subprocess.Popen([*head, str(rank)], stdin=subprocess.DEVNULL, start_new_session=True)
            for rank in range(1, self.size)
        ]
        self._await(store)
        group = Group(store, 0, self.size, LOCAL)
        group.why_lost = self._why
        return group

    def _await(self, store: Store) -> None:
        """Wait until every other rank runs."""
        waited = 0
        for rank in range(1, self.size):
            while not store.check([_here(rank)]):
                if why := self._why(0.0):
                    raise RankLost(f"ranks could not be started: {why}", hint="its output says why")
                if (waited := waited + 1) * _LOOK_S > JOIN_S:
                    raise RankLost(f"rank {rank} did not start in {JOIN_S} s", hint="end other programs here")
                time.sleep(_LOOK_S)

    @property
    def processes(self) -> list[int]:
        """Process ids of the other ranks."""
        return [other.pid for other in self._others]

    def _why(self, wait_s: float) -> str:
        """Which of the others have ended, or do so in `wait_s`: a connection ends before its process does."""
        ended = []
        for rank, other in enumerate(self._others, start=1):
            with suppress(subprocess.TimeoutExpired):
                ended.append(f"rank {rank} ended with {other.wait(timeout=wait_s)}")
        return ", ".join(ended)

    def _stop(self) -> None:
        for other in self._others:
            other.kill()
            other.wait(timeout=ENDS_S)
        self._others = []

    def close(self) -> None:
        """End the others."""
        super().close()
        for other in self._others:
            with suppress(subprocess.TimeoutExpired):
                other.wait(timeout=ENDS_S)
        self._stop()


class LaunchedRanks(Ranks):
    """Ranks that ``torchrun`` has started, on one machine or several."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        super().__init__(int(environment["WORLD_SIZE"]))
        self.rank = int(environment["RANK"])
        self._met: Group | None = None

    def _formed(self) -> Group:
        if self._met is not None:
            raise RankLost(
                "a rank was lost, and ranks that torchrun has started come together once only, so nothing"
                " more is trained",
                hint="start the node again; torchrun --max-restarts does so by itself",
            )
        store: Store
        store, rank, size = next(rendezvous("env://"))
        self._met = Group(store, rank, size)
        return self._met

    def serve(self) -> None:
        """Do a later rank's part until the first one ends."""
        serve(self.join())


def launched() -> LaunchedRanks | None:
    """The ranks of ``torchrun``, if it has started this process and others."""
    size = os.environ.get("WORLD_SIZE", "1")
    return LaunchedRanks() if "RANK" in os.environ and size != "1" else None


def _here(rank: int) -> str:
    return f"here/{rank}"


def _rank(port: int, size: int, threads: int, rank: int) -> None:
    """One of LocalRanks' processes."""
    torch.set_num_threads(threads)
    store = TCPStore(LOCAL, port, is_master=False)
    store.set(_here(rank), "")
    serve(Group(store, rank, size, LOCAL))


if __name__ == "__main__":
    _rank(*map(int, sys.argv[1:]))

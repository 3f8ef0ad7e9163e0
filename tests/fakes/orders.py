"""Orders that try a pool: they wait, die, run out of memory or lose their device."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from assay.compute.orders import Bench, Order


@dataclass(frozen=True)
class Echo(Order[str]):
    """Gives its text; `note` is a file to which it is appended when it runs."""

    text: str
    note: Path | None = None

    def run(self, bench: Bench) -> str:
        if self.note is not None:
            with self.note.open("a") as file:
                file.write(self.text + "\n")
        return self.text


@dataclass(frozen=True)
class Steps(Order[int]):
    """So many steps of so many seconds, each told; touches `begun` first."""

    count: int
    seconds: float
    begun: Path | None = None

    def run(self, bench: Bench) -> int:
        if self.begun is not None:
            self.begun.touch()
        for done in range(self.count):
            bench.progress(done, self.count)
            time.sleep(self.seconds)
        bench.progress(self.count, self.count)
        return self.count


@dataclass(frozen=True)
class Stuck(Order[None]):
    """Tells nothing for a minute."""

    begun: Path

    def run(self, bench: Bench) -> None:
        self.begun.touch()
        time.sleep(60)


@dataclass(frozen=True)
class Die(Order[str]):
    """Kills its worker the first `times` times; `note` counts them."""

    note: Path
    times: int

    def run(self, bench: Bench) -> str:
        tried = len(self.note.read_bytes()) if self.note.exists() else 0
        if tried < self.times:
            with self.note.open("ab") as file:
                file.write(b".")
            os.kill(os.getpid(), signal.SIGKILL)
        return f"after {tried}"


@dataclass(frozen=True)
class Raise(Order[None]):
    """Raises."""

    error: Exception

    def run(self, bench: Bench) -> None:
        raise self.error


@dataclass(frozen=True)
class Allocate(Order[int]):
    """Takes so many bytes, and leaves something in the cache before."""

    size: int

    def run(self, bench: Bench) -> int:
        if self.size == 0:
            return len(bench.cache)
        bench.cache["left"] = b"something"
        raise MemoryError(f"{self.size} bytes")


@dataclass(frozen=True)
class Pid(Order[int]):
    """The worker's process."""

    mark: str = ""

    @property
    def affinity(self) -> str:
        return self.mark

    def run(self, bench: Bench) -> int:
        time.sleep(0.05)
        return os.getpid()


@dataclass(frozen=True)
class Environment(Order[list[str]]):
    """Names of its environment, and modules that it has loaded."""

    def run(self, bench: Bench) -> list[str]:
        return list(os.environ)


@dataclass(frozen=True)
class Large(Order[int]):
    """An order of many bytes."""

    data: bytes

    def run(self, bench: Bench) -> int:
        return len(self.data)


@dataclass(frozen=True)
class Unsendable(Order[object]):
    """A result that cannot be pickled."""

    def run(self, bench: Bench) -> object:
        return threading.Lock()

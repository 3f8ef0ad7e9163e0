"""Orders that try a pool: they wait, die, run out of memory, lose their device, or call their node."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from assay.compute.orders import Cancelled, Order, WorkerContext
from assay.numerics import slow_paths


@dataclass(frozen=True)
class Echo(Order[str]):
    """Gives its text; `note` is a file to which it is appended when it runs."""

    text: str
    note: Path | None = None

    def run(self, context: WorkerContext) -> str:
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

    def run(self, context: WorkerContext) -> int:
        if self.begun is not None:
            self.begun.touch()
        for done in range(self.count):
            context.progress(done, self.count)
            time.sleep(self.seconds)
        context.progress(self.count, self.count)
        return self.count


@dataclass(frozen=True)
class Slow(Order[None]):
    """Finds out reasons for its worker to be slow."""

    reasons: tuple[str, ...]

    def run(self, context: WorkerContext) -> None:
        for why in self.reasons:
            slow_paths.note(logging.getLogger(__name__), why)


@dataclass(frozen=True)
class Leaves(Order[None]):
    """Steps until it is cancelled; what it then leaves takes a moment."""

    left: Path
    begun: Path

    def run(self, context: WorkerContext) -> None:
        try:
            while True:
                context.progress(0, 1)
                self.begun.touch()
                time.sleep(0.01)
        except Cancelled:
            time.sleep(0.2)
            self.left.touch()
            raise


@dataclass(frozen=True)
class Stuck(Order[None]):
    """Tells nothing for a minute."""

    begun: Path

    def run(self, context: WorkerContext) -> None:
        self.begun.touch()
        time.sleep(60)


@dataclass(frozen=True)
class Die(Order[str]):
    """Kills its worker the first `times` times; `note` counts them."""

    note: Path
    times: int

    def run(self, context: WorkerContext) -> str:
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

    def run(self, context: WorkerContext) -> None:
        raise self.error


@dataclass(frozen=True)
class Allocate(Order[int]):
    """Takes so many bytes, and leaves something in the cache before."""

    size: int

    def run(self, context: WorkerContext) -> int:
        if self.size == 0:
            return len(context.cache)
        context.cache["left"] = b"something"
        raise MemoryError(f"{self.size} bytes")


@dataclass(frozen=True)
class Pid(Order[int]):
    """The worker's process."""

    mark: str = ""

    @property
    def affinity(self) -> str:
        return self.mark

    def run(self, context: WorkerContext) -> int:
        time.sleep(0.05)
        return os.getpid()


@dataclass(frozen=True)
class Environment(Order[list[str]]):
    """Names of its environment, and modules that it has loaded."""

    def run(self, context: WorkerContext) -> list[str]:
        return list(os.environ)


@dataclass(frozen=True)
class Large(Order[int]):
    """An order of many bytes."""

    data: bytes

    def run(self, context: WorkerContext) -> int:
        return len(self.data)


@dataclass(frozen=True)
class Unsendable(Order[object]):
    """A result that cannot be pickled."""

    def run(self, context: WorkerContext) -> object:
        return threading.Lock()


class Unread:
    """An object that raises when it is unpickled."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


@dataclass(frozen=True)
class Unreadable(Order[object]):
    """A result that can be sent and not be read."""

    def run(self, context: WorkerContext) -> object:
        return Unread()


@dataclass(frozen=True)
class Device(Order[str]):
    """Names the device that it ran on; `on`: the one that it is for."""

    on: str

    @property
    def device(self) -> str:
        return self.on

    def run(self, context: WorkerContext) -> str:
        return context.config.device


@dataclass(frozen=True)
class Remember(Order[int]):
    """How often it has run in its worker's process."""

    def run(self, context: WorkerContext) -> int:
        context.cache["times"] = context.cache.get("times", 0) + 1
        return int(context.cache["times"])


def called(context: WorkerContext, whose: str, name: str, arguments: tuple[Any, ...]) -> Any:
    """Results of the node's market, blocks or books."""
    return getattr(getattr(context.desk, whose), name)(*arguments)


@dataclass(frozen=True)
class Call(Order[Any]):
    """Calls its node."""

    whose: str
    what: str
    arguments: tuple[Any, ...] = ()

    def run(self, context: WorkerContext) -> Any:
        return called(context, self.whose, self.what, self.arguments)


@dataclass(frozen=True)
class PatientCall(Call):
    """The same, in an order whose fetches may take as long as they do."""

    held = False


@dataclass(frozen=True)
class CallAnything(Order[Any]):
    """Calls its node in spite of what the worker's own side refuses."""

    whose: str
    what: str

    def run(self, context: WorkerContext) -> Any:
        desk: Any = context.desk
        return desk.books._call(self.whose, self.what, ())


@dataclass(frozen=True)
class CallsTogether(Order[list[Any]]):
    """The same call from several threads at once."""

    call: Call
    threads: int

    def run(self, context: WorkerContext) -> list[Any]:
        with ThreadPoolExecutor(self.threads) as threads:
            return [
                one.result() for one in [threads.submit(self.call.run, context) for _ in range(self.threads)]
            ]


@dataclass(frozen=True)
class CallLater(Order[None]):
    """Leaves a thread behind that calls its node once `go` exists, and writes down the outcome."""

    go: Path
    call: Call

    def run(self, context: WorkerContext) -> None:
        threading.Thread(target=self._later, args=(context,), daemon=True).start()

    def _later(self, context: WorkerContext) -> None:
        while not self.go.exists():
            time.sleep(0.01)
        called(context, "books", "told", ("late", {"found": self.call.run(context)}))


@dataclass(frozen=True)
class TellForEver(Order[None]):
    """Tells its node one number after the other."""

    def run(self, context: WorkerContext) -> None:
        for number in count():
            called(context, "books", "told", ("number", {"number": number, "pid": os.getpid()}))
            context.progress(number, 0)


@dataclass(frozen=True)
class On(Order[int]):
    """The process that runs it, which is that of a device's worker."""

    on: str

    @property
    def device(self) -> str:
        return self.on

    def run(self, context: WorkerContext) -> int:
        assert context.config.device == self.on
        return os.getpid()

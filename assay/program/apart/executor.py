"""Computing plain steps in a process of its own, which has Python's lock to itself.

Contract: an `ApartExecutor` is an `Executor` with the same bits; a run of plain steps is ordered from one
process, which all executors of an `Apart` share, and which has no keys, chain or files but compiled forms.
States are in memory that both map (``program.apart.memory``); one that the process gave last is not sent
again, and a slot that no step changed is the same tensor after them. Observing, patching or stopping early is
done here. A process that ends is `ComputingLost`, and the next run starts another; what it raises or logs is
raised and logged here. It ends when this one does, however that ends. Runs may be ordered from several
threads, one at a time; `close` ends one that is under way.

Source: docs/decisions/0066-computing-apart.md.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection, Pipe

import torch
from torch import Tensor

from assay.program.apart import memory
from assay.program.apart.messages import Done, Failed, Forget, Prepare, Run, receive, send
from assay.program.compiled.process import command
from assay.program.excerpt import chooses_records, steps_of
from assay.program.execute import Executor, StepContext
from assay.program.isa import Program, encode
from assay.program.kernels import FAST, TORCH_DTYPES
from assay.program.state import BACKGROUND_BYTES
from assay.protocol.errors import Ask, Retry

Make = Callable[[Program], Executor]
"""Makes the executor that the process computes with; to be pickled."""

MOST_LOSSES = 3
"""Ends one after the other that are tried again before a person is asked."""
_ENDS_S = 10
_DIES_S = 1
"""A line ends before its process does."""


class ComputingLost(Retry):
    """The process that computes has ended; nothing of the run is kept."""

    code = "computing-lost"


class CannotCompute(Ask):
    """The process that computes ends each time; it is tried again, but a person should look."""

    code = "cannot-compute"


def fit(program: Program, least_bytes: int = BACKGROUND_BYTES) -> bool:
    """Whether a process of its own serves: what it takes to order a step is little beside a large one, and
    all records that steps read are known before."""
    return memory.available() and program.state_bytes >= least_bytes and not chooses_records(program)


class Apart:
    """The process, once it is needed."""

    def __init__(self) -> None:
        self._turn, self._starting = threading.Lock(), threading.Lock()
        self._closed = False
        self._losses = 0
        """How often it has ended since a run was over."""
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self._numbers = count()
        self._prepared: set[int] = set()
        self._forgotten: list[int] = []
        self._user = -1
        self._latest: list[Tensor] = []
        """The state that the process has, of that user."""

    @property
    def process(self) -> int | None:
        """Its id; None where none runs."""
        return None if self._process is None else self._process.pid

    def enter(self, executor: ApartExecutor) -> int:
        """The number of a new executor, whose part of the process's memory goes when it does."""
        number = next(self._numbers)
        weakref.finalize(executor, self._forgotten.append, number)
        return number

    def run(
        self, executor: ApartExecutor, state: Sequence[Tensor], context: StepContext, steps: int
    ) -> list[Tensor]:
        """The state after these steps; computed here while the process is busy, where the executor does not
        wait. Raises ComputingLost or CannotCompute, OSError where there is no memory to share, and what the
        process raised."""
        if not self._turn.acquire(blocking=executor.waits):
            return executor.run_here(state, context, steps)
        try:
            return self._run(executor, state, context, steps)
        except BaseException:  # the process may be at another place now
            self._user, self._latest = -1, []
            raise
        finally:
            self._turn.release()

    def _run(
        self, executor: ApartExecutor, state: Sequence[Tensor], context: StepContext, steps: int
    ) -> list[Tensor]:
        number, program = executor.number, executor.program
        known = self._line is not None and self._user == number
        known = known and all(a is b for a, b in zip(state, self._latest, strict=True))
        with memory.held([] if known else memory.placed(state)) as given:
            order = Run(number, steps_of(program, context, steps), known, len(given))
            answer, taken = self._answered(executor, order, given)
        for logged in answer.logged:
            logging.getLogger(logged.name).log(logged.level, "%s", logged.text)
        if isinstance(answer, Failed):
            raise answer.error
        with memory.held(taken):
            nodes = [n for n, same in zip(program.state, answer.same, strict=True) if same is None]
            fresh = iter(memory.found(taken, [(TORCH_DTYPES[n.dtype], n.shape) for n in nodes]))
        after = [next(fresh) if same is None else state[same] for same in answer.same]
        self._user, self._latest, self._losses = number, list(after), 0
        return after

    def _answered(
        self, executor: ApartExecutor, order: Run, given: Sequence[int]
    ) -> tuple[Done | Failed, list[int]]:
        """What the process answers, and descriptors of what it gives."""
        line = self._started()
        try:
            self._tidy(line)
            if order.number not in self._prepared:
                line.send(Prepare(order.number, encode(executor.program), executor.make))
                self._prepared.add(order.number)
            line.send(order)
            send(line, given)
            answer: Done | Failed = line.recv()
            return answer, receive(line, answer.descriptors) if isinstance(answer, Done) else []
        except (EOFError, OSError) as error:
            raise self._lost() from error
        except BaseException:  # what comes next on the line is not known
            self._end()
            raise

    def _tidy(self, line: Connection) -> None:
        """Let the process forget what nobody will order any more."""
        gone = {self._forgotten.pop() for _ in range(len(self._forgotten))} & self._prepared
        if gone:
            line.send(Forget(tuple(gone)))
            self._prepared -= gone
        if self._user in gone:
            self._user, self._latest = -1, []

    def _started(self) -> Connection:
        with self._starting:
            if self._closed:
                raise ComputingLost("this node ends, and computes nothing more", hint="start it again")
            if self._line is None:
                line, theirs = Pipe()
                given = str(theirs.fileno()), str(torch.get_num_threads())
                with theirs:
                    self._process = subprocess.Popen(
                        command("assay.program.apart.worker", *given),
                        stdin=subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        start_new_session=True,
                    )
                self._line = line
            return self._line

    def _lost(self) -> ComputingLost | CannotCompute:
        process = self._process
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_DIES_S)
        self._end()
        self._losses += 1
        status = None if process is None else process.returncode
        ended = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        said = f"the process that computes ended with {ended}"
        hint = "see whether this machine has memory for the job, and what the node's log says"
        if self._losses < MOST_LOSSES or self._closed:
            return ComputingLost(f"{said}; the run that it was at is computed anew", hint=hint)
        return CannotCompute(
            f"{said}, {self._losses} times one after the other; it is tried again", hint=hint
        )

    def close(self) -> None:
        """End the process, for good, whatever it is at."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        with self._starting:
            line, process, self._line, self._process = self._line, self._process, None, None
        self._prepared, self._user, self._latest = set(), -1, []
        if process is not None:
            process.terminate()  # whoever waits for it sees its end
            try:
                process.wait(timeout=_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if line is not None:
            line.close()


class ApartExecutor(Executor):
    """A validated program, computed by the process of an `Apart` with the executor that `make` makes of it
    there. One that does not wait for others' runs is computed here meanwhile."""

    def __init__(self, program: Program, make: Make, apart: Apart, *, waits: bool = True) -> None:
        super().__init__(program, "cpu", FAST)
        self.make, self.waits, self._apart = make, waits, apart
        self.number = apart.enter(self)

    def plain(self, state: Sequence[Tensor], context: StepContext) -> list[Tensor]:
        """See `Executor.plain`."""
        return self.run(state, context, 1)

    def run_here(self, state: Sequence[Tensor], context: StepContext, steps: int) -> list[Tensor]:
        """The same as `run`, by this process."""
        for i in range(steps):
            state = self.interpreted(state, replace(context, step=context.step + i))
        return list(state)

    def run(self, state: Sequence[Tensor], context: StepContext, steps: int) -> list[Tensor]:
        """The state after `steps` steps; see `Executor.run`. Raises ComputingLost."""
        self.check_state(state)
        return self._apart.run(self, state, context, steps) if steps else list(state)

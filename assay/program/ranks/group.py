"""Processes that compute one step together, and what they tell each other (gloo).

Contract: a `Group` is one rank's end of it. `largest`, `total` and `joined` give every rank the same bits,
each rank calling the same in the same order; `tell` and `hear` carry the first rank's orders to the others,
which may wait for them as long as they like. A rank that has gone is met as `RankLost` at the next call, a
rank that answers nothing within `ANSWER_S` too: nothing is computed from what others did not send. One thread
at a time. Not guaranteed: that ranks are who they say; they are the operator's own processes, on a network of
his own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from threading import Thread
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroup, ReduceOp, Store, Work
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BroadcastOptions,
    ProcessGroupGloo,
)

from assay.protocol.errors import Retry

ANSWER_S = 600
"""How long a rank waits for others within a step: a slow one may take this much longer than it."""
ORDERS_S = 10 * 365 * 24 * 3600
"""How long a later rank waits for orders."""
LOOK_S = 1.0
"""How often a rank that waits looks whether the others are there: gloo does not notice each that ends."""
ENDED_S = 1.0
"""How long after its connection a process may end."""


class RankLost(Retry):
    """A process that computes a part of each step has gone; the step's result is not known."""

    code = "rank-lost"


class Group:
    """One rank of `size`; the first, 0, gives the orders."""

    def __init__(
        self, store: Store, rank: int, size: int, host: str = "", answer_s: float = ANSWER_S
    ) -> None:
        """Meet the others at `store`, by the network interface that has the address `host`, or the usual one.
        Raises RankLost unless all come in `answer_s`."""
        self.rank, self.size = rank, size
        self.store = store
        self.why_lost: Callable[[float], str] = lambda wait_s: ""
        """Which of the others have ended, or do so in so many seconds, as far as it is known; else empty."""
        self.broken = False
        """Whether the ranks may be at different places, so that nothing more can be computed together."""
        self.user: object = None
        """Whose program the other ranks have at hand."""
        device = (
            ProcessGroupGloo.create_device(hostname=host)
            if host
            else ProcessGroupGloo.create_default_device()
        )
        try:
            self._work = _process_group(store, "work", rank, size, device, answer_s)
            self._orders = _process_group(store, "orders", rank, size, device, ORDERS_S if rank else answer_s)
        except RuntimeError as error:
            raise self._lost(error) from error

    def largest(self, x: Tensor) -> Tensor:
        """Element-wise maximum over all ranks, i32."""
        return self._reduced(x.clone(memory_format=torch.contiguous_format), ReduceOp.MAX)

    def total(self, x: Tensor) -> Tensor:
        """Element-wise sum over all ranks, f64 integers below 2^53: exact in whatever order. Overwrites x."""
        return self._reduced(x.contiguous(), ReduceOp.SUM)

    def _reduced(self, x: Tensor, operation: Any) -> Tensor:
        options = AllreduceOptions()
        options.reduceOp = operation
        self._wait(lambda: self._work.allreduce([x], options))
        return x

    def total_of_mine(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """This rank's rows of `total`, where each rank's part of x, along the first dimension, is of these
        sizes."""
        own = sizes[self.rank]
        parts = x.new_empty((own * self.size, *x.shape[1:]))
        self._wait(
            lambda: self._work.alltoall_base(
                parts, x.contiguous(), [own] * self.size, list(sizes), AllToAllOptions()
            )
        )
        return parts.view(self.size, own, *x.shape[1:]).sum(0)

    def mine(self, size: int) -> tuple[int, list[int]]:
        """Where this rank's part of so many rows begins, and how many rows each rank has."""
        cuts = [size * rank // self.size for rank in range(self.size + 1)]
        return cuts[self.rank], [b - a for a, b in pairwise(cuts)]

    def joined(self, x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        """All ranks' tensors, any dtype, one after another along `dim`, where theirs are of these sizes."""
        shapes = [(*x.shape[:dim], size, *x.shape[dim + 1 :]) for size in sizes]
        counts = [torch.Size(shape).numel() * x.element_size() for shape in shapes]
        mine = torch.zeros(max(counts), dtype=torch.uint8)
        mine[: counts[self.rank]] = _bytes(x)
        parts = [torch.empty_like(mine) for _ in sizes]
        self._wait(lambda: self._work.allgather([parts], [mine], AllgatherOptions()))
        whole = [
            part[:count].view(x.dtype).view(shape)
            for part, count, shape in zip(parts, counts, shapes, strict=True)
        ]
        return torch.cat(whole, dim)

    def leave(self) -> None:
        """End this rank's connections: the others lose it."""
        self.broken = True
        del self._work, self._orders

    def tell(self, x: Tensor) -> None:
        """Give all others a tensor, of a shape and dtype that they know."""
        self._broadcast(_bytes(x))

    def hear(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """What the first rank tells, waiting for it."""
        made = torch.empty(tuple(shape), dtype=dtype)
        self._broadcast(_bytes(made))
        return made

    def _broadcast(self, data: Tensor) -> None:
        options = BroadcastOptions()
        options.rootRank = 0
        self._wait(lambda: self._orders.broadcast([data], options))

    def _wait(self, call: Callable[[], Work]) -> None:
        try:
            work = call()
            while not _done(work, LOOK_S):
                if ended := self.why_lost(0.0):
                    held = work, self._work, self._orders
                    Thread(target=_outlast, args=held, name="lost-rank", daemon=True).start()
                    raise RuntimeError(ended)
        except RuntimeError as error:
            raise self._lost(error) from error

    def _lost(self, error: RuntimeError) -> RankLost:
        self.broken = True
        said = self.why_lost(ENDED_S) or str(error).strip().partition("\n")[0]
        return RankLost(
            f"rank {self.rank} of {self.size} has lost another ({said}), so the step was not computed and"
            " nothing of it is committed",
            hint="see why that process ended, such as for want of memory; the segment is trained again",
        )


def _done(work: Work, wait_s: float) -> bool:
    """Whether a call is done in so many seconds. Raises RuntimeError where it failed."""
    try:
        work.wait(timedelta(seconds=wait_s))
    except RuntimeError:
        if not work.is_completed():
            return False
        work.wait()
    return True


def _outlast(work: Work, *groups: ProcessGroup) -> None:
    """Hold process groups until a call that nobody answers has timed out: letting go of them waits for it."""
    with suppress(RuntimeError):
        work.wait()


def _bytes(x: Tensor) -> Tensor:
    """A tensor's memory as u8 [bytes], copied if its elements do not lie in order."""
    return x.contiguous().as_strided((x.numel(),), (1,)).view(torch.uint8)


def _process_group(
    store: Store, name: str, rank: int, size: int, device: object, timeout_s: float
) -> ProcessGroup:
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [device]
    options._timeout = timedelta(seconds=timeout_s)
    made: Any = ProcessGroupGloo(PrefixStore(name, store), rank, size, options)
    return made

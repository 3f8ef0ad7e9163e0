"""Base types of the orders that a node gives to its workers.

Contract: an order is a frozen dataclass that names everything it depends on, so any worker gives the same
bits. It is pickled between processes of one operator and one version, and never read from a peer. This module
does not import PyTorch: an order's `run` imports what it needs in the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from assay.compute.node_calls import NodeCalls
from assay.protocol.errors import Ask, Retry
from assay.protocol.types import ZERO_ADDRESS, Address

R = TypeVar("R")


class Priority(IntEnum):
    """Priority of a waiting order; free workers take the lowest value first."""

    GAME = 0
    """A move of a game or an answer to a demand: being late loses a stake."""
    VOTE = 1
    TRAINING = 2
    AHEAD = 3
    """Speculative training."""


class WorkerLost(Retry):
    """All workers that ran the order died; there is no result."""

    code = "worker-lost"


class Cancelled(Retry):
    """The order was cancelled; there is no result."""

    code = "order-cancelled"


class DeviceLost(Retry):
    """A worker's device no longer answers. Raised in the worker, which then exits."""

    code = "device-lost"


class OutOfMemory(Ask):
    """The device has too little memory for an order."""

    code = "out-of-memory"


@dataclass(frozen=True)
class WorkerConfig:
    """Configuration of a worker. `threads` of 0: PyTorch's default."""

    device: str = "cpu"
    threads: int = 0
    executor: str = "auto"
    store: Path | None = None
    """Folder of the node's block store, if the worker shares its machine."""
    forms: Path | None = None
    """Folder of compiled programs."""
    spill: Path | None = None
    """Folder on a disk for tensors of streamed steps; None: that of temporary files."""
    brief: bool = False
    """The node exits soon: existing compiled forms are used, and none is made."""
    me: Address = ZERO_ADDRESS
    """The node's account."""


@dataclass
class WorkerContext:
    """Environment of an order in its worker."""

    config: WorkerConfig
    progress: Callable[[int, int], None] = lambda done, total: None
    """Called between steps with the steps done and in all. Raises Cancelled."""
    crew: Mapping[str, Any] = field(default_factory=dict)
    """What a crew's member measures (``compute.meter``), told with the progress."""
    cache: dict[str, Any] = field(default_factory=dict)
    """Objects that orders leave for later ones, by name; cleared when memory runs out."""
    desk: NodeCalls | None = None
    """The node that gave the order; None if its orders need nothing from it."""


class Order(Generic[R]):
    """Base class of all orders."""

    held = True
    """True if its fetches may take at most `node_calls.HOLD_S` in total."""

    @property
    def name(self) -> str:
        """Name to show."""
        return type(self).__name__

    @property
    def device(self) -> str:
        """Device that the order needs; empty: any."""
        return ""

    @property
    def affinity(self) -> str:
        """Affinity key: the worker that ran the last order with this key runs the next one faster; empty:
        none."""
        return ""

    def run(self, context: WorkerContext) -> R:
        """Executes the order in a worker."""
        raise NotImplementedError

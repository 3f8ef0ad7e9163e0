"""What a node asks of its workers.

Contract: an order is a frozen dataclass that names all that it depends on, so any worker gives the same bits
for it. It is pickled between processes of one operator in one version, and never read from a peer. This
module needs no PyTorch: what an order's `run` needs is imported in the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from assay.compute.home import Desk
from assay.protocol.errors import Ask, Retry
from assay.protocol.types import ZERO_ADDRESS, Address

R = TypeVar("R")


class Priority(IntEnum):
    """Which of the waiting orders a free worker takes first."""

    GAME = 0
    """A move of a game, or an answer to a demand: a stake is lost when it comes late."""
    VOTE = 1
    TRAINING = 2
    AHEAD = 3
    """Training that starts from a state that may not come."""


class WorkerLost(Retry):
    """The workers that ran an order have died, one after another; nothing of it is known."""

    code = "worker-lost"


class Cancelled(Retry):
    """The order was cancelled; nothing of it is kept."""

    code = "order-cancelled"


class DeviceLost(Retry):
    """A worker's device does not answer any more. Raised in the worker, which ends."""

    code = "device-lost"


class OutOfMemory(Ask):
    """The device has not enough memory for an order."""

    code = "out-of-memory"


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is started with. `threads` of 0: as many as PyTorch takes."""

    device: str = "cpu"
    threads: int = 0
    executor: str = "auto"
    store: Path | None = None
    """Folder of the node's block store, where the worker shares its machine."""
    forms: Path | None = None
    """Folder of compiled programs."""
    brief: bool = False
    """The node ends soon: compiled forms that are there are used, and none is made."""
    me: Address = ZERO_ADDRESS
    """The node's account."""


@dataclass
class Bench:
    """What an order finds in its worker."""

    config: WorkerConfig
    progress: Callable[[int, int], None] = lambda done, total: None
    """To be called between steps with steps done and steps in all. Raises Cancelled."""
    cache: dict[str, Any] = field(default_factory=dict)
    """What orders leave for later ones, by name; it is emptied when memory runs out."""
    desk: Desk | None = None
    """The node that orders; None where its orders ask nothing of it."""


class Order(Generic[R]):
    """Base of all orders."""

    held = True
    """Whether fetches for it may take `home.HOLD_S` together at most."""

    @property
    def name(self) -> str:
        """For people."""
        return type(self).__name__

    @property
    def device(self) -> str:
        """The device that it is for; empty: any."""
        return ""

    @property
    def affinity(self) -> str:
        """Orders of the same affinity run faster on the worker that ran the last of them; empty: on any."""
        return ""

    def run(self, bench: Bench) -> R:
        """Do it, in a worker."""
        raise NotImplementedError

"""Implements `protocol.ports.Clock` over a node.

Contract: time and number are of one block, the latest at the last read. Over a slow link a read is reused for
a few times its duration (``chain.eth.freshness``). Thread-safe.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from assay.chain.eth.freshness import Freshness
from assay.chain.eth.rpc import Rpc, get_block
from assay.protocol.errors import RpcUnreachable
from assay.protocol.types import Seconds

if TYPE_CHECKING:
    from web3.types import BlockData


class ChainClock:
    """Clock of the latest block; `stop` ends every wait."""

    def __init__(self, rpc: Rpc, max_age_s: float = 0.0) -> None:
        self._rpc = rpc
        self._freshness = Freshness(max_age_s)
        self._lock = threading.Lock()
        self._block: BlockData = {}
        self._stopped = threading.Event()

    def now(self) -> Seconds:
        """Timestamp of the latest block. Raises RpcUnreachable."""
        return Seconds(self._latest()["timestamp"])

    def block(self) -> int:
        """Number of the latest block. Raises RpcUnreachable."""
        return self._latest()["number"]

    def wait(self, seconds: float) -> bool:
        """Waits; False if the service was told to stop meanwhile."""
        return not self._stopped.wait(seconds)

    def stop(self) -> None:
        """Stops the service: this wait and all later ones return at once. Safe in a signal handler."""
        self._stopped.set()

    def _latest(self) -> BlockData:
        with self._lock:
            if self._freshness.stale():
                with self._freshness.asking():
                    block = get_block(self._rpc, "latest")
                    if block is None:
                        raise RpcUnreachable("the node has no latest block", hint="wait until it is synced")
                    self._block = block
            return self._block

"""Reads many views at one block in few requests, through the contract Lens.

Contract: `answers` gives each view's result at that block. A view that reverts is left out; a single read of
it gives the contract's error. A batch that the node refuses as too much gas, too large or too slow is split,
unless the node lacks the block. A batch without any answer halves the next batch size. Not guaranteed: that a
node that answers one half still knows the block for the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from assay.chain.eth.contract import Contract, WrongAnswer
from assay.chain.eth.rpc import BlockTag, RpcFailed
from assay.protocol.errors import Reverted, RpcUnreachable

View = tuple[Contract, str, tuple[Any, ...]]
"""Contract, view name and arguments."""
MOST_VIEWS = 500
"""Maximum views per request: about 10 million gas (nodes allow 50), and 0.4 MB of hex each way."""
_TRIES = 8
"""Consecutive successes after which the batch size doubles."""


class Lens:
    """The Lens contract and the batch size that the node accepts."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._size = MOST_VIEWS
        self._answered = 0

    @property
    def size(self) -> int:
        """Views per request at present."""
        return self._size

    def answers(self, views: Sequence[View], block: BlockTag) -> Iterator[tuple[int, Any]]:
        """Yields indices in `views` with their results, batch by batch, so that a later failure loses no
        result.

        Raises RpcFailed or Reverted if the node refuses a single view or lacks the block; RpcUnreachable,
        WrongAnswer.
        """
        done = 0
        while done < len(views):
            batch = views[done : done + self._size]
            try:
                found = self._ask(batch, block)
            except (RpcFailed, Reverted) as failure:
                if isinstance(failure, RpcFailed) and failure.lacks_block:
                    raise  # for half of it too
                if len(batch) == 1:
                    self._size = MOST_VIEWS  # it was not the size
                    raise
                self._halve(len(batch))
                continue
            except RpcUnreachable:
                self._halve(len(batch))
                raise
            self._grow()
            for place, ((contract, function, arguments), answer) in enumerate(zip(batch, found, strict=True)):
                if answer["success"]:
                    yield done + place, contract.decode(function, arguments, answer["data"])
            done += len(batch)

    def _ask(self, batch: Sequence[View], block: BlockTag) -> list[dict[str, Any]]:
        calls = [
            {"target": contract.address, "data": contract.encode(function, arguments)}
            for contract, function, arguments in batch
        ]
        found: list[dict[str, Any]] = self._contract.read("read", calls, block=block)
        if len(found) != len(batch):
            raise WrongAnswer(
                f"the node answered {len(found)} of {len(batch)} views; nothing was concluded",
                hint="use another node",
            )
        return found

    def _halve(self, size: int) -> None:
        self._size, self._answered = max(size // 2, 1), 0

    def _grow(self) -> None:
        self._answered += 1
        if self._answered == _TRIES:
            self._size, self._answered = min(2 * self._size, MOST_VIEWS), 0

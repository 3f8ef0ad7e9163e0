"""Many views of one block in few requests, through the contract Lens.

Contract: `answers` gives each view's answer as of that block. A view that reverts is left out: who needs it
asks for it by itself, and gets the contract's own error. A batch that the node refuses, as too much gas, too
large or too slow, is asked again in half, but not one of a block that it does not have. One that it does not
answer at all is half as large the next time.
Not guaranteed: that a node which answers one half still knows the block when it is asked for the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from assay.chain.eth.contract import Contract, WrongAnswer
from assay.chain.eth.rpc import BlockTag, RpcFailed
from assay.protocol.errors import Reverted, RpcUnreachable

View = tuple[Contract, str, tuple[Any, ...]]
"""A contract, and its view's name and arguments."""
MOST_VIEWS = 500
"""Views in one request: some 10 million gas where nodes allow 50, and 0.4 MB of hex each way."""
_TRIES = 8
"""Answers in a row after which a batch may be twice as large."""


class Lens:
    """The contract, and how many views the node has shown to answer at once."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._size = MOST_VIEWS
        self._answered = 0

    @property
    def size(self) -> int:
        """Views that go in one request at present."""
        return self._size

    def answers(self, views: Sequence[View], block: BlockTag) -> Iterator[tuple[int, Any]]:
        """Places in `views`, with the answers there; batch by batch, so that no answer is lost to a later
        failure.

        Raises RpcFailed or Reverted when the node refuses a single view, or does not have the block;
        RpcUnreachable, WrongAnswer.
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
                f"{len(batch)} views were asked and {len(found)} answered", hint="use another node"
            )
        return found

    def _halve(self, size: int) -> None:
        self._size, self._answered = max(size // 2, 1), 0

    def _grow(self) -> None:
        self._answered += 1
        if self._answered == _TRIES:
            self._size, self._answered = min(2 * self._size, MOST_VIEWS), 0

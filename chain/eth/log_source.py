"""A node's blocks and the logs of named contracts, as a follower asks for them.

Contract: a block and the logs of one that is named by its hash may be asked for ahead, since neither depends
on when it is asked; the logs of a range only once the block that it ends with is known, and whether blocks
`stand` is asked of the node now. What gives an answer raises RpcFailed and RpcUnreachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay.chain.eth.asked_ahead import AskedAhead, Question
from assay.chain.eth.rpc import Rpc, block_question, get_block
from assay.protocol.errors import RpcUnreachable


class LogSource:
    """Several questions at a time. Used from one thread at a time."""

    def __init__(self, rpc: Rpc, addresses: Sequence[str], at_once: int) -> None:
        self._rpc, self._addresses = AskedAhead(rpc, at_once), list(addresses)

    def latest(self) -> dict[str, Any]:
        """The latest block's header fields."""
        found = get_block(self._rpc, "latest")
        if found is None:
            raise RpcUnreachable("the node has no latest block", hint="wait until it is synced")
        return found

    def block(self, number: int) -> dict[str, Any] | None:
        """A block's header fields, or None when the node has no such block."""
        return get_block(self._rpc, number)

    def stand(self, blocks: Mapping[int, str]) -> bool:
        """Whether the node has these blocks, by number and hash, now."""
        found = self._rpc.together([block_question(number) for number in blocks])
        pairs = zip(found, blocks.values(), strict=True)
        return all(each is not None and each["hash"] == known for each, known in pairs)

    def logs(self, start: int, end: int) -> list[dict[str, Any]]:
        """Those of a range of blocks."""
        asked = {"fromBlock": hex(start), "toBlock": hex(end), "address": self._addresses}
        found: list[dict[str, Any]] = self._rpc.request("eth_getLogs", [asked])
        return found

    def logs_of(self, block_hash: str) -> list[dict[str, Any]]:
        """Those of one block. Raises RpcFailed where the node does not have it, or takes no hashes."""
        found: list[dict[str, Any]] = self._rpc.request(*self._named(block_hash))
        return found

    def begin_blocks(self, numbers: Iterable[int]) -> None:
        """`block` will be asked for these."""
        self._rpc.begin(map(block_question, numbers))

    def begin_logs(self, hashes: Iterable[str]) -> None:
        """`logs_of` will be asked for these."""
        self._rpc.begin(map(self._named, hashes))

    def drop(self) -> None:
        """Forget what was begun and not asked for: it may be of another time."""
        self._rpc.drop()

    def close(self) -> None:
        """Ask nothing more."""
        self._rpc.close()

    def _named(self, block_hash: str) -> Question:
        return "eth_getLogs", [{"blockHash": block_hash, "address": self._addresses}]

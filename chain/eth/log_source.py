"""Reads blocks and logs of named contracts from a node, for an event follower.

Contract: blocks, and logs of a block named by its hash, may be prefetched, since they do not depend on the
time. Logs of a range are only read once the block that ends it is known, and `stand` always asks the node
now. If a block's header has the block's hash, its Bloom filter can prove that it has no log of these
contracts; then nothing is read. The end of a range's logs is confirmed several times, because a node may not
have the whole range yet. Reads raise RpcFailed and RpcUnreachable. Source: the Yellow Paper, 4.4.1 (the Bloom
filter M).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eth_utils.crypto import keccak

from assay.chain.eth.concurrent_requests import PrefetchingRpc, Question
from assay.chain.eth.headers import encode_header
from assay.chain.eth.rpc import Rpc
from assay.protocol.errors import RpcUnreachable

WITNESSES = 2
"""Number of empty answers that confirm the end of a range's logs."""


class LogSource:
    """Concurrent reads of blocks and logs. For one thread at a time."""

    def __init__(self, rpc: Rpc, addresses: Sequence[str], at_once: int) -> None:
        self._rpc, self._addresses = PrefetchingRpc(rpc, at_once), list(addresses)
        self._bits = [_bits(bytes.fromhex(address[2:])) for address in addresses]

    def latest(self) -> dict[str, Any]:
        """Header fields of the latest block."""
        found = self._rpc.request(*_block("latest"))
        if found is None:
            raise RpcUnreachable("the node has no latest block", hint="wait until it is synced")
        return dict(found)

    def block(self, number: int) -> dict[str, Any] | None:
        """Header fields of a block; None if the node does not have it."""
        found: dict[str, Any] | None = self._rpc.request(*_block(hex(number)))
        return found

    def stand(self, blocks: Mapping[int, str]) -> bool:
        """True if the node has these blocks, by number and hash, now."""
        found = self._rpc.together([_block(hex(number)) for number in blocks])
        pairs = zip(found, blocks.values(), strict=True)
        return all(each is not None and each["hash"] == known for each, known in pairs)

    def logs(self, start: int, end: int) -> list[list[dict[str, Any]]]:
        """Logs of a range of blocks, in the parts in which they arrived.

        It asks for logs after the last one until `WITNESSES` answers in a row are empty.
        """
        parts: list[list[dict[str, Any]]] = [self._rpc.request(*self._between(start, end))]
        while (start := max((_number(log) for log in parts[-1]), default=start - 1) + 1) <= end:
            more = max(self._rpc.together([self._between(start, end)] * WITNESSES), key=len)
            if not more:
                break
            parts.append(more)
        return parts

    def logs_of(self, block: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Logs of one block. Raises RpcFailed if the node lacks it or does not accept hashes."""
        if self._is_silent(block):
            return []
        found: list[dict[str, Any]] = self._rpc.request(*self._named(block["hash"]))
        return found

    def _is_silent(self, block: Mapping[str, Any]) -> bool:
        """True if the block's Bloom filter proves that it has no log of these contracts."""
        try:
            bloom = int(block["logsBloom"], 16)
            if any(bits & bloom == bits for bits in self._bits):
                return False
            return "0x" + keccak(encode_header(dict(block))).hex() == block["hash"]
        except (KeyError, ValueError, TypeError):
            return False

    def begin_blocks(self, numbers: Iterable[int]) -> None:
        """Prefetches these blocks."""
        self._rpc.begin(_block(hex(number)) for number in numbers)

    def begin_logs(self, blocks: Iterable[Mapping[str, Any]]) -> None:
        """Prefetches the logs of these blocks."""
        self._rpc.begin(self._named(block["hash"]) for block in blocks if not self._is_silent(block))

    def drop(self) -> None:
        """Discards unused prefetches, which may be outdated."""
        self._rpc.drop()

    def close(self) -> None:
        """Sends no further requests."""
        self._rpc.close()

    def _between(self, start: int, end: int) -> Question:
        return "eth_getLogs", [{"fromBlock": hex(start), "toBlock": hex(end), "address": self._addresses}]

    def _named(self, block_hash: str) -> Question:
        return "eth_getLogs", [{"blockHash": block_hash, "address": self._addresses}]


def _block(tag: str) -> Question:
    return "eth_getBlockByNumber", [tag, False]


def _number(log: Mapping[str, Any]) -> int:
    return int(log["blockNumber"], 16)


def _bits(address: bytes) -> int:
    """The three bits that a log of this contract sets in its block's Bloom filter."""
    digest = keccak(address)
    return sum({1 << (int.from_bytes(digest[at : at + 2], "big") & 2047) for at in (0, 2, 4)})

"""A node's blocks and the logs of named contracts, as a follower asks for them.

Contract: a block and the logs of one that is named by its hash may be asked for ahead, since neither depends
on when it is asked; the logs of a range only once the block that it ends with is known, and whether blocks
`stand` is asked of the node now. A block whose header has the block's hash proves by its Bloom filter that it
has no log of these contracts, where that is so: then nothing is asked. Of a range it is not believed at once
that nothing follows on its last log: who is asked may not have the range's end, and shows what it has. What
gives an answer raises RpcFailed and RpcUnreachable.
Source: the Yellow Paper, 4.4.1 (the Bloom filter M).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eth_utils.crypto import keccak

from assay.chain.eth.asked_ahead import AskedAhead, Question
from assay.chain.eth.headers import encode_header
from assay.chain.eth.rpc import Rpc
from assay.protocol.errors import RpcUnreachable

WITNESSES = 2
"""Answers that have to agree with the first one that nothing more is in a range."""


class LogSource:
    """Several questions at a time. Used from one thread at a time."""

    def __init__(self, rpc: Rpc, addresses: Sequence[str], at_once: int) -> None:
        self._rpc, self._addresses = AskedAhead(rpc, at_once), list(addresses)
        self._bits = [_bits(bytes.fromhex(address[2:])) for address in addresses]

    def latest(self) -> dict[str, Any]:
        """The latest block's header fields."""
        found = self._rpc.request(*_block("latest"))
        if found is None:
            raise RpcUnreachable("the node has no latest block", hint="wait until it is synced")
        return dict(found)

    def block(self, number: int) -> dict[str, Any] | None:
        """A block's header fields, or None when the node has no such block."""
        found: dict[str, Any] | None = self._rpc.request(*_block(hex(number)))
        return found

    def stand(self, blocks: Mapping[int, str]) -> bool:
        """Whether the node has these blocks, by number and hash, now."""
        found = self._rpc.together([_block(hex(number)) for number in blocks])
        pairs = zip(found, blocks.values(), strict=True)
        return all(each is not None and each["hash"] == known for each, known in pairs)

    def logs(self, start: int, end: int) -> list[list[dict[str, Any]]]:
        """Those of a range of blocks, in the parts in which they came: what follows on the last one is asked
        for until `WITNESSES` answers in a row have shown nothing."""
        parts: list[list[dict[str, Any]]] = [self._rpc.request(*self._between(start, end))]
        while (start := max((_number(log) for log in parts[-1]), default=start - 1) + 1) <= end:
            more = max(self._rpc.together([self._between(start, end)] * WITNESSES), key=len)
            if not more:
                break
            parts.append(more)
        return parts

    def logs_of(self, block: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Those of one block. Raises RpcFailed where the node does not have it, or takes no hashes."""
        if self._is_silent(block):
            return []
        found: list[dict[str, Any]] = self._rpc.request(*self._named(block["hash"]))
        return found

    def _is_silent(self, block: Mapping[str, Any]) -> bool:
        """Whether a block proves that it has no log of these contracts."""
        try:
            bloom = int(block["logsBloom"], 16)
            if any(bits & bloom == bits for bits in self._bits):
                return False
            return "0x" + keccak(encode_header(dict(block))).hex() == block["hash"]
        except (KeyError, ValueError, TypeError):
            return False

    def begin_blocks(self, numbers: Iterable[int]) -> None:
        """`block` will be asked for these."""
        self._rpc.begin(_block(hex(number)) for number in numbers)

    def begin_logs(self, blocks: Iterable[Mapping[str, Any]]) -> None:
        """`logs_of` will be asked for these."""
        self._rpc.begin(self._named(block["hash"]) for block in blocks if not self._is_silent(block))

    def drop(self) -> None:
        """Forget what was begun and not asked for: it may be of another time."""
        self._rpc.drop()

    def close(self) -> None:
        """Ask nothing more."""
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

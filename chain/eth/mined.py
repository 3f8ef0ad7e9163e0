"""Whether what was mined is still there, and who took a nonce: what the sender believes of a chain that may
change.

Contract: `MinedBlocks.gone` gives every executed intent whose block has been replaced since it was last
looked at, however deep and however long ago that was, at the price of two requests where nothing has changed.
It needs no bound on the depth of a reorganisation: it remembers blocks under which all receipts were seen to
be mined, and starts from the highest of them that still stands. `taker` names the transaction that has a
nonce from the block that holds it, since that a node does not know a receipt proves nothing.
Not guaranteed: anything against a node that lies about its blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from assay.chain.eth.abi import checksummed
from assay.chain.eth.journal import Intent, Journal, Receipt
from assay.chain.eth.rpc import Rpc, RpcFailed, get_block, hash_of
from assay.protocol import bounded_json

_KEPT = 16
"""Blocks kept: the last ones, and older ones at growing distances."""
_WRITE_EVERY = 32
"""Blocks: an older block on disk costs a look at the receipts since, and no more."""


class MinedBlocks:
    """Blocks, latest last, under each of which every receipt of this account that the journal has of the
    block's height or below is mined. Kept in the journal."""

    def __init__(self, rpc: Rpc, journal: Journal, address: str) -> None:
        self._rpc, self._journal, self._address = rpc, journal, address
        self._fact = f"checkpoints/{address}"
        self._blocks: list[tuple[int, str]] = [
            (int(number), str(found))
            for number, found in bounded_json.loads(journal.fact(self._fact) or "[]")
        ]
        self._written = self._blocks[-1][0] if self._blocks else -1

    def settled(self, receipt: Receipt) -> None:
        """A receipt is about to be kept: blocks at its height or above it did not know of it."""
        kept = [block for block in self._blocks if block[0] < receipt.block_number]
        if len(kept) < len(self._blocks):
            self._blocks = kept
            self._write()

    def gone(self) -> Iterator[tuple[Intent, Receipt]]:
        """Executed intents whose block is no longer the chain's, oldest first; once all of them have been
        dealt with, the present head is kept. Raises RpcUnreachable."""
        head = get_block(self._rpc, "latest")
        if head is None or (self._blocks and self._blocks[-1][1] == hash_of(head)):
            return
        while self._blocks and not self._stands(*self._blocks[-1]):
            self._blocks.pop()
        base = self._blocks[-1][0] if self._blocks else -1
        if base < self._written:  # to begin there again, if this is cut off
            self._write()
        verdicts: dict[tuple[int, str], bool] = {}
        for intent in self._journal.executed(self._address, base + 1):
            receipt = intent.receipt
            if receipt is None:
                continue
            place = receipt.block_number, receipt.block_hash
            if place not in verdicts:
                verdicts[place] = self._stands(*place)
            if not verdicts[place]:
                yield intent, receipt
        self._blocks.append((head["number"], hash_of(head)))
        self._thin()
        if self._blocks[-1][0] >= self._written + _WRITE_EVERY:
            self._write()

    def _stands(self, number: int, known: str) -> bool:
        block = get_block(self._rpc, number)
        return block is not None and hash_of(block) == known

    def _thin(self) -> None:
        """Keep the latest, and ever fewer of the older ones."""
        top = self._blocks[-1][0]
        kept: list[tuple[int, str]] = []
        for block in reversed(self._blocks):
            if not kept or top - block[0] >= 2 * (top - kept[-1][0]):
                kept.append(block)
        self._blocks = kept[:_KEPT][::-1]

    def _write(self) -> None:
        self._journal.keep_fact(self._fact, json.dumps(self._blocks))
        self._written = self._blocks[-1][0] if self._blocks else -1


def taker(rpc: Rpc, address: str, nonce: int) -> str | None:
    """Hash of the mined transaction that has this nonce of an account; None where the node cannot tell: the
    nonce is not used, or the states of its time are gone."""
    head: int = rpc.eth.block_number

    def used(block: int) -> bool:
        return rpc.eth.get_transaction_count(checksummed(address), block) > nonce

    try:
        if not used(head):
            return None
        low, high, step = head, head, 1  # the nonce is used at `high`
        while low > 0 and used(low := max(high - step, 0)):
            high, step = low, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if used(middle) else (middle, high)
        block = rpc.request("eth_getBlockByNumber", [hex(high), True])
    except RpcFailed:
        return None
    for transaction in (block or {}).get("transactions", []):
        if transaction["from"].lower() == address.lower() and int(transaction["nonce"], 16) == nonce:
            return str(transaction["hash"])
    return None


def stands(rpc: Rpc, receipt: Receipt, newest: int) -> bool:
    """Whether the block of a receipt is the chain's, and no newer than block `newest`. Raises
    RpcUnreachable."""
    if receipt.block_number > newest:
        return False
    block = get_block(rpc, receipt.block_number)
    return block is not None and hash_of(block) == receipt.block_hash.lower()


def receipt_of(key: str, found: dict[str, Any]) -> Receipt:
    """The receipt of an intent's transaction, as a node gave it."""
    return Receipt(
        key,
        found["transactionHash"],
        int(found["blockNumber"], 16),
        found["blockHash"],
        int(found["gasUsed"], 16),
        int(found.get("effectiveGasPrice", "0x0"), 16),
        int(found["status"], 16) == 1,
        found.get("contractAddress"),
        list(found["logs"]),
    )

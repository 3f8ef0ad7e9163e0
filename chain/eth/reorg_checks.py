"""Detects replaced blocks under mined transactions, and who took a nonce.

Contract: `MinedBlocks.gone` yields every executed intent whose block was replaced since the last check,
however deep and long ago, with two requests if nothing has changed. It keeps checkpoints: blocks at which all
earlier receipts were seen to be mined, and starts from the highest that still stands. `taker` finds the
transaction that has a nonce in the block that holds it, since a missing receipt proves nothing. Not
guaranteed: anything against a node that lies about its blocks.
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
"""Number of checkpoints: the latest ones, and older ones at growing distances."""
_WRITE_EVERY = 32
"""Blocks between writes: an older checkpoint on disk only costs checking more receipts."""


class MinedBlocks:
    """Checkpoint blocks, latest last, at or below which every receipt in the journal was seen to be mined.

    Stored in the journal.
    """

    def __init__(self, rpc: Rpc, journal: Journal, address: str) -> None:
        self._rpc, self._journal, self._address = rpc, journal, address
        self._fact = f"checkpoints/{address}"
        self._blocks: list[tuple[int, str]] = [
            (int(number), str(found))
            for number, found in bounded_json.loads(journal.fact(self._fact) or "[]")
        ]
        self._written = self._blocks[-1][0] if self._blocks else -1

    def settled(self, receipt: Receipt) -> None:
        """Call before storing a receipt: drops checkpoints at its height or above, which did not include
        it."""
        kept = [block for block in self._blocks if block[0] < receipt.block_number]
        if len(kept) < len(self._blocks):
            self._blocks = kept
            self._write()

    def gone(self) -> Iterator[tuple[Intent, Receipt]]:
        """Yields executed intents whose block was replaced, oldest first; once all are handled, stores the
        present head.

        Raises RpcUnreachable.
        """
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
        """Keeps the latest checkpoints, and ever fewer of the older ones."""
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
    """Hash of the mined transaction with this nonce of an account.

    None if the nonce is unused or the node no longer has the states of that time.
    """
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
    """True if the receipt's block is on the chain and not newer than block `newest`. Raises
    RpcUnreachable."""
    if receipt.block_number > newest:
        return False
    block = get_block(rpc, receipt.block_number)
    return block is not None and hash_of(block) == receipt.block_hash.lower()


def receipt_of(key: str, found: dict[str, Any]) -> Receipt:
    """Builds the receipt of an intent's transaction from a node's answer."""
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

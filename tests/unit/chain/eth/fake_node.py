"""A node in memory that keeps the rules on which sender and follower rely, and misbehaves on request."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import rlp
from eth_account import Account
from eth_utils.crypto import keccak

from assay.chain.eth.rpc import Rpc, RpcFailed
from assay.protocol.errors import RpcUnreachable

GAS = 50_000
BLOCK_S = 2
"""Seconds from block to block; block 0 has time 0."""


@cache
def _sender_of(raw: bytes) -> str:
    """Signer of a transaction; cached, since the same bytes come again and recovery takes milliseconds."""
    sender: str = Account.recover_transaction(raw)
    return sender


class Killed(BaseException):
    """The process dies here."""


@dataclass
class Transaction:
    """A signed transaction as the pool holds it."""

    hash: str
    sender: str
    nonce: int
    fee: int
    data: bytes


@dataclass
class Block:
    """A block with its transactions and logs."""

    number: int
    hash: str
    transactions: list[Transaction] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    logs: list[dict[str, Any]] = field(default_factory=list)


class FakeNode(Rpc):
    """`automine`: a block for each transaction. `before`/`after` run around every request."""

    def __init__(self, *, automine: bool = True, min_fee: int = 0) -> None:
        self.automine = automine
        self.min_fee = min_fee
        self.pool: dict[tuple[str, int], Transaction] = {}
        self.balances: dict[str, int] = {}
        self.call_failure: RpcFailed | None = None
        self.down = False
        self.salt = 0
        self.blocks: list[Block] = [self._block(0)]
        self.failing: set[bytes] = set()
        """Data of transactions that fail when they are mined."""
        self.unreceipted: Callable[[str], bool] = lambda tx_hash: False
        """Of which mined transactions it denies the receipt."""
        self.base_fee = 10**9
        self.requests: list[str] = []
        self.before: Callable[[str], None] = lambda method: None
        self.after: Callable[[str], None] = lambda method: None
        self.lag = 0
        self.finalized = 0
        self._turn = threading.RLock()

    def request(self, method: str, params: list[Any]) -> Any:
        """One after the other, as a node does that is asked by several threads."""
        with self._turn:
            self.requests.append(method)
            self.before(method)
            if self.down:
                raise RpcUnreachable("the node does not answer", hint="start it")
            result = getattr(self, method)(*params)
            self.after(method)
            return result

    # The chain itself

    def _block(self, number: int) -> Block:
        return Block(number, "0x" + hashlib.sha256(f"{number}/{self.salt}".encode()).hexdigest())

    def mine(self, logs: list[dict[str, Any]] | None = None) -> Block:
        block = self._block(len(self.blocks))
        for key in sorted(self.pool):
            tx = self.pool[key]
            if tx.fee >= self.min_fee and tx.nonce == self.nonce_at(tx.sender) + sum(
                t.sender == tx.sender for t in block.transactions
            ):
                block.transactions.append(tx)
        for tx in block.transactions:
            del self.pool[(tx.sender, tx.nonce)]
            if tx.data in self.failing:
                block.failed.add(tx.hash)
        for index, log in enumerate(logs or []):
            block.logs.append(
                {
                    **log,
                    "blockNumber": hex(block.number),
                    "blockHash": block.hash,
                    "logIndex": hex(index),
                    "transactionHash": "0x" + "22" * 32,
                    "removed": False,
                }
            )
        self.blocks.append(block)
        return block

    def reorganise(self, depth: int, *, keep_transactions: bool = True) -> None:
        """Drop the last blocks; what they held goes back to the pool."""
        removed = self.blocks[-depth:]
        del self.blocks[-depth:]
        self.salt += 1
        for block in removed:
            for tx in block.transactions if keep_transactions else []:
                self.pool[(tx.sender, tx.nonce)] = tx

    def mined(self) -> list[Transaction]:
        return [tx for block in self.blocks for tx in block.transactions]

    def nonce_at(self, sender: str, number: int | None = None) -> int:
        blocks = self.blocks if number is None else self.blocks[: number + 1]
        return sum(tx.sender == sender for block in blocks for tx in block.transactions)

    def foreign(self, sender: str) -> None:
        """Another program sends from the same account, and it is mined."""
        nonce = self.nonce_at(sender)
        self.pool[(sender, nonce)] = Transaction("0x" + "f0" * 32, sender, nonce, 10**18, b"foreign")
        self.mine()

    # JSON-RPC methods

    def eth_chainId(self) -> str:
        return hex(31337)

    def eth_blockNumber(self) -> str:
        return hex(len(self.blocks) - 1 - self.lag)

    def eth_getBlockByNumber(self, tag: str, full: bool) -> dict[str, Any] | None:
        if tag == "finalized":
            tag = hex(self.finalized)
        number = len(self.blocks) - 1 - self.lag if tag == "latest" else int(tag, 16)
        if number > len(self.blocks) - 1 - self.lag:
            return None
        block = {"number": hex(number), "hash": self.blocks[number].hash, "baseFeePerGas": hex(self.base_fee)}
        transactions = [
            {"hash": tx.hash, "from": tx.sender, "nonce": hex(tx.nonce)} if full else tx.hash
            for tx in self.blocks[number].transactions
        ]
        if number:
            block["parentHash"] = self.blocks[number - 1].hash
        return {**block, "timestamp": hex(number * BLOCK_S), "transactions": transactions}

    def number_of(self, block_hash: str) -> str:
        """The number of a block that is named by its hash."""
        for block in self.blocks:
            if block.hash == block_hash:
                return hex(block.number)
        raise RpcFailed("eth_call", -32001, "Resource not found", "")

    def eth_getTransactionCount(self, sender: str, tag: str) -> str:
        return hex(self.nonce_at(sender, None if tag == "latest" else int(tag, 16)))

    def eth_getBalance(self, account: str, tag: str) -> str:
        return hex(self.balances.get(account, 10**20))

    def eth_maxPriorityFeePerGas(self) -> str:
        return hex(10**9)

    def eth_call(self, transaction: dict[str, Any], tag: str) -> str:
        if self.call_failure is not None:
            raise self.call_failure
        return "0x"

    def eth_estimateGas(self, transaction: dict[str, Any], tag: str) -> str:
        return hex(GAS)

    def eth_sendRawTransaction(self, raw: str) -> str:
        data = bytes.fromhex(raw[2:])
        _, nonce, _, fee, _, _, _, payload, *_ = rlp.decode(data[1:])
        tx = Transaction(
            "0x" + keccak(data).hex(),
            _sender_of(data),
            int.from_bytes(nonce, "big"),
            int.from_bytes(fee, "big"),
            payload,
        )
        held = self.pool.get((tx.sender, tx.nonce))
        if held is not None and held.hash == tx.hash:
            raise RpcFailed("eth_sendRawTransaction", -32000, "already known", "")
        if tx.nonce < self.nonce_at(tx.sender):
            raise RpcFailed("eth_sendRawTransaction", -32000, "nonce too low", "")
        if tx.fee < self.base_fee:
            text = "max fee per gas less than block base fee"
            raise RpcFailed("eth_sendRawTransaction", -32000, text, "")
        if held is not None and tx.fee * 10 < held.fee * 11:
            raise RpcFailed("eth_sendRawTransaction", -32000, "replacement transaction underpriced", "")
        self.pool[(tx.sender, tx.nonce)] = tx
        if self.automine:
            self.mine()
        return tx.hash

    def eth_getTransactionReceipt(self, tx_hash: str) -> dict[str, Any] | None:
        for block in self.blocks:
            for tx in block.transactions:
                if tx.hash == tx_hash and not self.unreceipted(tx_hash):
                    return {
                        "transactionHash": tx.hash,
                        "blockNumber": hex(block.number),
                        "blockHash": block.hash,
                        "gasUsed": hex(GAS),
                        "effectiveGasPrice": hex(tx.fee),
                        "status": hex(tx.hash not in block.failed),
                        "contractAddress": None,
                        "logs": [],
                    }
        return None

    def eth_feeHistory(self, blocks: str, newest: str, percentiles: list[float]) -> dict[str, Any]:
        return {"reward": [["0x1"]]}

    def eth_getLogs(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        if "blockHash" in query:
            number = self.number_of(query["blockHash"])
            query = {"fromBlock": number, "toBlock": number}
        first, last = int(query["fromBlock"], 16), int(query["toBlock"], 16)
        return [log for block in self.blocks[first : last + 1] for log in block.logs]

"""What a node's answer to each method looks like, so that nothing behind it meets any other.

Contract: `check` returns the answer as it came, or raises `Misshapen` with what is wrong with it. An answer
that passes can be read without another look at its types: quantities are "0x" and hex digits within their
bounds, data is whole bytes, and a block, receipt or log has every field that this package reads.
Not guaranteed: that an answer is true. Methods that are not named here (a development node's own) are not
checked.
Source: the Ethereum JSON-RPC specification (execution-apis), its schemas of quantities and data.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_QUANTITY = re.compile(r"0x[0-9a-fA-F]{1,64}")
_DATA = re.compile(r"0x(?:[0-9a-fA-F]{2})*")
_LONGEST_FIELD = 1 << 16
"""Characters of a header's field: 512 bytes of Bloom filter, and extra data of some chains."""
_MOST_TOPICS = 4


class Misshapen(ValueError):
    """An answer is not what its method gives."""


def quantity(value: Any, what: str, bits: int = 256) -> int:
    """The integer of a quantity such as "0x1f", below 2^`bits`. Raises Misshapen."""
    if not isinstance(value, str) or not _QUANTITY.fullmatch(value):
        raise Misshapen(f"no number for {what}: {_shown(value)}")
    number = int(value, 16)
    if number >> bits:
        raise Misshapen(f"{what} is {number}, beyond all bounds")
    return number


def data(value: Any, what: str, size: int | None = None) -> str:
    """Bytes as "0x" and hex digits, of `size` bytes if that is given. Raises Misshapen."""
    if not isinstance(value, str) or not _DATA.fullmatch(value):
        raise Misshapen(f"no bytes for {what}: {_shown(value)}")
    if size is not None and len(value) != 2 + 2 * size:
        raise Misshapen(f"{what} has {len(value) // 2 - 1} bytes instead of {size}")
    return value


def check(method: str, params: list[Any], answer: Any) -> Any:
    """The answer. Raises Misshapen."""
    if method in _QUANTITIES:
        what, bits = _QUANTITIES[method]
        quantity(answer, what, bits)
    elif method in _OTHERS:
        _OTHERS[method](params, answer)
    return answer


def _shown(value: Any) -> str:
    """Few enough characters for a status line, of whatever a node has sent."""
    text = value if isinstance(value, str) else type(value).__name__
    return repr(text[:40])


_QUANTITIES = {
    "eth_chainId": ("the chain id", 63),
    "eth_blockNumber": ("the block number", 62),
    "eth_getTransactionCount": ("the nonce", 62),
    "eth_getBalance": ("the balance", 256),
    "eth_maxPriorityFeePerGas": ("the priority fee", 128),
    "eth_estimateGas": ("the gas estimate", 53),
}
"""Numbers of blocks, nonces and gas also fit SQLite's integers, with room for arithmetic."""


def _fields(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Misshapen(f"{what} is no object: {_shown(value)}")
    return value


def _items(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise Misshapen(f"{what} is no list: {_shown(value)}")
    return value


def _block(params: list[Any], answer: Any) -> None:
    asked = params[0]
    if answer is None:
        if asked in ("latest", "earliest", "0x0"):
            raise Misshapen(f"the node has no block {asked}")
        return
    block = _fields(answer, "a block")
    data(block.get("hash"), "a block's hash", 32)
    number = quantity(block.get("number"), "a block's number", 62)
    quantity(block.get("timestamp"), "a block's time", 62)
    if _QUANTITY.fullmatch(asked) and number != int(asked, 16):
        raise Misshapen(f"block {number} for block {int(asked, 16)}")
    if (parent := block.get("parentHash")) is not None:
        data(parent, "a block's parent", 32)
    if (base_fee := block.get("baseFeePerGas")) is not None:
        quantity(base_fee, "the base fee", 128)
    for name, value in block.items():
        if isinstance(value, str) and (len(value) > _LONGEST_FIELD or not value.startswith("0x")):
            raise Misshapen(f"a block's {name} is {_shown(value)}")
    for transaction in _items(block.get("transactions", []), "a block's transactions"):
        if params[1:] == [True]:
            _transaction(transaction)


def _transaction(value: Any) -> None:
    transaction = _fields(value, "a transaction")
    data(transaction.get("hash"), "a transaction's hash", 32)
    data(transaction.get("from"), "a transaction's sender", 20)
    quantity(transaction.get("nonce"), "a transaction's nonce", 64)


def _log(value: Any) -> None:
    log = _fields(value, "a log")
    data(log.get("address"), "a log's contract", 20)
    topics = _items(log.get("topics"), "a log's topics")
    if len(topics) > _MOST_TOPICS:
        raise Misshapen(f"a log has {len(topics)} topics")
    for topic in topics:
        data(topic, "a log's topic", 32)
    data(log.get("data"), "a log's data")
    quantity(log.get("blockNumber"), "a log's block", 62)
    data(log.get("blockHash"), "a log's block's hash", 32)
    quantity(log.get("logIndex"), "a log's index", 62)
    data(log.get("transactionHash"), "a log's transaction", 32)
    if log.get("removed", False) is not False:  # where blocks or a transaction are asked about, none is
        raise Misshapen("a log is said to be removed, which is to be asked again")


def _logs(params: list[Any], answer: Any) -> None:
    for log in _items(answer, "the logs"):
        _log(log)


def _receipt(params: list[Any], answer: Any) -> None:
    if answer is None:
        return
    receipt = _fields(answer, "a receipt")
    found = data(receipt.get("transactionHash"), "a receipt's transaction", 32)
    if found.lower() != params[0].lower():
        raise Misshapen("the receipt is another transaction's")
    data(receipt.get("blockHash"), "a receipt's block's hash", 32)
    quantity(receipt.get("blockNumber"), "a receipt's block", 62)
    quantity(receipt.get("gasUsed"), "the gas used", 53)
    quantity(receipt.get("effectiveGasPrice", "0x0"), "the gas price", 128)
    quantity(receipt.get("status"), "a receipt's status", 1)
    if receipt.get("contractAddress") is not None:
        data(receipt["contractAddress"], "a receipt's contract", 20)
    _logs(params, receipt.get("logs"))


def _fees(params: list[Any], answer: Any) -> None:
    for block in _items(_fields(answer, "the fees of recent blocks").get("reward") or [], "their tips"):
        for tip in _items(block, "a block's tips"):
            quantity(tip, "a tip", 128)


_OTHERS: dict[str, Callable[[list[Any], Any], object]] = {
    "eth_getBlockByNumber": _block,
    "eth_getTransactionReceipt": _receipt,
    "eth_getLogs": _logs,
    "eth_feeHistory": _fees,
    "eth_call": lambda params, answer: data(answer, "a call's result"),
    "eth_getCode": lambda params, answer: data(answer, "a contract's code"),
    "eth_sendRawTransaction": lambda params, answer: data(answer, "the transaction's hash", 32),
}

"""Decides which answers two endpoints must agree on, and which fields are compared.

Contract: `gist` is equal for two honest answers to a question that `has_one_answer`, however the nodes spell
them. It differs if any field differs that this package reads of a block, its transactions or a log. Not
guaranteed: the other header fields, which `chain.eth.headers` reads. The block's hash proves them: a false
one makes the header unusable, not false. Nor the gas price in a receipt, which some nodes leave out.
"""

from __future__ import annotations

from typing import Any

RECEIPT = "eth_getTransactionReceipt"


def has_one_answer(method: str, params: list[Any]) -> bool:
    """True if all honest endpoints that know the named block give the same answer."""
    if method in ("eth_getLogs", "eth_chainId", RECEIPT):
        return True
    block = {"eth_getBlockByNumber": 0, "eth_call": 1, "eth_getTransactionCount": 1, "eth_getCode": 1}
    if method not in block:
        return False
    named = params[block[method]]
    return named not in ("latest", "pending", "earliest", "safe", "finalized")


def gist(method: str, params: list[Any], answer: Any) -> Any:
    """The fields of a valid answer (`chain.eth.answer_schemas`) that must be the same everywhere."""
    if method == "eth_getBlockByNumber":
        return _block(answer, whole=params[1:] == [True])
    if method == "eth_getLogs":
        return [_log(log) for log in answer]
    if method == RECEIPT:
        return _receipt(answer)
    return answer.lower() if isinstance(answer, str) else answer


def _block(block: dict[str, Any], *, whole: bool) -> list[Any]:
    transactions = block.get("transactions", []) if whole else []
    return [
        block["hash"].lower(),
        (block.get("parentHash") or "").lower(),
        *(int(block[name], 16) for name in ("number", "timestamp")),
        int(block.get("baseFeePerGas") or "0x0", 16),
        [[each["hash"].lower(), each["from"].lower(), int(each["nonce"], 16)] for each in transactions],
    ]


def _receipt(receipt: dict[str, Any]) -> list[Any]:
    return [
        *(receipt[name].lower() for name in ("transactionHash", "blockHash")),
        *(int(receipt[name], 16) for name in ("blockNumber", "gasUsed", "status")),
        (receipt.get("contractAddress") or "").lower(),
        [_log(log) for log in receipt["logs"]],
    ]


def _log(log: dict[str, Any]) -> list[Any]:
    return [
        *(log[name].lower() for name in ("address", "data", "blockHash", "transactionHash")),
        *(int(log[name], 16) for name in ("blockNumber", "logIndex")),
        [topic.lower() for topic in log["topics"]],
        log.get("removed", False),
    ]

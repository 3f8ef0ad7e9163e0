"""Proves a block's logs by its header, to decide between two endpoints that show different ones.

Contract: `proven_logs` returns the contracts' logs from receipts whose trie has the root in the block's
header, which must have the block's hash; otherwise None. Not guaranteed: `transactionHash`, which receipts do
not encode. Source: the Yellow Paper, 4.3 (receipts) and appendix D (the trie); EIP-658, EIP-2718.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rlp
from eth_utils.crypto import keccak

from assay.chain.eth.headers import encode_header

_Pairs = list[tuple[tuple[int, ...], bytes]]
"""Keys as nibbles, sorted, with their values."""


def proven_logs(
    block_hash: str, addresses: Sequence[str], header: Any, receipts: Any
) -> list[dict[str, Any]] | None:
    """Logs of these contracts in the format of eth_getLogs; None if not proven."""
    try:
        if "0x" + keccak(encode_header(dict(header))).hex() != block_hash.lower():
            return None
        if trie_root([_encoded(receipt) for receipt in receipts]).hex() != header["receiptsRoot"][2:].lower():
            return None
        wanted = {address.lower() for address in addresses}
        about = {"blockNumber": header["number"], "blockHash": block_hash, "removed": False}
        logs = [
            {**about, "transactionHash": receipt["transactionHash"], **_said(log)}
            for receipt in receipts
            for log in receipt["logs"]
        ]
        numbered = [{**log, "logIndex": hex(index)} for index, log in enumerate(logs)]
        return [log for log in numbered if log["address"].lower() in wanted]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, rlp.exceptions.RLPException):
        return None  # it is none that this is known of


def _said(log: dict[str, Any]) -> dict[str, Any]:
    return {name: log[name] for name in ("address", "topics", "data")}


def _encoded(receipt: dict[str, Any]) -> bytes:
    """Encodes a receipt as in the trie."""
    logs = [
        [_bytes(log["address"]), [_bytes(topic) for topic in log["topics"]], _bytes(log["data"])]
        for log in receipt["logs"]
    ]
    numbers = int(receipt["status"], 16), int(receipt["cumulativeGasUsed"], 16)
    body: bytes = rlp.encode([*numbers, _bytes(receipt["logsBloom"]), logs])
    kind = int(receipt.get("type") or "0x0", 16)
    return body if kind == 0 else bytes([kind]) + body


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def trie_root(values: Sequence[bytes]) -> bytes:
    """Root of the trie that maps indices to these values."""
    if not values:
        return keccak(rlp.encode(b""))
    pairs = [(_nibbles(rlp.encode(place)), value) for place, value in enumerate(values)]
    return keccak(rlp.encode(_node(sorted(pairs))))


def _nibbles(key: bytes) -> tuple[int, ...]:
    return tuple(nibble for byte in key for nibble in (byte >> 4, byte & 15))


def _node(pairs: _Pairs) -> list[Any]:
    first, last = pairs[0][0], pairs[-1][0]
    if len(pairs) == 1:
        return [_packed(first, leaf=True), pairs[0][1]]
    shared = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    if shared:
        return [_packed(first[:shared], leaf=False), _link([(key[shared:], value) for key, value in pairs])]
    branches = [[(key[1:], value) for key, value in pairs if key[:1] == (nibble,)] for nibble in range(16)]
    own = next((value for key, value in pairs if not key), b"")
    return [*(_link(branch) if branch else b"" for branch in branches), own]


def _link(pairs: _Pairs) -> Any:
    """Reference to a node in its parent: the node itself if it is short, otherwise its hash."""
    node = _node(pairs)
    encoded = rlp.encode(node)
    return node if len(encoded) < 32 else keccak(encoded)


def _packed(nibbles: tuple[int, ...], *, leaf: bool) -> bytes:
    """Hex-prefix encoding of a part of a key."""
    flag = 2 * leaf + len(nibbles) % 2
    whole = (flag, *nibbles) if len(nibbles) % 2 else (flag, 0, *nibbles)
    return bytes(16 * high + low for high, low in zip(whole[::2], whole[1::2], strict=True))

"""Encodes block headers in RLP, to record the seed of a claim.

Contract: `encode_header` encodes the answer of `eth_getBlockByNumber` with every field up to Amsterdam's that
it has. `SeedHeaders.of` returns it only if its Keccak-256 is the block's hash and the contract will find a
RANDAO value in it. Otherwise it returns nothing and warns: the record must wait, and the block's hash serves
as seed (rule 4.5). Source: the Yellow Paper, 4.4.3, and the EIPs that appended fields: 1559, 4895, 4844,
4788, 7685, 7928, 7843.
"""

from __future__ import annotations

import logging
from typing import Any

import rlp
from eth_utils.crypto import keccak

from assay.chain.eth.rpc import Rpc

_NUMBERS = {
    *("difficulty", "number", "gasLimit", "gasUsed", "timestamp", "baseFeePerGas", "blobGasUsed"),
    *("excessBlobGas", "slotNumber"),
}
_FIELDS = (
    *("parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot", "logsBloom"),
    *("difficulty", "number", "gasLimit", "gasUsed", "timestamp", "extraData"),
    *("mixHash", "nonce"),  # mixHash: since the Merge the RANDAO value
    *("baseFeePerGas", "withdrawalsRoot"),  # London, Shanghai
    *("blobGasUsed", "excessBlobGas", "parentBeaconBlockRoot"),  # Cancun
    *("requestsHash", "blockAccessListHash", "slotNumber"),  # Prague, Amsterdam
)
"""Header fields in the order of their encoding."""
log = logging.getLogger(__name__)


def encode_header(block: dict[str, Any]) -> bytes:
    """RLP of a block's header. Raises ValueError if a field is not hex."""
    fields: list[int | bytes] = []
    for name in _FIELDS:
        value = block.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or not value.startswith("0x"):
            raise ValueError(f"{name} is {value!r}")
        fields.append(int(value, 16) if name in _NUMBERS else bytes.fromhex(value[2:]))
    return rlp.encode(fields)


class SeedHeaders:
    """Headers of seed blocks from one node."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc
        self._warned: set[str] = set()

    def of(self, number: int) -> bytes:
        """Header to record a seed with; empty if the block is not mined or its header is unusable.

        Raises RpcUnreachable.
        """
        block = self._rpc.request("eth_getBlockByNumber", [hex(number), False])
        if block is None:
            return b""
        header, fault = _usable(block)
        if fault and block["hash"] not in self._warned:
            self._warned.add(block["hash"])
            log.warning(
                "block %d: %s; seeds from it take its hash, some time later (docs/protocol.md, 4.5)",
                number,
                fault,
            )
        return header


def _usable(block: dict[str, Any]) -> tuple[bytes, str]:
    """The header, or empty and the reason."""
    try:
        header = encode_header(block)
        if "0x" + keccak(header).hex() != block["hash"]:
            return b"", "its header has fields that are not known here"
        if int(block["difficulty"], 16) or not int(block["mixHash"], 16):
            return b"", "its header holds no RANDAO value"
    except (KeyError, ValueError) as error:
        return b"", f"the node's answer is no header ({error})"
    return header, ""

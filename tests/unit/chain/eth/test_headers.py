"""Headers as their hash is taken: mainnet's first, one with every field up to Amsterdam's, bad answers."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import rlp
from eth_utils.crypto import keccak

from assay.chain.eth.headers import SeedHeaders, encode_header
from assay.chain.eth.rpc import Rpc

EMPTY_TRIE = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
NO_UNCLES = "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347"
MAINNET_GENESIS = {
    "hash": "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3",
    "parentHash": "0x" + "00" * 32,
    "sha3Uncles": NO_UNCLES,
    "miner": "0x" + "00" * 20,
    "stateRoot": "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544",
    "transactionsRoot": EMPTY_TRIE,
    "receiptsRoot": EMPTY_TRIE,
    "logsBloom": "0x" + "00" * 256,
    "difficulty": "0x400000000",
    "number": "0x0",
    "gasLimit": "0x1388",
    "gasUsed": "0x0",
    "timestamp": "0x0",
    "extraData": "0x11bbe8db4e347b4e8c937c1c8370e4b5ed33adb3db69cbdb7a38e1e50b1b82fa",
    "mixHash": "0x" + "00" * 32,
    "nonce": "0x0000000000000042",
}


def amsterdam(**changes: Any) -> dict[str, Any]:
    """A node's answer for a block of the Amsterdam fork, whose hash is computed here field by field."""
    values: list[tuple[str, bytes | int]] = [
        ("parentHash", b"\x01" * 32),
        ("sha3Uncles", bytes.fromhex(NO_UNCLES[2:])),
        ("miner", b"\x02" * 20),
        ("stateRoot", b"\x03" * 32),
        ("transactionsRoot", b"\x04" * 32),
        ("receiptsRoot", b"\x05" * 32),
        ("logsBloom", b"\x06" * 256),
        ("difficulty", 0),
        ("number", 25_000_000),
        ("gasLimit", 60_000_000),
        ("gasUsed", 0),
        ("timestamp", 1_800_000_000),
        ("extraData", b"builder"),
        ("mixHash", b"\x07" * 32),
        ("nonce", bytes(8)),
        ("baseFeePerGas", 7),
        ("withdrawalsRoot", b"\x08" * 32),
        ("blobGasUsed", 131_072),
        ("excessBlobGas", 0),
        ("parentBeaconBlockRoot", b"\x09" * 32),
        ("requestsHash", b"\x0a" * 32),
        ("blockAccessListHash", b"\x0b" * 32),
        ("slotNumber", 15_000_000),
    ]
    values = [(name, changes.get(name, value)) for name, value in values]
    answer = {name: hex(v) if isinstance(v, int) else "0x" + v.hex() for name, v in values}
    block_hash = keccak(rlp.encode([value for _, value in values])).hex()
    return {**answer, "hash": "0x" + block_hash, "size": "0x300", "transactions": [], "uncles": []}


class OneBlock(Rpc):
    """A node that knows one block."""

    def __init__(self, block: dict[str, Any] | None) -> None:
        self.block = block

    def request(self, method: str, params: list[Any]) -> Any:
        assert (method, params) == ("eth_getBlockByNumber", ["0x9", False])
        return self.block


def test_mainnets_first_header_has_the_hash_that_everybody_knows() -> None:
    assert keccak(encode_header(MAINNET_GENESIS)).hex() == MAINNET_GENESIS["hash"][2:]


@pytest.mark.parametrize("gas_used", [0, 1, 0x7F, 0x80, 36_000_000])
@pytest.mark.parametrize("extra", [b"", b"\x05", b"\x80", b"x" * 32])
def test_a_header_of_the_latest_form_is_given_as_it_is_hashed(gas_used: int, extra: bytes) -> None:
    block = amsterdam(gasUsed=gas_used, extraData=extra)
    header = SeedHeaders(OneBlock(block)).of(9)
    assert "0x" + keccak(header).hex() == block["hash"]
    assert rlp.decode(header)[13] == b"\x07" * 32


def test_a_block_that_is_not_mined_has_no_header_and_that_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert SeedHeaders(OneBlock(None)).of(9) == b""
    assert not caplog.records


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (amsterdam(mixHash=bytes(32)), "no RANDAO value"),
        (amsterdam(difficulty=1), "no RANDAO value"),
        (MAINNET_GENESIS, "no RANDAO value"),
        ({**amsterdam(), "stateRoot": "0x" + "04" * 32}, "not known"),
        ({name: value for name, value in amsterdam().items() if name != "requestsHash"}, "not known"),
        ({**amsterdam(), "gasUsed": "many"}, "no header"),
        ({**amsterdam(), "gasUsed": 7}, "no header"),
        ({**amsterdam(), "extraData": "0xabc"}, "no header"),
        ({"hash": "0x" + keccak(rlp.encode([])).hex()}, "no header"),
    ],
)
def test_a_header_that_cannot_serve_is_not_given_and_that_is_said_once(
    block: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    headers = SeedHeaders(OneBlock(block))
    with caplog.at_level(logging.WARNING):
        assert headers.of(9) == b"" and headers.of(9) == b""
    (warning,) = caplog.messages
    assert "block 9" in warning and why in warning

"""ABI values by name, custom errors by selector, contract addresses by nonce."""

from __future__ import annotations

from typing import Any

import pytest

from assay.chain.contracts.deploy import predict
from assay.chain.eth.abi import (
    MalformedData,
    decode_arguments,
    decode_log,
    encode_arguments,
    encode_call,
    find,
    selector,
    topic,
)
from assay.chain.eth.errors import Registry

POINT = {
    "name": "p",
    "type": "tuple",
    "components": [{"name": "x", "type": "uint64"}, {"name": "d", "type": "bytes"}],
}
POINTS = {**POINT, "type": "tuple[]"}
TRANSFER = {
    "type": "event",
    "name": "Transfer",
    "inputs": [
        {"name": "from", "type": "address", "indexed": True},
        {"name": "to", "type": "address", "indexed": True},
        {"name": "value", "type": "uint256", "indexed": False},
    ],
}


def test_selector_and_topic_are_those_of_erc20() -> None:
    transfer = {
        "type": "function",
        "name": "transfer",
        "inputs": [{"name": "to", "type": "address"}, {"name": "amount", "type": "uint256"}],
    }
    assert selector(transfer).hex() == "a9059cbb"
    assert encode_call(transfer, ["0x" + "11" * 20, 5])[:4].hex() == "a9059cbb"
    assert topic(TRANSFER).hex() == "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


def test_structs_go_in_and_out_as_dictionaries() -> None:
    values = [[{"x": 1, "d": b"a"}, {"d": b"", "x": 2}]]
    data = encode_arguments([POINTS], values)
    assert decode_arguments([POINTS], data) == values
    assert encode_arguments([POINTS], [[(1, b"a"), (2, b"")]]) == data


@pytest.mark.parametrize(
    "value",
    [{"x": 1}, {"x": 1, "d": b"", "y": 2}, (1,), (1, b"", 2), {"x": -1, "d": b""}, {"x": 2**64, "d": b""}],
)
def test_arguments_that_do_not_fit_are_refused(value: object) -> None:
    with pytest.raises(MalformedData):
        encode_arguments([POINT], [value])


@pytest.mark.parametrize("cut", [0, 1, 31, 33])
def test_short_data_is_refused(cut: int) -> None:
    data = encode_arguments([POINT], [(1, b"abc")])
    with pytest.raises(MalformedData):
        decode_arguments([POINT], data[:cut])


def test_log_with_the_wrong_number_of_topics_is_refused() -> None:
    with pytest.raises(MalformedData):
        decode_log(TRANSFER, [topic(TRANSFER), bytes(32)], bytes(32))


def test_overloaded_function_is_found_by_its_number_of_arguments() -> None:
    one = {"type": "function", "name": "f", "inputs": [{"name": "a", "type": "uint256"}]}
    none = {"type": "function", "name": "f", "inputs": []}
    assert find([one, none], "function", "f", 0) is none
    with pytest.raises(MalformedData):
        find([one, none], "function", "g", 0)


def test_reverts_are_named() -> None:
    error = {"type": "error", "name": "NotDue", "inputs": [{"name": "due", "type": "uint64"}]}
    registry = Registry([[error]])
    named = registry.decode(selector(error) + (9).to_bytes(32, "big"))
    assert (named.name, named.arguments, named.text) == ("NotDue", {"due": 9}, "NotDue(due=9)")
    assert (
        registry.decode(bytes.fromhex("4e487b71") + (0x11).to_bytes(32, "big")).text == "arithmetic overflow"
    )
    assert registry.decode(bytes.fromhex("deadbeef")).text == "unknown error 0xdeadbeef"
    assert registry.decode(selector(error) + b"\x01").text.startswith("malformed error")
    assert registry.decode(b"").text == "the contract gave no reason"


def test_contract_addresses_follow_from_the_nonce() -> None:
    deployer = "0x6ac7ea33f8831ea9dcc53393aaa88b25a785dbf0"
    assert predict(deployer, 0).lower() == "0xcd234a471b72ba2f1ccf0a70fcaba648a5eecd8d"
    assert predict(deployer, 1).lower() == "0x343c43a37d37dff08ae8c4a11544c718abb4fcf8"


def test_attack_T46_a_string_that_is_no_text_is_told_all_the_same() -> None:
    """Contracts take any bytes for a string: were they refused, one event would blind every node."""
    inputs: list[Any] = [{"name": "url", "type": "string", "indexed": False}]
    event = {"type": "event", "name": "Said", "inputs": inputs}
    data = (32).to_bytes(32, "big") + (3).to_bytes(32, "big") + b"a\xff\xc3".ljust(32, b"\0")
    assert decode_log(event, [topic(event)], data) == {"url": r"a\xff\xc3"}
    assert encode_arguments(inputs, ["é"])[64:66] == "é".encode()

"""What events say is folded by handlers that are found by name: each names an event that its contract has."""

from __future__ import annotations

from assay.chain.contracts.bindings import INTERFACES, TOKEN_ABI
from assay.chain.contracts.compile import compile_contracts
from assay.chain.contracts.index import MarketIndex


def test_every_handler_is_of_an_event_that_there_is() -> None:
    artifacts = compile_contracts()
    handlers = [name.removeprefix("_on_") for name in vars(MarketIndex) if name.startswith("_on_")]
    assert len(handlers) > 10
    for handler in handlers:
        contract, _, event = handler.partition("_")
        abi = artifacts[INTERFACES[contract]].abi
        assert event in {entry["name"] for entry in abi if entry["type"] == "event"}, handler


def test_what_is_asked_of_the_token_is_in_its_interface() -> None:
    token = {entry["name"]: entry for entry in compile_contracts()["AssayToken"].abi if "name" in entry}
    assert {entry["name"] for entry in TOKEN_ABI} == {"balanceOf", "totalSupply", "allowance", "approve"}
    for entry in TOKEN_ABI:
        types = [kind["type"] for kind in entry["inputs"]]
        assert [kind["type"] for kind in token[entry["name"]]["inputs"]] == types

"""What events say is folded by handlers that are found by name: each names an event that its contract has."""

from __future__ import annotations

from assay.chain.contracts.bindings import INTERFACES
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

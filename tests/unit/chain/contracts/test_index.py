"""What events say is folded by handlers that are found by name: each names an event that its contract has."""

from __future__ import annotations

from assay.chain.contracts.bindings import INTERFACES, TOKEN_ABI
from assay.chain.contracts.compile import compile_contracts
from assay.chain.contracts.index import MarketIndex
from assay.chain.eth.events import Event


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


def event(name: str, **arguments: object) -> Event:
    contract, _, event_name = name.partition("_")
    return Event(event_name, contract, dict(arguments), 1, "0x", 0, "0x")


def test_gateways_tell_who_publishes_for_an_open_job_and_who_has_how_much_at_stake() -> None:
    index = MarketIndex()
    for account in ("0xa", "0xb", "0xc"):
        index.apply(event("Stakes_Endpoint", account=account, url=f"http://{account}"))
    index.apply(event("Stakes_Staked", account="0xb", role=0, amount=100))
    index.apply(event("Stakes_Staked", account="0xb", role=1, amount=30))
    index.apply(event("Stakes_Slashed", account="0xb", role=0, asked=70, taken=60))
    index.apply(event("Stakes_UnbondFinished", account="0xb", role=1, index=0, amount=30))
    index.apply(event("Tasks_ShardAssigned", jobId=b"open", solver="0xc", shard=0))
    index.apply(event("Tasks_ShardAssigned", jobId=b"over", solver="0xa", shard=0))
    index.apply(event("Jobs_JobClosed", jobId=b"over"))
    told = {g.account: (g.url, g.stake, g.publishes) for g in index.gateways()}
    assert told == {
        "0xa": ("http://0xa", 0, False),
        "0xb": ("http://0xb", 40, False),
        "0xc": ("http://0xc", 0, True),
    }

"""The start of a node whose chain refuses, contradicts itself or is down: the node keeps trying, and
reports it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.app.node_problems import why_not_ready
from assay.chain.eth.endpoints import EndpointsDisagree
from assay.chain.eth.rpc import RateLimited
from assay.cli.node.alarms import Watch
from assay.cli.node.duplicate_node import DuplicateNode
from assay.cli.node.run import begun, connected
from assay.protocol.errors import AssayError, RpcUnreachable
from tests.fakes.clock import FakeClock
from tests.fakes.market_day import MarketDay
from tests.fakes.market_node import MarketNode, Open
from tests.unit.chain.contracts.conftest import market_of, node, sender

__all__ = ["market_of", "node", "sender"]
OFTEN = RateLimited("http://one limits its requests (HTTP status 429)", hint="name another one")
LIES = EndpointsDisagree(
    "http://one and http://two give different answers to eth_getLogs", hint="compare them"
)


def failing(errors: list[AssayError], found: object = None) -> Any:
    def begin() -> object:
        if errors:
            raise errors.pop(0)
        return found

    return begin


def test_w7_a_node_that_is_refused_at_its_start_tries_again_and_wakes_somebody_after_a_while() -> None:
    slept, said, told = list[float](), list[str](), list[dict[str, Any]]()
    app: Any = SimpleNamespace(
        connect=failing([OFTEN] * 7, "connected"),
        output=SimpleNamespace(say=said.append),
        settings=SimpleNamespace(account="ann"),
    )

    def tell(body: dict[str, Any]) -> str:
        told.append(body)
        return ""

    found: Any = connected(app, [tell], slept.append)
    assert found == "connected"
    assert slept == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 16.0]
    assert len(said) == 7 and "limits its requests" in said[0] and "tried again in 1 s" in said[0]
    assert len(told) == 1 and "the node starts once the chain answers" in told[0]["text"]


def test_w9_a_node_whose_endpoints_disagree_starts_shows_it_and_goes_on_once_they_agree(
    day: MarketDay,
) -> None:
    ann, clock = day.solver("ann"), cast(FakeClock, day.services["ann"].clock)
    seen: list[str] = []

    def look() -> None:
        seen.append(why_not_ready({"action": "x", "error": ann.status.error}))

    watch = cast(Watch, look)
    assert begun(failing([LIES, LIES]), ann, watch)
    assert seen == ["chain: " + f"{LIES.message}; {LIES.hint}"] * 2
    assert ann.status.error == "" and len(day.named("retry")) == 1
    clock.stopped = True
    assert not begun(failing([LIES] * 9), ann, watch)
    with pytest.raises(DuplicateNode):
        begun(failing([DuplicateNode("it runs elsewhere", hint="stop it")]), ann, watch)


def test_w9_the_market_can_be_made_while_its_chain_cannot_be_read(market_of: Open, node: MarketNode) -> None:
    first = market_of(-1.0)
    first.disconnect()

    def refuse(query: dict[str, Any]) -> list[dict[str, Any]]:
        raise LIES

    real = node.eth_getLogs
    node.eth_getLogs = refuse
    node.emit("Stakes", "Endpoint", account="0x" + "11" * 20, url="http://10.0.0.1:1")
    market = market_of(-1.0)
    with pytest.raises(RpcUnreachable, match="different answers"):
        market.endpoints()
    node.eth_getLogs = real
    assert list(market.endpoints().values()) == ["http://10.0.0.1:1"]

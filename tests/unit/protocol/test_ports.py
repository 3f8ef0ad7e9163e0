"""Ports are kept by every adapter and fake: same methods, same arguments."""

from __future__ import annotations

import inspect
from typing import Any, get_args

import pytest

from assay.blocks.kubo import KuboNodeBlocks
from assay.blocks.node import NodeBlocks
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.clock import ChainClock
from assay.protocol.ports import BatchedCall, Blocks, Clock, Market, MarketView
from tests.fakes.blocks import FakeBlocks
from tests.fakes.clock import FakeClock
from tests.fakes.port import FakeMarket

KEEPING = [
    (Market, ChainMarket),
    (Market, FakeMarket),
    (Blocks, NodeBlocks),
    (Blocks, KuboNodeBlocks),
    (Blocks, FakeBlocks),
    (Clock, ChainClock),
    (Clock, FakeClock),
]


def methods(port: type) -> dict[str, Any]:
    """A port's calls, those that it inherits from another port included."""
    return {name: value for name, value in inspect.getmembers(port, inspect.isfunction) if name[0] != "_"}


def arguments(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def missing(port: type, adapter: type) -> list[str]:
    """Calls of a port that a class lacks, or takes other arguments for."""
    own = methods(adapter)
    return [
        n
        for n, f in methods(port).items()
        if n not in own or arguments(own[n])[: len(arguments(f))] != arguments(f)
    ]


@pytest.mark.parametrize(("port", "adapter"), KEEPING, ids=[f"{a.__name__}" for _, a in KEEPING])
def test_an_adapter_keeps_its_port(port: type, adapter: type) -> None:
    assert len(methods(port)) >= 3 and missing(port, adapter) == []


def test_a_class_that_lacks_a_call_or_takes_other_arguments_keeps_no_port() -> None:
    class Half(FakeClock):
        def wait(self, minutes: float) -> bool:
            return True

    assert missing(Clock, Half) == ["wait"]
    assert set(missing(Clock, object)) == {"now", "block", "wait"}


def test_every_write_of_the_market_carries_its_intent_first() -> None:
    others = {*methods(MarketView), "class_id", "send_all"}
    writes = {name: f for name, f in methods(Market).items() if name not in others}
    assert len(writes) > 20
    assert [name for name, f in writes.items() if arguments(f)[0] != "intent"] == []


def test_what_may_be_sent_together_are_writes_of_the_market() -> None:
    assert set(get_args(BatchedCall)) <= methods(Market).keys()

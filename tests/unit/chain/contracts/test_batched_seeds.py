"""Seeds that are recorded together bring the header of a block once, and one that is not to be recorded any
more costs the others nothing."""

from __future__ import annotations

from typing import Any

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.batches import send_together
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.abi import decode_arguments, find
from assay.chain.eth.journal import Call
from assay.protocol.errors import Reverted
from assay.protocol.ports import Write
from tests.fakes.market_node import CLAIM


class Taken:
    """A sender that keeps what it is given, as if all of it were mined."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def unsent(self, intent: str) -> bool:
        return True

    def send_batch(self, key: str, members: list[str], call: Call) -> None:
        self.calls.append(call)


def test_a_batch_of_seeds_brings_each_header_once(market: ChainMarket, artifacts: Artifacts) -> None:
    brought = [b"one", b"two", b"one", b"one", b"two"]
    writes = [Write(f"seed {i}", "record_seed", (CLAIM, header)) for i, header in enumerate(brought)]
    taken: Any = Taken()
    assert send_together(taken, market.contracts["Tasks"], writes) == {}
    (call,) = taken.calls
    many, one = (find(artifacts["ITasks"].abi, "function", name) for name in ("multicall", "recordSeed"))
    (calls,) = decode_arguments(many["inputs"], call.data[4:])
    given = [decode_arguments(one["inputs"], each[4:]) for each in calls]
    assert [header for _, header in given] == [b"one", b"two", b"", b"", b""]
    assert [write.arguments[1] for write in writes] == brought, "each by itself would bring its own"


class Overtaken(Taken):
    """A sender of whose calls somebody else has made some before: a batch with one of them is refused."""

    def __init__(self, made: set[str]) -> None:
        super().__init__()
        self.made, self.refused = made, 0
        self.members: list[list[str]] = []

    def send_batch(self, key: str, members: list[str], call: Call) -> None:
        if self.made & set(members):
            self.refused += 1
            raise Reverted("WrongPhase()", hint="")
        super().send_batch(key, members, call)
        self.members.append(members)


def test_a_call_that_somebody_else_has_made_leaves_the_others_together(market: ChainMarket) -> None:
    """Otherwise a stranger that records one seed of sixteen has the other fifteen sent one by one."""
    writes = [Write(f"seed {i}", "record_seed", (CLAIM, b"one")) for i in range(16)]
    sender: Any = Overtaken({"seed 15"})
    assert send_together(sender, market.contracts["Tasks"], writes) == {}
    assert [len(members) for members in sender.members] == [8, 4, 2]
    assert [intent for members in sender.members for intent in members] == [f"seed {i}" for i in range(14)]
    assert sender.refused == 4
    headers = [call.data.count(b"one".ljust(32, b"\0")) for call in sender.calls]
    assert headers == [1, 1, 1], "each batch brings the header itself"

"""Seeds that are recorded together bring the header of a block once."""

from __future__ import annotations

from assay.chain.contracts.batches import send_together
from assay.chain.contracts.compile import Artifacts
from assay.chain.contracts.market import ChainMarket
from assay.chain.eth.abi import decode_arguments, find
from assay.chain.eth.journal import Call
from assay.protocol.ports import Write
from tests.unit.chain.contracts.test_market import CLAIM, market, market_of, node, sender

__all__ = ["market", "market_of", "node", "sender"]


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
    taken = Taken()
    assert send_together(taken, market.contracts["Tasks"], writes) == {}  # type: ignore[arg-type]
    (call,) = taken.calls
    many, one = (find(artifacts["ITasks"].abi, "function", name) for name in ("multicall", "recordSeed"))
    (calls,) = decode_arguments(many["inputs"], call.data[4:])
    given = [decode_arguments(one["inputs"], each[4:]) for each in calls]
    assert [header for _, header in given] == [b"one", b"two", b"", b"", b""]
    assert [write.arguments[1] for write in writes] == brought, "each by itself would bring its own"

"""A node that was started from a state file, or that prunes, does not have the state that it is asked
about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.view import ChainView
from assay.chain.eth.rpc import RpcFailed
from tests.fakes.market_node import ADDRESSES, ME, MarketNode
from tests.unit.chain.contracts.test_lens import lens_of, views_of

SAYINGS = {
    "anvil": (-32602, "BlockOutOfRangeError: block height is 12 but requested was 11"),
    "geth": (-32000, "missing trie node 12ab (path ) state 0x12 is not available, not found"),
    "geth, by paths": (-32000, "historical state 12ab is not available"),
    "erigon": (-32000, "old data not available due to pruning"),
    "reth": (-32000, "state at block #12 is pruned"),
    "nethermind": (-32002, "No state available for block 0x12"),
    "besu": (-32000, "world state unavailable"),
    "a block that is gone": (-32001, "Resource not found"),
}


class Forgetful(MarketNode):
    """A node without the states of blocks before `first_state`, however they are named."""

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self.first_state, self.saying = 0, SAYINGS["anvil"]
        self.by_hash: list[bool] = []
        """Of each call, whether its block was named by its hash."""

    def eth_call(self, transaction: dict[str, Any], tag: Any) -> str:
        self.by_hash.append(isinstance(tag, dict))
        number = self.number_of(tag["blockHash"]) if isinstance(tag, dict) else tag
        if number != "latest" and int(number, 16) < self.first_state:
            raise RpcFailed("eth_call", *self.saying, "")
        return super().eth_call(transaction, tag)


@pytest.fixture
def node(artifacts: Artifacts) -> Forgetful:
    node = Forgetful(artifacts)
    node.answers = {"free": 5, "active": 1, "locked": 0, "unbonding": 0, "room": 0}
    return node


def look(node: Forgetful, folder: Path, confirmations: int) -> ChainView:
    """A view that reads the chain again at every question, this many blocks behind the head."""
    deployment = Deployment("31337:0x", 0, node.artifacts.source_hash, dict(ADDRESSES), {})
    events = folder / "events.db"
    return ChainView(
        node, deployment, node.artifacts, ME, events, max_age_s=-1.0, confirmations=confirmations
    )


@pytest.mark.parametrize("saying", SAYINGS.values(), ids=SAYINGS)
def test_it_is_said_with_the_next_step_and_is_asked_once(
    node: Forgetful, tmp_path: Path, saying: tuple[int, str]
) -> None:
    for _ in range(5):
        node.mine()
    market = look(node, tmp_path, confirmations=2)
    node.first_state, node.saying = len(node.blocks) - 1, saying
    with pytest.raises(RpcFailed, match="does not have the block") as caught:
        market.free(ME)
    assert caught.value.lacks_block and saying[1] in caught.value.message
    assert "--rpc-url" in caught.value.hint
    assert node.by_hash == [True], "the number is not asked about instead"
    for _ in range(2):
        node.mine()
    assert market.free(ME) == 5, "once it has the state"
    assert all(node.by_hash), "blocks go on being named by their hash"


@pytest.mark.parametrize("saying", SAYINGS.values(), ids=SAYINGS)
def test_a_batch_is_not_asked_in_halves(artifacts: Artifacts, saying: tuple[int, str]) -> None:
    node = Forgetful(artifacts)
    node.mine()
    node.mine()
    node.answers, node.first_state, node.saying = {"free": 5}, 2, saying
    lens = lens_of(node)
    views, size = views_of(node, 300), lens.size
    with pytest.raises(RpcFailed):
        list(lens.answers(views, 1))
    assert len(node.by_hash) == 1 and lens.size == size
    assert len(list(lens.answers(views, 2))) == 300


@pytest.mark.parametrize(
    ("code", "text", "data"),
    [
        (3, "execution reverted: state not found", "0x"),
        (-32000, "execution reverted: no state", ""),
        (-32000, "out of gas", ""),
        (-32602, "invalid argument 1: hex string without 0x prefix", ""),
        (-32005, "rate limit exceeded", ""),
    ],
)
def test_other_refusals_are_not_taken_for_it(code: int, text: str, data: str) -> None:
    failure = RpcFailed("eth_call", code, text, data)
    assert not failure.lacks_block and failure.message == f"eth_call failed: {text}"


def test_a_node_that_takes_no_hashes_is_asked_by_number(node: Forgetful, tmp_path: Path) -> None:
    """As before: that is what a refusal of the parameters says, if it does not speak of the block."""
    call = node.eth_call

    def no_hashes(transaction: dict[str, Any], tag: Any) -> str:
        if isinstance(tag, dict):
            raise RpcFailed("eth_call", -32602, "invalid argument 1: cannot unmarshal object", "")
        return call(transaction, tag)

    node.eth_call = no_hashes
    assert look(node, tmp_path, confirmations=0).free(ME) == 5 and node.by_hash == [False]

"""Intents sent together: each takes effect once, by the batch or by itself, whatever dies or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.chain.eth.abi import selector
from assay.chain.eth.journal import Call, IntentCarried, State
from assay.chain.eth.rpc import RpcFailed
from assay.protocol.errors import Reverted
from tests.unit.chain.eth.fake_node import FakeNode
from tests.unit.chain.eth.test_sender import ACCOUNT, CALL, TARGET, killed_at_each_request, start

BATCH = Call(TARGET, b"move+turn", "move and turn")
TURN = Call(TARGET, b"turn", "turn")
REFUSED = selector({"type": "error", "name": "TooLate", "inputs": []})


def refusal() -> RpcFailed:
    return RpcFailed("eth_call", 3, "execution reverted", "0x" + REFUSED.hex())


def data_of(node: FakeNode) -> list[bytes]:
    return [tx.data for tx in node.mined()]


def test_what_a_batch_carries_is_not_sent_by_itself(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    assert sender.unsent("move")
    receipt = sender.send_batch("both", ["move", "turn"], BATCH)
    assert sender.send("move", CALL) == receipt and sender.send("turn", TURN) == receipt
    assert sender.send_batch("both", ["move", "turn"], BATCH) == receipt
    assert data_of(node) == [BATCH.data]
    assert not sender.unsent("move") and sender.journal.members("both") == ["move", "turn"]


def test_a_refused_batch_leaves_its_calls_to_be_sent_one_by_one(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    node.call_failure = refusal()
    with pytest.raises(Reverted):
        sender.send_batch("both", ["move", "turn"], BATCH)
    node.call_failure = None
    assert sender.unsent("move")
    sender.send("move", CALL)
    assert data_of(node) == [CALL.data]


def test_a_call_under_way_joins_no_batch_and_a_batched_one_is_not_signed(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    sender = start(node, tmp_path)
    sender.submit("move", CALL)
    with pytest.raises(IntentCarried):
        sender.submit("both", BATCH, ["move", "turn"])
    sender.submit("others", BATCH, ["turn", "stop"])
    with pytest.raises(IntentCarried):
        sender.submit("stop", TURN)
    with pytest.raises(IntentCarried):
        sender.submit("again", BATCH, ["stop", "start"])
    assert [intent.key for intent in sender.journal.open_intents(ACCOUNT.address)] == ["move", "others"]


def test_a_batch_that_lost_its_nonce_is_signed_anew_or_sets_its_calls_free(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    sender = start(node, tmp_path)
    sender.submit("both", BATCH, ["move", "turn"])
    node.pool.clear()
    node.foreign(ACCOUNT.address)
    for _ in range(4):
        node.mine()
    node.call_failure = refusal()
    with pytest.raises(Reverted):
        sender.send("move", CALL)  # the batch is tried again and refused, and then the call itself
    kept = sender.journal.get("both")
    assert kept is not None and kept.state is State.RECORDED
    node.call_failure, node.automine = None, True
    sender.send("move", CALL)
    assert data_of(node) == [b"foreign", CALL.data]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("together", [True, False])
def test_attack_48_a_batch_killed_at_any_request_is_sent_once(
    tmp_path: Path, moment: str, together: bool
) -> None:
    """After the restart the node wants the same batch, or the calls one by one: no effect comes twice."""
    both = ["move", "turn"]
    killed = killed_at_each_request(tmp_path, moment, lambda sender: sender.send_batch("both", both, BATCH))
    for point, (node, again) in enumerate(killed):
        if together and again.unsent("move"):
            again.send_batch("both", both, BATCH)
        again.send("move", CALL)
        again.send("turn", TURN)
        effects = b"+".join(data_of(node)).split(b"+")
        assert sorted(effects) == [b"move", b"turn"], f"killed {moment} request {point}"
        assert again.journal.open_intents(ACCOUNT.address) == []

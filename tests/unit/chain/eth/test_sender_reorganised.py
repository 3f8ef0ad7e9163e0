"""The sender's account recovers from reorganisations of any depth, also if it was off meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.chain.eth.errors import ConfirmationTimeout, NonceTaken
from assay.chain.eth.journal import Call, IntentConflict, State
from assay.chain.eth.rpc import RpcFailed
from assay.chain.eth.sender import Sender
from assay.protocol.errors import Reverted, RpcUnreachable
from tests.unit.chain.eth.fake_node import FakeNode
from tests.unit.chain.eth.test_sender import ACCOUNT, CALL, TARGET, Time, start


def call(name: str) -> Call:
    return Call(TARGET, name.encode(), name)


def mine(node: FakeNode, blocks: int) -> None:
    for _ in range(blocks):
        node.mine()


def mined_receipt(node: FakeNode, tx_hash: str) -> dict[str, Any]:
    found = node.eth_getTransactionReceipt(tx_hash)
    assert found is not None
    return found


def mined(node: FakeNode) -> list[bytes]:
    return [tx.data for tx in node.mined()]


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "back-in-the-pool"])
@pytest.mark.parametrize("depth", [1, 3, 20, 64])
def test_attack_46_a_reorganisation_while_a_node_is_off_leaves_no_gap(
    tmp_path: Path, depth: int, keep: bool
) -> None:
    """Eighty blocks later than it happened, so that it lies behind any window that ends at the head."""
    node = FakeNode()
    sender = start(node, tmp_path)
    sender.send("early", call("early"))
    mine(node, 70)
    sender.resume()
    for name in ("a", "b", "c"):
        sender.send(name, call(name))
    mine(node, max(depth - 3, 0))
    sender.resume()
    sender.journal.close()

    lost = [name for block in node.blocks[-depth:] for name in (tx.data for tx in block.transactions)]
    node.reorganise(depth, keep_transactions=keep)
    assert lost, "the reorganisation takes something of this account's away"
    mine(node, depth + 80)

    time = Time(on_sleep=node.mine)
    again = start(node, tmp_path, time)
    again.resume()
    assert again.send("d", call("d")).ok
    assert sorted(mined(node)) == [b"a", b"b", b"c", b"d", b"early"]
    again.resume()
    assert again.journal.open_intents(ACCOUNT.address) == []
    for name in ("early", "a", "b", "c", "d"):
        receipt = again.send(name, call(name))
        assert mined_receipt(node, receipt.tx_hash)["blockHash"] == receipt.block_hash


def test_attack_46_what_fails_when_mined_again_may_be_sent_anew_once_final(
    tmp_path: Path,
) -> None:
    """In the new chain it came before what it builds on; the same key must not repeat that answer for
    ever."""
    node = FakeNode()
    sender = start(node, tmp_path)
    assert sender.send("k", call("move")).ok
    node.reorganise(1)
    node.failing = {b"move"}
    node.mine()
    sender.resume()
    node.failing = set()
    with pytest.raises(Reverted, match="gas is spent"):
        sender.send("k", call("move"))
    assert mined(node) == [b"move"], "it is not repeated while the failure may be undone"
    mine(node, 3)
    assert sender.send("k", call("move")).ok
    assert mined(node) == [b"move", b"move"]
    assert sender.send("k", call("move")).ok and mined(node) == [b"move", b"move"]


def test_a_failure_that_is_final_may_be_followed_by_another_call_of_its_key(tmp_path: Path) -> None:
    node = FakeNode()
    node.failing = {b"move"}
    sender = start(node, tmp_path)
    with pytest.raises(Reverted):
        sender.send("k", call("move"))
    with pytest.raises(IntentConflict):
        sender.send("k", call("other"))
    mine(node, 3)
    assert sender.send("k", call("other")).ok
    assert sender.journal.committed_wei(ACCOUNT.address) == sum(
        int(mined_receipt(node, tx.hash)["effectiveGasPrice"], 16) * 50_000 for tx in node.mined()
    ), "what the failure cost counts on"


def test_a_nonce_that_nothing_holds_is_filled(tmp_path: Path) -> None:
    """Another program's transaction had it, and a reorganisation removed that."""
    node = FakeNode()
    node.foreign(ACCOUNT.address)
    sender = start(node, tmp_path)
    sender.send("k", CALL)
    node.reorganise(2, keep_transactions=False)
    mine(node, 5)
    sender.resume()
    mine(node, 1)
    assert sorted(tx.nonce for tx in node.mined()) == [0, 1]
    assert sender.send("k", CALL).ok and sender.send("next", call("next")).ok
    assert mined(node) == [b"", b"move", b"next"]


def test_what_a_spike_of_the_base_fee_keeps_out_is_offered_for_more(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    sender.send("k", CALL)
    node.reorganise(1, keep_transactions=False)
    node.base_fee = 20 * 10**9
    mine(node, 2)
    sender.resume()
    receipt = sender.send("k", CALL)
    assert receipt.ok and receipt.gas_price_wei >= node.base_fee
    assert mined(node) == [b"move"]


def test_an_old_transaction_that_is_too_cheap_holds_up_no_later_one(tmp_path: Path) -> None:
    """Nobody waits for the first, but its nonce comes before the second's."""
    node = FakeNode(automine=False)
    time = Time(on_sleep=node.mine)
    sender = start(node, tmp_path, time, stuck_after_s=3.0, confirm_timeout_s=120.0)
    sender.submit("a", call("a"))
    node.min_fee = 5 * 10**9
    assert sender.send("b", call("b")).ok
    assert mined(node) == [b"a", b"b"]


def test_attack_47_a_node_that_denies_receipts_gets_nothing_sent_twice(tmp_path: Path) -> None:
    """It was mined, and final; the node answers null."""
    node = FakeNode()
    sender = start(node, tmp_path)
    sender.submit("k", CALL)
    mine(node, 20)
    node.unreceipted = lambda tx_hash: True
    for _ in range(3):
        sender.resume()
    assert mined(node) == [b"move"] and len(sender.journal.open_intents(ACCOUNT.address)) == 1
    node.unreceipted = lambda tx_hash: False
    assert sender.send("k", CALL).ok and mined(node) == [b"move"]


def test_nothing_is_asked_for_what_cannot_have_changed(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    for number in range(30):
        sender.send(f"k{number}", call(f"k{number}"))
    sender.resume()
    node.requests.clear()
    sender.resume()
    assert len(node.requests) == 1
    node.mine()
    node.requests.clear()
    sender.resume()
    assert len(node.requests) == 2 and "eth_getTransactionReceipt" not in node.requests


@pytest.mark.parametrize("point", range(12))
def test_attack_46_a_look_that_is_cut_off_misses_nothing_the_next_time(tmp_path: Path, point: int) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    for name in ("a", "b", "c", "d"):
        sender.send(name, call(name))
    sender.resume()
    node.reorganise(4, keep_transactions=False)
    mine(node, 10)
    left = point

    def cut(method: str) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise RpcUnreachable("cut off")

    node.before = cut
    with pytest.raises(RpcUnreachable):
        sender.resume()
        pytest.skip("it asks less often")  # pragma: no cover
    node.before = lambda method: None
    sender.journal.close()
    again = start(node, tmp_path)
    again.resume()
    again.resume()
    assert mined(node) == [b"a", b"b", b"c", b"d"]
    assert again.journal.open_intents(ACCOUNT.address) == []


def test_one_that_is_refused_holds_up_no_other(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    sender = start(node, tmp_path)
    sender.submit("a", call("a"))
    sender.submit("b", call("b"))
    node.pool.clear()
    real = node.eth_sendRawTransaction

    def refuse(raw: str) -> Any:
        if call("a").data.hex() + "c0" in raw:
            raise RpcFailed("eth_sendRawTransaction", -32000, "not today", "")
        return real(raw)

    node.eth_sendRawTransaction = refuse
    with pytest.raises(RpcFailed, match="not today"):
        sender.resume()
    assert [tx.data for tx in node.pool.values()] == [b"b"]


def test_a_transaction_that_waits_is_not_given_up(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    sender: Sender = start(node, tmp_path, confirm_timeout_s=30.0)
    with pytest.raises(ConfirmationTimeout):
        sender.send("k", CALL)
    kept = sender.journal.get("k")
    assert kept is not None and kept.state is State.SIGNED


class HalfWritten(FakeNode):
    """A node that was killed while it wrote its state: what the last block did is there, and the block is
    not. `first_state`: the first block whose state it knows."""

    first_state = 0

    def forget_block(self) -> None:
        self.lost = self.blocks.pop()

    def eth_getTransactionCount(self, sender: str, tag: str) -> str:
        if tag != "latest" and int(tag, 16) < self.first_state:
            raise RpcFailed("eth_getTransactionCount", -32000, "missing state", "")
        return super().eth_getTransactionCount(sender, tag)

    def nonce_at(self, sender: str, number: int | None = None) -> int:
        """Of the state as it was written, whatever block is asked about."""
        gone = getattr(self, "lost", None)
        extra = 0 if gone is None else sum(tx.sender == sender for tx in gone.transactions)
        return super().nonce_at(sender, number) + extra


@pytest.mark.parametrize("states", [True, False], ids=["older-states", "no-older-states"])
def test_effects_without_a_block_are_not_sent_twice(tmp_path: Path, states: bool) -> None:
    node = HalfWritten()
    sender = start(node, tmp_path)
    sender.send("before", call("before"))
    sender.submit("k", CALL)
    assert node.mined()[-1].data == b"move"
    node.forget_block()
    node.first_state = 0 if states else len(node.blocks)
    assert node.nonce_at(ACCOUNT.address) == 2 and mined(node) == [b"before"], "the fault was planted"
    again = start(node, tmp_path)
    mine(node, 20)
    with pytest.raises(NonceTaken, match="does not show by which transaction"):
        again.resume()
    assert again.resume() == [], "said once"
    assert mined(node) == [b"before"], "the same is not sent again"
    assert again.send("next", call("next")).ok and mined(node) == [b"before", b"next"]
    assert again.unsent("k"), "whoever meant it decides by what the chain says"


def test_who_waits_for_effects_without_a_block_is_told(tmp_path: Path) -> None:
    node = HalfWritten()
    sender = start(node, tmp_path, Time(on_sleep=node.mine))
    sender.submit("k", CALL)
    node.forget_block()
    with pytest.raises(NonceTaken, match="does not show by which transaction"):
        sender.wait("k")
    assert mined(node) == []


def test_a_node_without_the_settled_state_is_waited_for(tmp_path: Path) -> None:
    """As Anvil, started from its state file: it has the states of the blocks since then only."""
    node = HalfWritten()
    mine(node, 20)
    sender = start(node, tmp_path)
    sender.submit("k", CALL)
    node.forget_block()
    node.first_state = len(node.blocks)
    time = Time(on_sleep=node.mine)
    again = start(node, tmp_path, time)
    assert [intent.key for intent in again.resume()] == ["k"], "nothing is believed yet, nothing is lost"
    with pytest.raises(NonceTaken, match="does not show by which transaction"):
        again.wait("k")
    assert time.now > 0 and mined(node) == []


def test_what_is_mined_without_a_receipt_is_not_paid_better(tmp_path: Path) -> None:
    node = FakeNode()
    time = Time(on_sleep=node.mine)
    sender = start(node, tmp_path, time, stuck_after_s=3.0)
    sender.submit("k", CALL)
    (lost,) = node.mined()
    node.unreceipted = lambda tx_hash: tx_hash == lost.hash
    mine(node, 20)
    for _ in range(5):
        time.sleep(10.0)
        sender.resume()
    intent = sender.journal.get("k")
    assert intent is not None and len(intent.attempts) == 1 and mined(node) == [b"move"]
    assert sender.send("next", call("next")).ok, "and nothing waits for it"
    with pytest.raises(ConfirmationTimeout):
        sender.wait("k")
    assert mined(node) == [b"move", b"next"]

"""The sender and its journal: at most one mined transaction for an intent, whatever dies or misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from eth_account import Account

from assay.chain.eth.abi import encode_arguments, selector
from assay.chain.eth.errors import ConfirmationTimeout, Registry, SpendLimit
from assay.chain.eth.fees import FeePolicy
from assay.chain.eth.journal import Call, IntentConflict, Journal, State, WrongChain
from assay.chain.eth.rpc import RpcFailed
from assay.chain.eth.sender import Sender
from assay.protocol.errors import Ask, InsufficientFunds, Reverted, RpcUnreachable
from tests.unit.chain.eth.fake_node import FakeNode, Killed

ACCOUNT = Account.from_key(b"\x01" * 32)
TARGET = "0x" + "11" * 20
CALL = Call(TARGET, b"move", "make a move")


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self, on_sleep: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self.on_sleep = on_sleep

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


def start(node: FakeNode, path: Path, time: Time | None = None, **policy: Any) -> Sender:
    time = time or Time()
    return Sender(
        node,
        ACCOUNT,
        Journal(path / "journal.db"),
        policy=FeePolicy(**{"poll_s": 1.0, "final_blocks": 2, **policy}),
        clock=time.clock,
        sleep=time.sleep,
    )


def killed_at_each_request(
    tmp_path: Path, moment: str, work: Callable[[Sender], object]
) -> Iterator[tuple[FakeNode, Sender]]:
    """Nodes on which a sender died before or after each of its requests; the sender that is started then."""
    counted = FakeNode()
    work(start(counted, tmp_path / "count"))
    assert len(counted.requests) >= 8
    for point in range(len(counted.requests)):
        node, directory, left = FakeNode(), tmp_path / f"{moment}{point}", point

        def die(method: str) -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1

        setattr(node, moment, die)
        with pytest.raises(Killed):
            work(start(node, directory))
        setattr(node, moment, lambda method: None)
        again = start(node, directory)
        again.resume()
        yield node, again


@pytest.mark.parametrize("moment", ["before", "after"])
def test_attack_48_killed_at_any_request_sends_once(tmp_path: Path, moment: str) -> None:
    killed = killed_at_each_request(tmp_path, moment, lambda sender: sender.send("k", CALL))
    for point, (node, again) in enumerate(killed):
        receipt = again.send("k", CALL)
        assert again.send("k", CALL) == receipt
        assert [tx.data for tx in node.mined()] == [b"move"], f"killed {moment} request {point}"
        assert again.journal.open_intents(ACCOUNT.address) == []


@pytest.mark.parametrize("method", ["record", "sign", "settle"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_attack_48_killed_around_any_journal_write_sends_once(
    tmp_path: Path, method: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    real = getattr(sender.journal, method)

    def dying(*arguments: object) -> None:
        if moment == "after":
            real(*arguments)
        raise Killed

    monkeypatch.setattr(sender.journal, method, dying)
    with pytest.raises(Killed):
        sender.send("k", CALL)
    sender.journal.close()

    again = start(node, tmp_path)
    again.resume()
    again.send("k", CALL)
    assert [tx.data for tx in node.mined()] == [b"move"]


def test_killed_while_signing_leaves_no_nonce_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    journal.record("k", ACCOUNT.address, CALL)

    def make(nonce: int) -> NoReturn:
        raise Killed

    with pytest.raises(Killed):
        journal.sign("k", 5, make)
    kept = journal.get("k")
    assert kept is not None and kept.state is State.RECORDED and kept.nonce is None


def test_resume_broadcasts_what_was_signed_and_never_sent(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)

    def die(method: str) -> None:
        if method == "eth_sendRawTransaction":
            raise Killed

    node.before = die
    with pytest.raises(Killed):
        sender.submit("k", CALL)
    node.before = lambda method: None
    assert node.mined() == []
    start(node, tmp_path).resume()
    assert len(node.mined()) == 1


def test_rpc_lost_in_the_middle_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    sender = start(node, tmp_path)
    sender.submit("k", CALL)
    node.down = True
    with pytest.raises(RpcUnreachable):
        sender.wait("k")
    node.down = False
    node.mine()
    assert sender.wait("k").ok
    assert len(node.mined()) == 1


def test_refused_call_is_never_sent_and_names_the_custom_error(tmp_path: Path) -> None:
    abi: list[Any] = [
        {"type": "error", "name": "TooLate", "inputs": [{"name": "deadline", "type": "uint64"}]}
    ]
    data = selector(abi[0]) + encode_arguments(abi[0]["inputs"], [77])
    node = FakeNode()
    node.call_failure = RpcFailed("eth_call", 3, "execution reverted", "0x" + data.hex())
    sender = start(node, tmp_path)
    sender.registry = Registry([abi])
    with pytest.raises(Reverted, match=r"TooLate\(deadline=77\)") as caught:
        sender.send("k", CALL)
    assert caught.value.error == "TooLate" and caught.value.arguments == {"deadline": 77}
    assert "eth_sendRawTransaction" not in node.requests
    node.call_failure = None
    assert sender.send("k", CALL).ok, "a refused intent had no effect, so it may be tried again"


def test_unfunded_account_is_told_before_anything_is_signed(tmp_path: Path) -> None:
    node = FakeNode()
    node.balances[ACCOUNT.address] = 10
    sender = start(node, tmp_path)
    with pytest.raises(InsufficientFunds) as caught:
        sender.send("k", CALL)
    assert ACCOUNT.address in caught.value.hint
    assert sender.journal.open_intents(ACCOUNT.address) == []


def test_spending_limit_counts_what_is_spent_and_what_is_open(tmp_path: Path) -> None:
    node = FakeNode()
    one = start(node, tmp_path / "probe").simulate(CALL).cost_wei
    sender = start(node, tmp_path, spend_limit_wei=2 * one)
    sender.send("a", CALL)
    sender.send("b", CALL)
    with pytest.raises(SpendLimit):
        sender.send("c", CALL)
    assert len(node.mined()) == 2


def test_gas_above_the_cap_asks(tmp_path: Path) -> None:
    sender = start(FakeNode(), tmp_path, max_fee_per_gas_wei=10**8)
    with pytest.raises(Ask, match="gas costs"):
        sender.send("k", CALL)


def test_stuck_transaction_is_replaced_at_the_same_nonce(tmp_path: Path) -> None:
    node = FakeNode(automine=False, min_fee=5 * 10**9)
    time = Time(on_sleep=lambda: node.mine())
    sender = start(node, tmp_path, time, stuck_after_s=3.0)
    receipt = sender.send("k", CALL)
    intent = sender.journal.get("k")
    assert intent is not None and len(intent.attempts) > 1
    assert receipt.tx_hash == intent.attempts[-1].hash
    assert [tx.nonce for tx in node.mined()] == [0]


def test_stuck_transaction_stays_below_the_cap_and_times_out(tmp_path: Path) -> None:
    node = FakeNode(automine=False, min_fee=10**12)
    time = Time(on_sleep=lambda: node.mine())
    cap = 4 * 10**9
    sender = start(node, tmp_path, time, stuck_after_s=3.0, confirm_timeout_s=60.0, max_fee_per_gas_wei=cap)
    with pytest.raises(ConfirmationTimeout):
        sender.send("k", CALL)
    intent = sender.journal.get("k")
    assert intent is not None and intent.state is State.SIGNED
    assert max(a.max_fee_wei for a in intent.attempts) <= cap


def test_nonce_taken_by_another_program_is_replaced_only_when_final(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    signed_again_at: list[int] = []
    time = Time()
    sender = start(node, tmp_path, time)
    sender.submit("k", CALL)
    node.pool.clear()
    node.foreign(ACCOUNT.address)  # in block 1

    def tick() -> None:
        node.mine()
        intent = sender.journal.get("k")
        if intent is not None and intent.nonce == 1 and not signed_again_at:
            signed_again_at.append(len(node.blocks) - 2)

    time.on_sleep = tick
    sender.wait("k")
    assert [tx.data for tx in node.mined()] == [b"foreign", b"move"]
    assert signed_again_at and signed_again_at[0] >= 1 + 2


def test_attack_46_reorganised_transaction_is_mined_again_once(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    first = sender.send("k", CALL)
    node.reorganise(1, keep_transactions=False)
    assert node.mined() == []
    node.mine()
    sender.resume()
    second = sender.send("k", CALL)
    assert [tx.data for tx in node.mined()] == [b"move"]
    assert second.tx_hash == first.tx_hash and second.block_hash != first.block_hash


def test_transaction_moved_to_another_block_updates_its_receipt(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    sender.send("k", CALL)
    node.reorganise(1)
    node.mine()
    node.mine()
    sender.resume()
    assert sender.send("k", CALL).block_hash == node.blocks[1].hash
    assert len(node.mined()) == 1


def test_key_used_for_two_transactions_is_refused(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    sender.send("k", CALL)
    with pytest.raises(IntentConflict):
        sender.send("k", Call(TARGET, b"other", "make another move"))
    assert len(node.mined()) == 1


def test_two_threads_with_one_key_send_once_and_two_keys_get_two_nonces(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    sender = start(node, tmp_path)
    threads = [threading.Thread(target=sender.submit, args=(key, CALL)) for key in ("a", "a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    node.mine()
    assert sorted(tx.nonce for tx in node.mined()) == [0, 1, 2]


def test_gap_in_the_nonces_is_filled_first(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    sender = start(node, tmp_path)
    for key in ("a", "b", "c"):
        sender.submit(key, CALL)
    node.pool.clear()  # the node forgot everything
    sender.journal.lost("b")
    assert [i.nonce for i in sender.journal.open_intents(ACCOUNT.address)] == [0, 2]
    sender.submit("d", CALL)
    kept = sender.journal.get("d")
    assert kept is not None and kept.nonce == 1
    sender.resume()
    node.mine()
    assert sorted(tx.nonce for tx in node.mined()) == [0, 1, 2]


def test_journal_of_another_chain_is_refused(tmp_path: Path) -> None:
    start(FakeNode(), tmp_path)
    other = FakeNode()
    other.salt = 9
    other.blocks = [other._block(0)]
    with pytest.raises(WrongChain):
        start(other, tmp_path)


def test_waiting_asks_less_and_less_and_hands_over_anew_now_and_then(tmp_path: Path) -> None:
    node, time = FakeNode(automine=False), Time()
    sender = start(node, tmp_path, time, poll_s=0.05, heal_every_s=1e9, confirm_timeout_s=60.0)
    sender.submit("k", CALL)
    node.requests.clear()
    with pytest.raises(ConfirmationTimeout):
        sender.wait("k")
    asked = node.requests.count("eth_getTransactionReceipt")
    assert 60.0 / sender.policy.longest_poll_s <= asked <= 60.0 / sender.policy.longest_poll_s + 15
    assert 8 <= node.requests.count("eth_sendRawTransaction") <= 60.0 / sender.policy.rebroadcast_every_s
    node.pool.clear()  # the node forgets it
    time.on_sleep = lambda: node.mine() if node.pool else None
    assert sender.wait("k").ok


def test_a_transaction_counts_once_it_has_its_confirmations(tmp_path: Path) -> None:
    node, time = FakeNode(), Time()
    sender = start(node, tmp_path, time, confirmations=3)
    heads: list[int] = []

    def mine() -> None:
        heads.append(len(node.blocks) - 1)
        node.mine()

    time.on_sleep = mine
    receipt = sender.send("k", CALL)
    assert len(node.blocks) - 1 == receipt.block_number + 3 and len(heads) == 3


def test_a_transaction_whose_block_goes_before_it_is_confirmed_is_waited_for_again(tmp_path: Path) -> None:
    node, time = FakeNode(), Time()
    sender = start(node, tmp_path, time, confirmations=2)
    seen: list[str] = []

    def on_sleep() -> None:
        if not seen:
            seen.append(node.blocks[-1].hash)
            node.reorganise(1)
        node.mine()

    time.on_sleep = on_sleep
    receipt = sender.send("k", CALL)
    assert receipt.block_hash != seen[0] and [tx.data for tx in node.mined()] == [b"move"]


def test_tip_and_bump_are_the_operators(tmp_path: Path) -> None:
    node, time = FakeNode(automine=False), Time()
    sender = start(node, tmp_path, time, tip_wei=7 * 10**9, bump_percent=50, stuck_after_s=3.0)
    intent = sender.submit("k", CALL)
    assert intent.attempts[-1].tip_wei == 7 * 10**9
    assert intent.attempts[-1].max_fee_wei == 2 * node.base_fee + 7 * 10**9
    time.on_sleep = lambda: node.mine() if time.now > 20 else None
    sender.wait("k")
    again = sender.journal.get("k")
    assert again is not None and len(again.attempts) > 1
    assert again.attempts[1].tip_wei == 7 * 10**9 * 3 // 2 + 1
    assert again.attempts[1].max_fee_wei == again.attempts[0].max_fee_wei * 3 // 2 + 1


def test_finality_may_be_what_the_node_calls_finalized(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path, final_blocks=None)
    node.failing.add(CALL.data)
    with pytest.raises(Reverted):
        sender.send("k", CALL)
    node.failing.clear()
    for _ in range(40):
        node.mine()
    with pytest.raises(Reverted):  # deep, and not final yet
        sender.send("k", CALL)
    node.finalized = len(node.blocks) - 2
    assert sender.send("k", CALL).ok


def test_a_call_is_tried_on_top_of_what_waits(tmp_path: Path) -> None:
    """A race that another transaction in the pool has won costs no gas."""
    node = FakeNode()
    sender = start(node, tmp_path)
    lost = RpcFailed("eth_call", 3, "execution reverted", "0x1234")

    def eth_call(transaction: dict, tag: str) -> str:
        if tag == "pending":
            raise lost
        return "0x"

    node.eth_call = eth_call
    with pytest.raises(Reverted, match="no transaction was sent"):
        sender.send("k", CALL)
    assert node.mined() == []


def test_a_node_without_a_pending_state_is_asked_about_its_latest_block(tmp_path: Path) -> None:
    node = FakeNode()
    sender = start(node, tmp_path)
    asked: list[str] = []

    def eth_call(transaction: dict, tag: str) -> str:
        asked.append(tag)
        if tag == "pending":
            raise RpcFailed("eth_call", -32602, "pending state is not available", "")
        return "0x"

    node.eth_call = eth_call
    assert sender.send("k", CALL).ok and asked == ["pending", "latest"]


def test_w8_a_receipt_that_does_not_come_is_told_once_with_its_reason(tmp_path: Path) -> None:
    node = FakeNode()
    time = Time(on_sleep=lambda: node.mine())
    sender = start(node, tmp_path, time, confirm_timeout_s=60.0)
    node.unreceipted = lambda tx_hash: True
    sender.submit("k", CALL)
    assert sender.troubles() == {}
    with pytest.raises(ConfirmationTimeout, match="mined, but the node gives no receipt of it"):
        sender.wait("k")
    (said,) = sender.troubles().items()
    assert said[0] == "receipt of make a move" and "it goes on by itself" in said[1]
    node.unreceipted = lambda tx_hash: False
    assert sender.send("k", CALL).ok and sender.troubles() == {}
    assert [tx.data for tx in node.mined()] == [b"move"]


def test_w11_whoever_has_the_key_makes_the_same_secret_and_nobody_else(tmp_path: Path) -> None:
    node = FakeNode()
    here, there = start(node, tmp_path / "here"), start(node, tmp_path / "there")
    other = Sender(node, Account.from_key(b"\x02" * 32), Journal(tmp_path / "other.db"))
    assert here.secret(b"a") == there.secret(b"a") != here.secret(b"b")
    assert len(here.secret(b"a")) == 32 and other.secret(b"a") != here.secret(b"a")
    assert ACCOUNT.key not in here.secret(b"a") + here.secret(b"b")

"""The maximum fee of a due call rises in steps, the nearer its deadline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.chain.eth.fees import UNIT, Due, FeePolicy, TooDear, most_wei
from assay.chain.eth.journal import Call
from assay.chain.eth.rpc import RpcFailed
from assay.chain.eth.sender import Sender
from assay.protocol.errors import AssayError
from tests.unit.chain.eth.fake_node import BLOCK_S, GAS, FakeNode
from tests.unit.chain.eth.test_sender import TARGET, Time, start

GWEI = 10**9
MOVE = Due(begins=0, ends=100, stake=440 * UNIT)
DEAR: dict[str, Any] = {"max_fee_per_gas_wei": 10 * GWEI, "emergency_fee_per_gas_wei": 100 * GWEI}


def told_by(sender: Sender) -> list[str]:
    said: list[str] = []
    sender.told = lambda what, text: said.append(text)
    return said


def at(node: FakeNode, seconds: int) -> None:
    """Sets the chain's time."""
    while (len(node.blocks) - 1) * BLOCK_S < seconds:
        node.mine()


def test_the_cap_rises_with_the_clock_in_three_steps_and_for_nothing_else() -> None:
    policy = FeePolicy(**DEAR)
    caps = [most_wei(policy, now, MOVE, GAS) // GWEI for now in (0, 24, 25, 49, 50, 74, 75, 99, 150)]
    assert caps == [10, 10, 40, 40, 70, 70, 100, 100, 100]
    assert most_wei(policy, 99, None, GAS) == 10 * GWEI
    below = FeePolicy(max_fee_per_gas_wei=10 * GWEI, emergency_fee_per_gas_wei=GWEI)
    assert most_wei(below, 99, MOVE, GAS) == 10 * GWEI


def test_never_more_is_paid_than_what_is_at_stake_is_worth() -> None:
    worth = 50 * GWEI * GAS // 440
    policy = FeePolicy(**DEAR, token_worth_wei=worth)
    assert most_wei(policy, 99, MOVE, GAS) in range(50 * GWEI - 440, 50 * GWEI + 1)
    assert most_wei(policy, 99, Due(0, 100, UNIT), GAS) == 10 * GWEI


def test_w3_a_move_is_made_above_the_usual_cap_before_its_clock_is_over(tmp_path: Path) -> None:
    node, move = FakeNode(), Call(TARGET, b"move", "make a move", due=MOVE)
    sender = start(node, tmp_path, **DEAR)
    said = told_by(sender)
    node.base_fee = 60 * GWEI
    at(node, 10)
    with pytest.raises(TooDear, match="due in 90 s, or 440 tokens are lost") as refused:
        sender.send("k", move)
    assert "rises to 100 gwei" in refused.value.hint
    assert len(said) == 1 and "gas costs 60 gwei and the limit is 10 gwei" in said[0]
    at(node, 60)
    assert sender.send("k", move).ok
    assert len(said) == 2 and "without it 440 tokens are lost" in said[1]
    with pytest.raises(TooDear):
        sender.send("other", Call(TARGET, b"other", "take a shard"))
    assert [tx.data for tx in node.mined()] == [b"move"] and len(said) == 2


def test_w3_a_stuck_move_is_raised_past_the_usual_cap_with_all_that_is_before_it(tmp_path: Path) -> None:
    node = FakeNode(automine=False)
    time = Time(on_sleep=lambda: node.mine())
    sender = start(node, tmp_path, time, heal_every_s=1.0, confirm_timeout_s=90.0, **DEAR)
    said = told_by(sender)
    sender.submit("ordinary", Call(TARGET, b"ordinary", "take a shard"))
    node.min_fee = node.base_fee = 60 * GWEI
    at(node, 40)
    sender.submit("move", Call(TARGET, b"move", "make a move", due=Due(0, 80, 440 * UNIT)))
    sender.wait("move")
    assert [tx.data for tx in node.mined()] == [b"ordinary", b"move"]
    assert any("take a shard" in text for text in said)
    assert len(node.blocks) * BLOCK_S <= 80


class TooCheap(FakeNode):
    """Takes no transaction for what it pays, whatever that is."""

    def __init__(self) -> None:
        super().__init__()
        self.offered = 0

    def eth_sendRawTransaction(self, raw: str) -> str:
        self.offered += 1
        raise RpcFailed("eth_sendRawTransaction", -32000, "transaction underpriced", "")


def test_attack_T65_an_endpoint_that_finds_all_too_cheap_has_two_versions_signed(
    tmp_path: Path,
) -> None:
    node = TooCheap()
    sender = start(node, tmp_path)
    with pytest.raises(AssayError):
        sender.send("k", Call(TARGET, b"move", "make a move"))
    kept = sender.journal.get("k")
    assert node.offered == 2 and kept is not None and len(kept.attempts) == 2


def test_attack_T65_no_replacement_exceeds_the_spending_limit(tmp_path: Path) -> None:
    node = TooCheap()
    first = GAS * 3 * GWEI  # twice the base fee and the tip, with room for half as much again
    sender = start(node, tmp_path, spend_limit_wei=first)
    with pytest.raises(AssayError):
        sender.send("k", Call(TARGET, b"move", "make a move"))
    assert sender.journal.committed_wei(sender.address) <= first

"""The chain adapter against a real local node: compile, deploy, send, follow, crash, reorganise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account

from assay.chain.contracts.artifacts import Artifact, Artifacts
from assay.chain.contracts.deploy import (
    MAX_RUNTIME_BYTES,
    Deployment,
    DeploymentFailed,
    NoDeployment,
    Planned,
    deploy,
    prepare,
)
from assay.chain.eth.anvil import AnvilFailed, dev_account
from assay.chain.eth.contract import Contract, WrongAnswer
from assay.chain.eth.errors import Registry
from assay.chain.eth.events import Event, EventFollower, RolledBack
from assay.chain.eth.journal import Call, Journal, WrongChain
from assay.chain.eth.rpc import HttpRpc, Rpc
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol.errors import InsufficientFunds, Reverted, RpcUnreachable
from assay.protocol.types import ZERO_ADDRESS
from scripts.generate import artifacts
from tests.fakes.anvil import Anvil, AnvilOptions

SOURCE = """
// SPDX-License-Identifier: MIT
pragma solidity ^0.8.28;
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

contract Ledger {
    address public immutable counter;
    constructor(address counter_) { counter = counter_; }
}

contract Counter is ERC20 {
    struct Note { uint64 at; string text; }
    error TooMuch(uint256 asked, uint256 most);
    event Counted(address indexed who, uint256 total, Note note);
    address public immutable ledger;
    uint256 public total;

    constructor(address ledger_) ERC20("Counter", "CNT") { ledger = ledger_; _mint(msg.sender, 1000); }

    function add(uint256 amount, Note calldata note) external {
        if (amount > 100) revert TooMuch(amount, 100);
        total += amount;
        emit Counted(msg.sender, total, note);
    }

    function before(uint256 last) external {
        if (block.number > last) revert TooMuch(block.number, last);
        total += 1;
    }
}
"""
PLAN = [
    Planned("Ledger", "Ledger", lambda at: [at["Counter"]]),
    Planned("Counter", "Counter", lambda at: [at["Ledger"]]),
]


def compiled(source: str) -> Artifacts:
    """One source with the project's settings and compiler."""
    made = artifacts.compiled(artifacts.request(artifacts.with_imports({"src/Small.sol": source})))
    return Artifacts({name: Artifact.parse(document) for name, document in made.items()}, "")


@pytest.fixture(scope="module")
def small() -> Artifacts:
    return compiled(SOURCE)


def open_sender(rpc: HttpRpc, small: Artifacts, path: Path, account: Any = None, **policy: Any) -> Sender:
    return Sender(
        rpc,
        account or dev_account(0),
        Journal(path / "journal.db"),
        Registry(a.abi for a in small.values()),
        FeePolicy(**{"poll_s": 0.01, "confirm_timeout_s": 20.0, **policy}),
    )


def counter(rpc: HttpRpc, small: Artifacts, deployment: Deployment) -> Contract:
    return Contract(rpc, "Counter", deployment.addresses["Counter"], small["Counter"].abi)


@pytest.mark.long
def test_deployed_contracts_know_one_another_and_the_file_is_checked(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path
) -> None:
    sender = open_sender(rpc, small, tmp_path)
    deployment = deploy(sender, small, PLAN)
    ledger = Contract(rpc, "Ledger", deployment.addresses["Ledger"], small["Ledger"].abi)
    assert ledger.read("counter") == deployment.addresses["Counter"]
    assert counter(rpc, small, deployment).read("ledger") == deployment.addresses["Ledger"]
    path = tmp_path / "deployment.json"
    deployment.save(path)
    assert Deployment.load(path, rpc) == deployment
    assert deploy(sender, small, PLAN) == deployment, "a repeated deployment changes nothing"

    replace(deployment, first_block=10**6).save(path)
    with pytest.raises(NoDeployment, match="begin at block 1000000, and the chain is at block") as early:
        Deployment.load(path, rpc)
    assert "synced" in early.value.hint
    deployment.save(path)
    rpc.request("anvil_setCode", [deployment.addresses["Ledger"], "0x00"])
    with pytest.raises(NoDeployment, match="other code"):
        Deployment.load(path, rpc)
    path.write_text("{}")
    with pytest.raises(NoDeployment):
        Deployment.load(path, rpc)


class Killed(BaseException):
    """The process dies here."""


class Dying(Rpc):
    """A node at which the asker dies before, or after, its n-th request of a method."""

    def __init__(self, rpc: HttpRpc, method: str, place: int, after: bool) -> None:
        self.rpc, self.method, self.left, self.after = rpc, method, place, after

    def request(self, method: str, params: list) -> Any:
        dies = method == self.method and self.left == 0
        self.left -= method == self.method
        answer = None if dies and not self.after else self.rpc.request(method, params)
        if dies:
            raise Killed
        return answer


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", range(len(PLAN)))
def test_deployment_goes_on_after_a_cut_at_any_transaction(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path, place: int, after: bool
) -> None:
    begin = int(rpc.request("eth_getTransactionCount", [dev_account(0).address, "latest"]), 16)
    dying = open_sender(Dying(rpc, "eth_sendRawTransaction", place, after), small, tmp_path)  # type: ignore[arg-type]
    told: list[str] = []
    with pytest.raises(Killed):
        deploy(dying, small, PLAN, told=lambda name, receipt: told.append(name))
    assert len(told) == place, "the fault fired where it was meant to"
    dying.journal.close()

    sender = open_sender(rpc, small, tmp_path)
    assert prepare(sender, small, PLAN).missing == tuple(p.name for p in PLAN[place + 1 :])
    deployment = deploy(sender, small, PLAN)
    assert counter(rpc, small, deployment).read("ledger") == deployment.addresses["Ledger"]
    sent = int(rpc.request("eth_getTransactionCount", [dev_account(0).address, "latest"]), 16) - begin
    assert sent == len(PLAN)


def test_a_deployment_that_began_is_not_gone_on_with_otherwise(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path
) -> None:
    sender = open_sender(Dying(rpc, "eth_sendRawTransaction", 0, True), small, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(Killed):
        deploy(sender, small, PLAN)
    sender.journal.close()
    sender, other = open_sender(rpc, small, tmp_path), Planned("Ledger", "Ledger", lambda at: [ZERO_ADDRESS])
    count = sender.next_nonce()
    with pytest.raises(DeploymentFailed, match="began with another Ledger"):
        deploy(sender, small, [other, PLAN[1]])
    sender.send("foreign", Call(dev_account(1).address, b"", "pay", 1))
    with pytest.raises(DeploymentFailed, match="would land elsewhere; nothing was sent"):
        deploy(sender, small, PLAN)
    assert sender.next_nonce() == count + 1, "neither refusal sent anything"
    assert deploy(sender, small, PLAN, label="second").addresses["Ledger"] != ZERO_ADDRESS


def test_contracts_that_are_there_already_belong_to_the_set(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path
) -> None:
    sender = open_sender(rpc, small, tmp_path)
    first = deploy(sender, small, PLAN)
    there = {"Counter": first.addresses["Counter"]}
    second = deploy(sender, small, PLAN[:1], label="beside", existing=there)
    assert second.addresses["Counter"] == there["Counter"]
    ledger = Contract(rpc, "Ledger", second.addresses["Ledger"], small["Ledger"].abi)
    assert ledger.read("counter") == there["Counter"]
    assert second.code_hashes["Counter"] == first.code_hashes["Counter"]


def test_foreign_transaction_amid_a_deployment_is_noticed(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path
) -> None:
    sender = open_sender(rpc, small, tmp_path)

    def interfere(name: str, receipt: object) -> None:
        open_sender(rpc, small, tmp_path / "other").send("x", Call(dev_account(1).address, b"", "pay", 1))

    with pytest.raises(DeploymentFailed, match="landed at"):
        deploy(sender, small, PLAN, told=interfere)


def test_deployment_file_of_another_chain_is_refused(rpc: HttpRpc, small: Artifacts, tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    deploy(open_sender(rpc, small, tmp_path), small, PLAN).save(path)
    with Anvil(AnvilOptions(chain_id=5)) as other, pytest.raises(WrongChain):
        Deployment.load(path, HttpRpc(other.url))


@pytest.mark.long
def test_refusals_name_the_custom_error_before_and_after_mining(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path
) -> None:
    sender = open_sender(rpc, small, tmp_path)
    target = counter(rpc, small, deploy(sender, small, PLAN))
    note = {"at": 1, "text": "x"}
    with pytest.raises(Reverted, match="no transaction was sent") as before:
        sender.send("too much", target.call("add", 101, note))
    assert (before.value.error, before.value.arguments) == ("TooMuch", {"asked": 101, "most": 100})

    rpc.request("evm_setAutomine", [False])
    last = int(rpc.request("eth_blockNumber", []), 16) + 1
    intent = sender.submit("late", target.call("before", last))
    rpc.request("anvil_dropTransaction", [intent.attempts[-1].hash])
    rpc.request("anvil_mine", ["0x2"])
    rpc.request("evm_setAutomine", [True])
    for _ in range(2):  # the outcome stays what it was
        with pytest.raises(Reverted, match="gas is spent") as after:
            sender.send("late", target.call("before", last))
        assert after.value.error == "TooMuch" and after.value.arguments["most"] == last


def test_unfunded_account_gets_a_clear_error(rpc: HttpRpc, small: Artifacts, tmp_path: Path) -> None:
    target = counter(rpc, small, deploy(open_sender(rpc, small, tmp_path), small, PLAN))
    poor = open_sender(rpc, small, tmp_path / "poor", Account.from_key(b"\x07" * 32))
    with pytest.raises(InsufficientFunds) as caught:
        poor.send("k", target.call("add", 1, {"at": 1, "text": ""}))
    assert poor.address in caught.value.hint
    with pytest.raises(InsufficientFunds):
        poor.send("v", Call(dev_account(1).address, b"", "pay", 10**18))
    assert poor.journal.open_intents(poor.address) == []


def test_node_killed_with_a_transaction_under_way_loses_nothing(small: Artifacts, tmp_path: Path) -> None:
    options = AnvilOptions(state_file=tmp_path / "state.json", log_file=tmp_path / "anvil.log")
    with Anvil(options) as node:
        rpc = HttpRpc(node.url, timeout_s=5.0)
        sender = open_sender(rpc, small, tmp_path)
        deployment = deploy(sender, small, PLAN)
        target = counter(rpc, small, deployment)
        rpc.request("evm_setAutomine", [False])
        sender.submit("k", target.call("add", 3, {"at": 1, "text": "three"}))
        node.stop()
        with pytest.raises(RpcUnreachable, match="did not answer") as caught:
            sender.wait("k")
        assert caught.value.hint
        sender.journal.close()
    with Anvil(options) as node:
        rpc = HttpRpc(node.url, timeout_s=5.0)
        again = open_sender(rpc, small, tmp_path)
        again.resume()
        assert again.send("k", target.call("add", 3, {"at": 1, "text": "three"})).ok
        assert counter(rpc, small, deployment).read("total") == 3


def test_attack_46_reorganised_node_gets_the_same_transaction_again(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path
) -> None:
    sender = open_sender(rpc, small, tmp_path)
    deployment = deploy(sender, small, PLAN)
    target = counter(rpc, small, deployment)
    follower = EventFollower(
        rpc,
        {"Counter": (target.address, target.abi)},
        tmp_path / "events.db",
        first_block=deployment.first_block,
    )
    follower.poll()
    snapshot = rpc.request("evm_snapshot", [])
    sender.send("k", target.call("add", 5, {"at": 9, "text": "five"}))
    (event,) = follower.poll()
    assert isinstance(event, Event) and event.name == "Counted"
    assert event.arguments == {"who": sender.address, "total": 5, "note": {"at": 9, "text": "five"}}

    assert rpc.request("evm_revert", [snapshot])
    rpc.request("evm_increaseTime", [100])
    rpc.request("anvil_mine", ["0x1"])
    assert target.read("total") == 0
    (rolled_back,) = follower.poll()
    assert isinstance(rolled_back, RolledBack) and rolled_back.events == (event,)

    sender.resume()
    assert sender.wait("k").ok  # Anvil mines a moment after it has taken the transaction
    assert target.read("total") == 5
    (again,) = follower.poll()
    assert isinstance(again, Event)
    assert again.arguments == event.arguments and again.block_hash != event.block_hash
    assert list(follower.history(lambda _, name: name == "Counted")) == [again]


def test_views_of_a_missing_contract_are_refused(rpc: HttpRpc, small: Artifacts) -> None:
    nobody = Contract(rpc, "Counter", "0x" + "12" * 20, small["Counter"].abi)
    with pytest.raises(WrongAnswer, match="no such contract"):
        nobody.read("total")


def test_node_that_is_not_there_is_said_without_the_urls_secret() -> None:
    with pytest.raises(RpcUnreachable) as caught:
        HttpRpc("http://127.0.0.1:9/v3/secret-key", timeout_s=1.0).request("eth_chainId", [])
    assert "secret-key" not in str(caught.value) + caught.value.hint


def test_taken_port_is_said(anvil: Anvil) -> None:
    with pytest.raises(AnvilFailed, match="status"):
        Anvil(AnvilOptions(port=anvil.port))


def test_node_dies_with_the_process_that_started_it() -> None:
    script = (
        "import time; from tests.fakes.anvil import Anvil; print(Anvil().pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(pid) or sys.platform != "linux"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").exists() or " Z " not in Path(f"/proc/{pid}/stat").read_text()


TOO_LARGE = f"""
pragma solidity ^0.8.28;
interface I {{}}
contract B {{}}
contract A {{
    bytes private constant C = hex'{"ab" * 25_000}';
    function f() external pure returns (bytes memory) {{ return C; }}
}}
"""


@pytest.mark.long
def test_contracts_that_no_chain_would_take_are_refused_before_anything_is_sent(
    rpc: HttpRpc, small: Artifacts, tmp_path: Path
) -> None:
    large = compiled(TOO_LARGE)
    sender = open_sender(rpc, small, tmp_path)
    with pytest.raises(DeploymentFailed, match=str(MAX_RUNTIME_BYTES)):
        deploy(sender, large, [Planned("B", "B", lambda at: []), Planned("A", "A", lambda at: [])])
    with pytest.raises(DeploymentFailed, match="interface"):
        deploy(sender, large, [Planned("I", "I", lambda at: [])])
    assert sender.next_nonce() == 0


def test_sources_with_errors_give_the_compilers_words() -> None:
    with pytest.raises(SystemExit, match="ParserError"):
        compiled("pragma solidity ^0.8.28; contract A { uint256 x }")

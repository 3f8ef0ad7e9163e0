"""The node dies in the middle of a command: that is said, and the same command, given again, is done once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.app.output import Exit
from assay.app.settings import Flags, Settings
from assay.chain.eth.rpc import HttpRpc
from assay.devnet.chain import deploy_market, fund
from assay.protocol.types import Address, Wei
from tests.fakes.anvil import Anvil, AnvilOptions
from tests.fakes.command import Ran, run

TOK = 10**18
GENESIS_S = 1_700_000_000


class Place:
    """A market on its own chain, which can be stopped and restarted from its state file."""

    def __init__(self, folder: Path) -> None:
        self.home, self.state, self.earlier = (
            folder / "home",
            folder / "chain.state",
            folder / "earlier.state",
        )
        self.chain = Anvil(AnvilOptions(state_file=self.state, genesis_time_s=GENESIS_S))
        flags = Flags(home=str(self.home), rpc_url=self.chain.url)
        deploy_market(Settings(flags))
        made = self.assay("account", "new", "client", "--write-password")
        fund(Settings(flags), Address(made.data["address"]), Wei(100 * TOK))
        self.chain.stop()
        shutil.copy(self.state, self.earlier)
        self.start()

    def start(self) -> None:
        options = AnvilOptions(state_file=self.state, port=self.chain.port, genesis_time_s=GENESIS_S)
        self.chain = Anvil(options)

    def assay(self, *arguments: str) -> Ran:
        common = ["--home", str(self.home), "-r", self.chain.url, "--json", "--account", "client", "--yes"]
        return run(*common, *arguments)

    def tokens(self) -> tuple[int, int]:
        data = self.assay("token", "balance").data
        return int(data["wallet"]), int(data["free"])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.chain.stop()


@pytest.mark.long
@pytest.mark.parametrize("forgotten", [False, True], ids=["kept", "forgotten"])
@pytest.mark.parametrize("sent", [1, 2], ids=["approval", "deposit"])
def test_attack_47_a_command_cut_off_by_the_node_is_finished_once(
    place: Place, monkeypatch: pytest.MonkeyPatch, sent: int, forgotten: bool
) -> None:
    """`forgotten`: the node comes back from an older state, without the transaction it had taken."""
    ask, seen = HttpRpc.ask, 0

    def dying(self: HttpRpc, method: str, params: list[Any], timeout_s: float) -> Any:
        nonlocal seen
        answer = ask(self, method, params, timeout_s)
        seen += method == "eth_sendRawTransaction"
        if seen == sent and place.chain.alive():
            # Anvil that is ended while it mines may write what a block did, and not the block.
            while method == "eth_sendRawTransaction" and not ask(
                self, "eth_getTransactionReceipt", [answer], timeout_s
            ):
                pass
            place.chain.stop()
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(HttpRpc, "ask", dying)
        cut = place.assay("token", "deposit", "5tok")
    assert cut.status == Exit.UNREACHABLE and cut.error["code"] == "rpc-unreachable"
    assert not place.chain.alive()
    if forgotten:
        shutil.copy(place.earlier, place.state)
    place.start()
    if forgotten:  # until a chain has grown past what was seen of it, it is not acted on (decision 0070)
        HttpRpc(place.chain.url).request("anvil_mine", ["0x3"])
    assert place.assay("token", "deposit", "5tok").status == Exit.OK
    assert place.tokens() == (95 * TOK, 5 * TOK)
    assert place.assay("token", "deposit", "5tok").status == Exit.OK, "the third time it is meant anew"
    assert place.tokens() == (90 * TOK, 10 * TOK)


@pytest.mark.long
def test_a_node_that_is_gone_is_said_by_every_kind_of_command(place: Place) -> None:
    place.chain.stop()
    for command in (("token", "balance"), ("token", "deposit", "1tok"), ("job", "ls"), ("dispute", "ls")):
        gone = place.assay(*command)
        assert gone.status == Exit.UNREACHABLE and gone.error["code"] == "rpc-unreachable", command

"""Accounts, tokens and stakes by hand, on a running devnet."""

from __future__ import annotations

import json
import re
import stat
import time
from pathlib import Path

import pytest

from assay.app import earnings
from assay.app.devnet_record import recorded
from assay.app.output import Exit
from assay.chain.eth.rpc import HttpRpc, RpcFailed
from assay.protocol.types import Role
from assay.protocol.words import show_amount
from tests.fakes.command import run
from tests.integration.cli.conftest import Assay

TOK = 10**18
KEY = "0x" + "4c" * 32
ADDRESS_OF_KEY = "0xdB00079cad3e665853Bf766eFe26F4C38cdbdCDA"


def wallet_and_free(assay: Assay, name: str = "client") -> tuple[int, int]:
    data = assay("token", "balance", name).data
    return int(data["wallet"]), int(data["free"])


def test_a_fresh_account_is_a_private_file_and_is_listed(assay: Assay, home: Path) -> None:
    made = assay("account", "new", "fresh")
    listed = {entry["name"]: entry["address"] for entry in assay("account", "ls").data}
    assert listed["fresh"] == made.data["address"]
    path = home / "keystore" / "fresh"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["version"] == 3
    again = assay("account", "new", "fresh")
    assert again.status == Exit.CONFIG and "exists" in again.error["message"]


def test_a_key_is_imported_from_standard_input_and_never_shown(assay: Assay, home: Path) -> None:
    imported = assay("account", "import", "known", stdin=KEY + "\n")
    assert imported.data["address"] == assay("account", "balance", "known").data["address"] == ADDRESS_OF_KEY
    path = home / "keystore" / "known"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = KEY.removeprefix("0x")
    assert secret not in imported.out + imported.err and secret not in path.read_text()


@pytest.mark.parametrize("text", ["", "not a key", "0x1234", KEY + "00", "0x" + "00" * 32])
def test_what_is_no_key_is_refused_and_not_quoted(assay: Assay, home: Path, text: str) -> None:
    refused = assay("account", "import", "bad", stdin=text + "\n")
    assert refused.status in (Exit.USAGE, Exit.CONFIG) and "nothing was stored" in refused.error["message"]
    assert len(text) < 5 or text.removeprefix("0x") not in refused.err
    assert not (home / "keystore" / "bad").exists()


def test_tokens_go_into_the_vault_and_out_again(assay: Assay) -> None:
    wallet, free = wallet_and_free(assay)
    assert assay("token", "deposit", "12.5tok").data["block"] > 0
    assert wallet_and_free(assay) == (wallet - 25 * TOK // 2, free + 25 * TOK // 2)
    assert assay("token", "withdraw", "2500000000000000000wei").status == Exit.OK
    assert wallet_and_free(assay) == (wallet - 10 * TOK, free + 10 * TOK)


def test_the_faucet_gives_tokens_and_ether(assay: Assay) -> None:
    assay("account", "new", "thirsty")
    assert assay("token", "faucet", "thirsty", "3tok").status == Exit.OK
    data = assay("account", "balance", "thirsty").data
    assert int(data["wallet"]) == 3 * TOK and int(data["ether"]) > 0


def test_a_stake_is_deposited_listed_unbonded_and_not_yet_withdrawn(assay: Assay) -> None:
    wallet, free = wallet_and_free(assay)
    assert assay("stake", "deposit", "40tok", "--role", "solver").status == Exit.OK
    assert sum(wallet_and_free(assay)) == wallet + free - 40 * TOK
    assert assay("stake", "ls").data["solver"]["active"] == str(40 * TOK)
    assert assay("stake", "unbond", "15tok", "--role", "solver").status == Exit.OK
    stake = assay("stake", "ls").data["solver"]
    assert (stake["active"], stake["unbonding"]) == (str(25 * TOK), str(15 * TOK))
    (request,) = stake["requests"]
    assert (request["index"], request["amount"]) == (0, str(15 * TOK))
    for which in ((), ("--index", "0")):
        early = assay("stake", "withdraw", "--role", "solver", *which)
        assert early.status == Exit.REVERTED and early.error["code"] == "not-due"
        assert "15 tok" in early.error["message"]
        assert re.search("in (7 d|6 d 23 h);", early.error["message"])
    assert assay("stake", "withdraw", "--role", "verifier").error["code"] == "not-found"
    assert assay("devnet", "warp", "1d").data["seconds"] == 86_400
    later = assay("stake", "unbond", "2tok", "--role", "solver").data
    assert later["index"] == 1 and later["due"] > request["due"] + 86_000
    assert assay("devnet", "warp", "6d").data["seconds"] == 6 * 86_400
    done = assay("stake", "withdraw", "--role", "solver").data
    assert done["withdrawn"] == [0] and done["amount"] == str(15 * TOK)
    assert [entry["index"] for entry in done["later"]] == [1]
    assert assay("stake", "ls").data["solver"]["unbonding"] == str(2 * TOK)


def test_every_token_in_the_vault_is_accounted_for(assay: Assay) -> None:
    for command in (("solver",), ("verifier",), ("whistle",)):
        ledger = assay(*command, "earnings").data
        assert ledger["reconciles"] is True and ledger["earned"] == "0"
        assert int(ledger["net"]["gasWei"]) > 0 and ledger["net"]["left"] == "0"
    sums: dict[str, int] = {}
    for entry in ledger["entries"]:
        assert entry["why"] and entry["time"] > 0
        sums[entry["pot"]] = sums.get(entry["pot"], 0) + int(entry["amount"])
    assert {pot: str(total) for pot, total in sums.items() if total} == {
        pot: held for pot, held in ledger["pots"].items() if held != "0"
    }
    solver = assay("--token-worth", "0.001ether", "solver", "earnings").data["net"]
    assert int(solver["gas"]) == 1000 * int(solver["gasWei"]) == -int(solver["left"]) > 0
    assert solver["seconds"] == 0 and solver["hour"] is None, "nothing was paid yet"
    kinds = {entry["kind"] for entry in ledger["entries"]}
    assert {"deposit", "withdrawal", "staked", "unbonded"} <= kinds
    assert len(assay("solver", "earnings", "--limit", "2").data["entries"]) == 2


@pytest.mark.parametrize(
    "gone", [None, RpcFailed("eth_getBlockByNumber", 4444, "pruned history unavailable", "")]
)
def test_a_node_without_old_blocks_tells_what_was_earned_but_not_when(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, gone: RpcFailed | None
) -> None:
    def get_block(rpc: object, block: object) -> None:
        if gone is not None:
            raise gone

    monkeypatch.setattr(earnings, "get_block", get_block)
    told = assay("solver", "earnings")
    assert told.data["reconciles"] is True and told.data["entries"]
    assert {entry["time"] for entry in told.data["entries"]} == {None}


def test_a_command_beside_a_running_node_takes_no_event_from_it(assay: Assay, home: Path) -> None:
    """Both follow the same account's events; while the node runs, only it writes the events' file."""
    from assay.app.settings import Flags, Settings
    from assay.app.wiring import connect

    settings = Settings(Flags(home=str(home), account="client"))
    node = connect(settings, "client", home / "nodes" / "client")
    try:
        staked = node.market.stake(node.market.me, Role.VERIFIER).active
        endpoints = len(node.market.events())
        assert assay("stake", "deposit", "1tok", "--role", "verifier").status == Exit.OK
        head = int(node.rpc.request("eth_blockNumber", []), 16)
        deadline = time.monotonic() + 10
        while node.market.block < head and time.monotonic() < deadline:  # a head stays fresh for a moment
            node.market.refresh()
        assert node.market.stake(node.market.me, Role.VERIFIER).active == staked + TOK
        assert len(node.market.events()) > endpoints
    finally:
        node.close()


def test_without_a_terminal_nothing_is_sent_unasked(assay: Assay) -> None:
    before = wallet_and_free(assay)
    unasked = assay("token", "deposit", "1tok", yes=False)
    assert unasked.status == Exit.CONFIRM and unasked.error["code"] == "needs-confirmation"
    assert "--yes" in unasked.error["hint"] and wallet_and_free(assay) == before


def test_every_setting_names_its_origin(assay: Assay, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETH_KEYSTORE", str(home / "keystore"))
    settings = assay("config").data
    assert settings["home"] == {"value": str(home), "origin": "flag"}
    assert settings["account"] == {"value": "client", "origin": "flag"}
    assert settings["keystore"]["origin"] == "ETH_KEYSTORE"
    assert settings["device"] == {"value": "auto", "origin": "default"}
    assert settings["rpc_url"]["value"].startswith("http://127.0.0.1:")


def test_an_account_without_tokens_is_told_so(assay: Assay) -> None:
    assay("account", "new", "penniless")
    assay("token", "faucet", "penniless", "1wei")
    refused = assay("token", "deposit", "5tok", account="penniless")
    assert refused.status in (Exit.FUNDS, Exit.REVERTED)
    assert wallet_and_free(assay, "penniless") == (1, 0)
    assert refused.error["hint"]


def test_an_account_without_ether_is_told_so_before_anything_is_signed(assay: Assay) -> None:
    assay("account", "new", "gasless")
    refused = assay("token", "deposit", "1wei", account="gasless")
    assert refused.status == Exit.FUNDS and refused.error["code"] == "insufficient-funds"


def test_more_than_there_is_cannot_be_taken(assay: Assay) -> None:
    before = wallet_and_free(assay)
    refused = assay("token", "withdraw", "999999tok")
    assert refused.status == Exit.REVERTED and "999999 tok are needed" in refused.error["message"]
    refused = assay("stake", "unbond", "999999tok", "--role", "solver")
    assert refused.status == Exit.FUNDS and "999999 tok" in refused.error["message"]
    refused = assay("stake", "deposit", "999999tok", "--role", "solver")
    assert refused.status == Exit.FUNDS and f"{show_amount(before[0])} in its" in refused.error["message"]
    assert "000000000000000000" not in refused.err
    assert wallet_and_free(assay) == before


def test_a_spending_limit_is_kept(assay: Assay, home: Path) -> None:
    before = wallet_and_free(assay)
    common = ["--home", str(home), "--json", "--account", "client", "--yes", "--max-spend", "1wei"]
    refused = run(*common, "token", "deposit", "1tok")
    assert refused.status == Exit.CONFIG and refused.error["hint"]
    assert wallet_and_free(assay) == before


def test_a_role_that_does_not_exist_is_refused(assay: Assay) -> None:
    refused = assay("stake", "deposit", "1tok", "--role", "king")
    assert refused.status == Exit.USAGE and refused.error["code"] == "bad-role"


def test_a_chain_that_was_set_back_is_refused_with_a_step_that_works(assay: Assay, home: Path) -> None:
    rpc = HttpRpc(recorded(home).rpc_url)  # type: ignore[union-attr]
    kept = rpc.request("evm_snapshot", [])
    rpc.request("anvil_mine", [hex(300)])
    assert assay("job", "ls").status == Exit.OK
    assert rpc.request("evm_revert", [kept])
    refused = assay("job", "ls")
    assert refused.status == Exit.UNREACHABLE and refused.error["code"] == "endpoint-behind"
    (file,) = re.findall(r"remove (\S+),", refused.error["hint"])
    Path(file).unlink()
    assert assay("job", "ls").status == Exit.OK

"""Owners, operators and the guardian by hand, on a running devnet."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.output import Exit
from tests.fakes.command import run
from tests.integration.cli.conftest import Assay

TOK = 10**18


def give(assay: Assay, *names: str) -> None:
    for name in names:
        assert assay("account", "new", name).status == Exit.OK
        assert assay("token", "faucet", name, "100tok").status == Exit.OK


@pytest.mark.long
def test_an_owner_stakes_for_its_operator_and_takes_everything_back(assay: Assay, home: Path) -> None:
    give(assay, "owner", "worker")
    consent = assay("operator", "consent", "owner", account="worker").data
    assert consent["nonce"] == 0
    arguments = ("--expiry", str(consent["expiry"]), "--consent", consent["signature"])
    stolen = assay("operator", "bind", "worker", *arguments)
    assert stolen.status == Exit.REVERTED and "WrongConsent" in stolen.error["message"]
    assert assay("operator", "bind", "worker", *arguments, account="owner").status == Exit.OK
    assert assay("operator", "show", "worker").data["owner"] == consent["owner"]

    staked = assay("stake", "deposit", "60tok", "--role", "solver", "--for", "worker", account="owner")
    assert staked.status == Exit.OK
    assert assay("stake", "ls", "worker").data["solver"]["active"] == str(60 * TOK)
    refused = assay("stake", "unbond", "60tok", "--role", "solver", account="worker")
    assert refused.status == Exit.REVERTED and "NotOwner" in refused.error["message"]
    assert assay("token", "deposit", "5tok", account="worker").status == Exit.OK
    refused = assay("token", "withdraw", "5tok", account="worker")
    assert refused.status == Exit.REVERTED and "NotOwner" in refused.error["message"]
    assert assay("token", "withdraw", "5tok", "--from", "worker", account="owner").status == Exit.OK

    assert assay("operator", "unbind", "worker", account="owner").status == Exit.OK
    out = ("--role", "solver", "--for", "worker")
    assert assay("stake", "unbond", "60tok", *out, account="owner").status == Exit.OK
    assert assay("devnet", "warp", "7d").status == Exit.OK
    assert assay("stake", "withdraw", "--index", "0", *out, account="owner").status == Exit.OK
    assert assay("token", "balance", "owner").data == {
        **assay("token", "balance", "owner").data,
        "wallet": str(45 * TOK),
        "free": str(60 * TOK),
    }
    assert assay("operator", "show", "worker").data["owner"] == consent["owner"], "not yet"
    assert assay("devnet", "warp", "7d").status == Exit.OK
    assert assay("operator", "show", "worker").data["owner"] == consent["operator"], "its own again"
    again = assay("operator", "bind", "worker", *arguments, account="owner")
    assert again.status == Exit.REVERTED, "a consent is good once"


@pytest.mark.long
def test_an_owner_caps_what_its_operator_locks_and_spends(assay: Assay) -> None:
    give(assay, "chief", "aide", "patron")
    consent = assay("operator", "consent", "chief", account="aide").data
    arguments = ("--expiry", str(consent["expiry"]), "--consent", consent["signature"])
    assert assay("operator", "bind", "aide", *arguments, account="chief").status == Exit.OK
    before = assay("operator", "show", "aide").data
    assert before["allowance"] == "0" and before["caps"]["solver"]["capped"] is False

    cap = ("operator", "cap", "aide", "--role", "solver", "--all", "50tok", "--others", "5tok")
    refused = assay(*cap, account="aide")
    assert refused.status == Exit.REVERTED and "NotOwner" in refused.error["message"]
    assert assay(*cap, account="chief").status == Exit.OK
    named = ("operator", "cap-client", "aide", "patron", "30tok", "--role", "solver")
    assert assay(*named, account="chief").status == Exit.OK
    assert assay("operator", "allow", "aide", "7tok", account="chief").status == Exit.OK

    after = assay("operator", "show", "aide").data
    assert after["allowance"] == str(7 * TOK) and after["caps"]["verifier"]["capped"] is False
    others = {"capped": True, "all": str(50 * TOK), "lost": "0", "most": str(5 * TOK), "used": "0"}
    assert after["caps"]["solver"] == others
    theirs = assay("operator", "show", "aide", "--client", "patron").data["caps"]["solver"]
    assert theirs == {**others, "most": str(30 * TOK)}


@pytest.mark.long
def test_a_revoked_consent_is_worth_nothing(assay: Assay) -> None:
    give(assay, "boss", "hand")
    consent = assay("operator", "consent", "boss", account="hand").data
    assert assay("operator", "revoke", account="hand").status == Exit.OK
    arguments = ("--expiry", str(consent["expiry"]), "--consent", consent["signature"])
    refused = assay("operator", "bind", "hand", *arguments, account="boss")
    assert refused.status == Exit.REVERTED and "WrongConsent" in refused.error["message"]
    malformed = assay("operator", "bind", "hand", "--expiry", "1", "--consent", "zz", account="boss")
    assert malformed.error["code"] == "bad-consent"


@pytest.mark.long
def test_the_pauser_pauses_new_stakes_and_nobody_else_does(assay: Assay, home: Path) -> None:
    key = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"  # Anvil's first account
    assert assay("account", "import", "deployer", stdin=key + "\n").status == Exit.OK
    refused = assay("guardian", "pause", "stakes")
    assert refused.status == Exit.REVERTED and "NotPauser" in refused.error["message"]
    assert assay("guardian", "pause", "stakes", account="deployer").status == Exit.OK
    assert assay("guardian", "show").data["stakes"] is True
    stopped = assay("stake", "deposit", "1tok", "--role", "solver")
    assert stopped.status == Exit.REVERTED and "BusinessPaused" in stopped.error["message"]
    assert assay("guardian", "unpause", "stakes", account="deployer").status == Exit.OK
    assert assay("stake", "deposit", "1tok", "--role", "solver").status == Exit.OK
    assert assay("guardian", "pause", "lunch").error["code"] == "bad-business"
    assert assay("guardian", "hand-over", "client", account="deployer").status == Exit.OK
    assert assay("guardian", "pause", "jobs").status == Exit.OK, "the client is the pauser now"
    up = run("--home", str(home), "--json", "guardian", "show")
    assert up.data["jobs"] is True and up.data["shards"] is False
    assert assay("guardian", "unpause", "jobs").status == Exit.OK
    assert assay("guardian", "hand-over", "--renounce").status == Exit.OK

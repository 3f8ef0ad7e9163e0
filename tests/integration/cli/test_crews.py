"""A crew on a running devnet, from its invitation to its end, by commands alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from tests.integration.cli.conftest import Assay, Unchanged

TOK = 10**18
NAMES = ("alice", "bob", "carol")


@pytest.fixture(scope="module")
def job(assay: Assay, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A posted job, its file, and three accounts with tokens."""
    file = tmp_path_factory.mktemp("job") / "job.toml"
    init = ("job", "init", str(file), "--template", "gpt", "--data", "stdlib", "--rounds", "1")
    assert assay(*init).status == Exit.OK
    text = file.read_text()
    for big, small in (("d_model = 64", "d_model = 16"), ("n_layer = 2", "n_layer = 3")):
        text = text.replace(big, small)
    file.write_text(text)
    posted = assay("job", "post", str(file), "--budget", "2000tok", "--no-serve")
    assert posted.status == Exit.OK, posted.err
    for name in NAMES:
        assert assay("account", "new", name).status == Exit.OK
        assert assay("token", "faucet", name, "2000tok").status == Exit.OK
    return str(posted.data["job"]), file


def asked_first(assay: Assay, home: Path, *words: str, account: str) -> None:
    """A command says what it would do in a dry run, and without a yes does nothing."""
    before = Unchanged(home, reads=True)
    assert "action" in assay("--dry-run", "crew", *words, account=account).data
    unasked = assay("crew", *words, account=account, yes=False)
    assert unasked.status == Exit.CONFIRM and unasked.error["code"] == "needs-confirmation"
    before.check()


@pytest.mark.long
def test_a_crew_is_invited_joins_is_formed_and_ends(
    assay: Assay, home: Path, job: tuple[str, Path], tmp_path: Path
) -> None:
    job_id, file = job
    invitation = str(tmp_path / "invitation.json")
    asked = ("crew", "invite", invitation, job_id, str(file), "--members", ",".join(NAMES))
    assert assay(*asked, "--shares", "1,2").error["code"] == "bad-invitation"
    assert assay(*asked, "--shares", "50,30,20", "--shard", "9").error["code"] == "bad-invitation"
    invited = assay(*asked, "--shares", "50,30,20")
    assert invited.status == Exit.OK, invited.err

    for wrong in ("bob", "client=bob", "bob="):
        refused = assay("crew", "replace", invitation, str(tmp_path / "next.json"), wrong)
        assert refused.error["code"] in ("bad-invitation", "bad-key", "key-problem"), wrong
    assert not (tmp_path / "next.json").exists()
    read = assay("crew", "status", invitation)
    assert read.data["state"].startswith("not formed") and "crew join" in read.data["next"]
    assert [member["share"] for member in read.data["members"]] == [5_000, 3_000, 2_000]
    stake = int(read.data["stake"])
    assert assay("crew", "join", invitation, str(file)).error["code"] == "not-member", "the client is none"
    assert assay("crew", "leave", invitation, account="bob").error["code"] == "not-formed"

    consents = {}
    asked_first(assay, home, "join", invitation, str(file), account="bob")
    for name in NAMES[1:]:
        joined = assay("crew", "join", invitation, str(file), account=name)
        assert joined.status == Exit.OK, joined.err
        consents[name] = joined.data["consent"]
    alone = assay("crew", "form", invitation, "--consent", consents["bob"], account="alice")
    assert alone.error["code"] == "bad-invitation" and "no consent of" in alone.error["message"]
    for text in (consents["bob"][:-4] + "ffff", consents["bob"][:-20], "0x", "none"):
        refused = assay("crew", "form", invitation, "--consent", text, account="alice")
        assert refused.error["code"] == "bad-invitation", text
    both = ("--consent", consents["carol"], "--consent", consents["bob"])
    assert assay("crew", "form", invitation, *both, account="bob").error["code"] == "not-leader"
    assert assay("token", "deposit", f"{2000 - stake // TOK + 1}tok", account="carol").status == Exit.OK
    poor = assay("crew", "form", invitation, *both, account="alice")
    assert poor.error["code"] == "bad-invitation" and "Crews may take" in poor.error["message"]
    assert assay("token", "withdraw", f"{2000 - stake // TOK + 1}tok", account="carol").status == Exit.OK
    asked_first(assay, home, "form", invitation, *both, account="alice")
    formed = assay("crew", "form", invitation, *both, account="alice")
    assert formed.status == Exit.OK, formed.err
    assert formed.data["crew"] == read.data["crew"]

    read = assay("crew", "status", invitation)
    assert read.data["state"].startswith("holds its shard") and int(read.data["locked"]) > 0
    balance = assay("token", "balance", "bob").data
    assert int(balance["wallet"]) == 2000 * TOK - stake
    early = assay("crew", "leave", invitation, account="carol")
    assert early.status == Exit.REVERTED and "TaskOwed" in early.error["message"]

    # The leader commits nothing: any member takes the shard away from the crew, and gets out without it.
    assert assay("devnet", "warp", "30d").status == Exit.OK
    app = App(Flags(home=str(home), account="client"), Output(True, True), True, False, None)
    market = app.connect().writer
    market.tick("tick")
    for _ in range(market.bounds().clock_lag):
        assert assay("devnet", "warp", "1s").status == Exit.OK
    app.close()
    assert assay("crew", "leave", invitation, account="carol").status == Exit.OK
    read = assay("crew", "status", invitation)
    assert read.data["state"].startswith("has no shard, and nothing is locked; ")
    lost = int(read.data["lost"])
    assert lost > 0 and read.data["next"] == f"assay crew leave {invitation}"
    asked_first(assay, home, "leave", invitation, account="carol")
    asked_first(assay, home, "pay", invitation, account="carol")
    assert assay("crew", "leave", invitation, account="carol").status == Exit.OK
    early = assay("crew", "leave", invitation, account="carol")
    assert early.status == Exit.REVERTED and "NotDue" in early.error["message"]
    assert assay("devnet", "warp", "30d").status == Exit.OK
    assert assay("crew", "leave", invitation, account="carol").status == Exit.OK
    read = assay("crew", "status", invitation)
    assert (read.data["state"], read.data["next"]) == ("ended", "none")
    free = [int(assay("token", "balance", name).data["free"]) for name in NAMES]
    assert free == [stake - lost, stake, stake], "the penalty of a missed round is the leader's"
    assert assay("crew", "leave", invitation, account="carol").error["code"] == "ended"


def test_an_invitation_that_is_none_is_refused(assay: Assay, tmp_path: Path) -> None:
    missing = assay("crew", "status", str(tmp_path / "none.json"))
    assert missing.error["code"] == "bad-invitation"
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{}")
    assert assay("crew", "status", str(damaged)).error["code"] == "damaged-record"

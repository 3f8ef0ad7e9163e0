"""A false claim disputed by hand: found, opened, played to its end, or lost by the clock; what each says."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.app.devnet_record import NodeRecord, recorded
from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.app.units import parse_amount
from assay.chain.eth.rpc import HttpRpc
from assay.devnet.market import NodeSpec, fund_account, start_node
from tests.fakes.command import run
from tests.integration.cli.conftest import Assay
from tests.integration.cli.test_jobs import serving

pytestmark = pytest.mark.slow
REPR = re.compile(r"\b[A-Z][A-Za-z]+\([a-z_]+=|\bb'")
"""Pattern of a Python repr."""


@pytest.fixture(scope="module")
def job(home: Path, assay: Assay) -> Iterator[str]:
    """A job of which a solver commits two tasks, each with one wrong weight."""
    import os
    import signal

    app = App(Flags(home=str(home)), Output(False, True), True, False, None)
    spec = NodeSpec("cheat", "solver", parse_amount("5000tok"), parse_amount("2000tok"))
    fund_account(app, spec.name, spec.tokens)
    assay("stake", "deposit", "2000tok", "--role", "solver", account=spec.name)
    assay("account", "new", "hand")
    assay("token", "faucet", "hand", "500tok")
    path = home / "job.toml"
    assay("job", "init", str(path), "--template", "mlp", "--rounds", "1")
    text = (
        path.read_text()
        .replace("hidden = 64", "hidden = 4")
        .replace("steps_per_round = 64", "steps_per_round = 8")
    )
    longest = {"vote": "10m", "challenge_window": "3h", "straggler": "3h", "task": "3h"}
    for name, time_ in longest.items():
        text = re.sub(rf'(?m)^{name} = "\w+"', f'{name} = "{time_}"', text)
    path.write_text(text)
    posted = str(assay("job", "post", str(path), "--budget", "200tok", "--no-serve").data["job"])
    node = NodeRecord(spec.name, spec.role, 0, "", ("--fault", "0:5:0:3"), "drills")
    with serving(home):
        pid = start_node(app, node)
        try:
            end = time.monotonic() + 240
            while time.monotonic() < end:
                shown = assay("job", "show", posted).data
                if all(task["phase"] != "none" for task in shown["tasks"]):
                    break
                time.sleep(1)
            else:
                raise AssertionError((home / "logs" / "cheat.log").read_text()[-2000:])
            yield posted
        finally:
            os.kill(pid, signal.SIGTERM)


def by_hand(home: Path, *words: str) -> tuple[int, str, str]:
    """As a person types it: without --json."""
    ran = run("--home", str(home), "--account", "hand", "--yes", *words)
    assert not REPR.search(ran.out + ran.err), ran.out + ran.err
    return ran.status, ran.out, ran.err


def tries(home: Path, *words: str) -> None:
    """A dry run, and a no: the account has sent nothing."""

    def nonce() -> str:
        devnet = recorded(home)
        assert devnet is not None
        address = "0x" + json.loads((home / "keystore" / "hand").read_text())["address"]
        return str(HttpRpc(devnet.rpc_url).request("eth_getTransactionCount", [address, "pending"]))

    before = nonce()
    dry = run("--home", str(home), "--account", "hand", "--dry-run", "--yes", *words)
    assert dry.status == Exit.OK and "would send: " in dry.out and nonce() == before, dry.err
    refused = run("--home", str(home), "--account", "hand", *words, stdin="n\n", terminal=True)
    assert refused.status == Exit.CONFIRM and nonce() == before, refused.err


def test_a_challenge_is_opened_played_and_paid(home: Path, assay: Assay, job: str) -> None:
    status, out, err = by_hand(home, "whistle", "scan", job)
    assert status == Exit.FRAUD and "does not end in the state" in out
    tries(home, "dispute", "open", job, "--round", "0", "--shard", "0")
    status, out, err = by_hand(home, "dispute", "open", job, "--round", "0", "--shard", "0")
    assert status == Exit.OK, err
    for words in (("open", job, "--round", "0", "--shard", "0"), ("play", "1")):
        tries(home, "dispute", *words)
    assert ("game 1" in out and "in 3 min" in out) or "in 2 min" in out
    assert f"assay --home {home} --account hand dispute play 1" in out
    again = assay("dispute", "open", job[2:12], "--round", "0", "--shard", "0", account="hand").data
    assert (again["stage"], again["game"]) == ("playing", 1)
    assert again["secondsLeft"] > 0 and again["toMove"] in ("challenger", "defender")
    game = assay("dispute", "show", "1", account="hand").data
    assert game["side"] == "challenger" and game["next"].endswith("dispute play 1")
    status, out, err = by_hand(home, "dispute", "explain", "1")
    assert (
        status == Exit.OK and "cheat says that segment" in out and "if hand wins, the claim falls" in out
    ), err
    status, out, err = by_hand(home, "dispute", "show", "1")
    assert "challenger's clock" in out and "defender's clock" in out
    status, out, err = by_hand(home, "dispute", "play", "1")
    assert status == Exit.OK and "won by the challenger" in out, err
    assert "challenger: prove one element wrong" in err and not re.search("PICK_|PROVE", err)
    ledger = assay("whistle", "earnings", account="hand").data
    assert ledger["reconciles"] and int(ledger["earned"]) > 0
    kinds = sorted(entry["kind"] for entry in ledger["entries"])
    assert kinds == ["bond", "bond back", "deposit", "reward"], "opened again, it deposits no second bond"
    assert ledger["byJob"] == {job: ledger["earned"]}
    cheat = assay("solver", "earnings", "cheat").data
    (stake,) = re.findall(r'(?m)^solver_stake = "(\w+)"', (home / "job.toml").read_text())
    assert cheat["reconciles"] and int(cheat["earned"]) == -parse_amount(stake)
    (slash,) = [e for e in cheat["entries"] if e["kind"] == "slashed"]
    assert "task 0/0" in slash["why"] and "convicted" in slash["why"]


def test_a_game_lost_by_the_clock_says_so_and_can_be_opened_again(home: Path, assay: Assay, job: str) -> None:
    opened = assay("dispute", "open", job, "--round", "0", "--shard", "1", account="hand").data
    game = opened["game"]
    end = time.monotonic() + 60
    while assay("dispute", "show", str(game), account="hand").data["toMove"] != "challenger":
        assert time.monotonic() < end
        time.sleep(0.5)
    assay("devnet", "warp", "10m")
    while not assay("dispute", "show", str(game)).data["decided"]:
        assert time.monotonic() < end
        time.sleep(0.5)
    status, out, err = by_hand(home, "dispute", "play", str(game))
    assert status == Exit.TIMEOUT and "won by the defender (timeout)" in out
    assert "lost-by-timeout" in err and "20 tok" in err
    ledger = assay("whistle", "earnings", account="hand").data
    assert ledger["entries"][-1]["kind"] == "bond lost" and ledger["reconciles"]
    again = assay("dispute", "open", job, "--round", "0", "--shard", "1", account="hand").data
    assert again["stage"] == "opened" and again["game"] == game + 1
    assert len(assay("dispute", "ls", "--job", job).data) == game + 1
    status, out, err = by_hand(home, "dispute", "play", str(game + 1))
    assert status == Exit.OK and "won by the challenger" in out


def test_nobody_plays_in_anothers_game(assay: Assay, job: str) -> None:
    refused = assay("dispute", "play", "1", account="client")
    assert refused.status == Exit.USAGE and refused.error["code"] == "not-your-game"

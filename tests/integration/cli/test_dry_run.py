"""`--dry-run` sends nothing and changes no file, in any command; nor does an answer of no."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.chain.contracts.market import ChainMarket
from assay.cli.main import tree
from assay.protocol.types import JobId
from tests.fakes.command import Ran, run
from tests.integration.cli.conftest import Assay, Unchanged

NOBODY = "0x" + "11" * 20
KEY = "4c" * 32


@dataclass(frozen=True)
class Case:
    """How a command is tried. `{job}`, `{class_id}` and the like are filled in."""

    words: str = ""
    ends: str = "would"
    """would: it says what it would do. asks: that too, and without --dry-run it asks. reads: it is done,
    since it changes nothing. Else the code of the error by which it ends."""
    stdin: str = ""


CASES: dict[str, Case] = {
    "doctor": Case(ends="reads"),
    "crew key": Case("alice.pem"),
    "crew plan": Case("{file}", "reads"),
    "crew invite": Case("invitation.json {job} {file} --members client,client"),
    "crew replace": Case("invitation.json next.json client=client", "bad-invitation"),
    "crew join": Case("invitation.json {file}", "bad-invitation"),
    "crew form": Case("invitation.json", "bad-invitation"),
    "crew status": Case("invitation.json", "bad-invitation"),
    "crew pay": Case("invitation.json", "bad-invitation"),
    "crew leave": Case("invitation.json", "bad-invitation"),
    "crew solve": Case("invitation.json crew.toml --key alice.pem", "bad-invitation"),
    "crew run": Case("crew.toml {file} --key alice.pem --out part.safetensors", "bad-crew"),
    "market offers": Case(ends="reads"),
    "dashboard": Case("--port 0"),
    "deploy": Case("--profile devnet", "asks"),
    "devnet up": Case(),
    "devnet down": Case("--wipe"),
    "devnet restart": Case("chain"),
    "devnet status": Case(ends="reads"),
    "devnet logs": Case("chain", "reads"),
    "devnet warp": Case("1d"),
    "account new": Case("another"),
    "account import": Case("another", stdin=KEY),
    "account use": Case("client"),
    "account export": Case("client"),
    "account ls": Case(ends="reads"),
    "account balance": Case(ends="reads"),
    "token balance": Case(ends="reads"),
    "token deposit": Case("1tok", "asks"),
    "token withdraw": Case("1tok", "asks"),
    "token faucet": Case(f"{NOBODY} 1tok", "asks"),
    "stake deposit": Case("1tok --role solver", "asks"),
    "stake ls": Case(ends="reads"),
    "stake unbond": Case("1tok --role verifier", "asks"),
    "stake withdraw": Case("--role verifier", "asks"),
    "operator consent": Case(NOBODY, "reads"),
    "operator bind": Case(f"{NOBODY} --expiry 99999999999 --consent 0x{'00' * 65}", "asks"),
    "operator unbind": Case(NOBODY, "asks"),
    "operator cap": Case(f"{NOBODY} --role solver --all 1tok --others 1tok", "asks"),
    "operator cap-client": Case(f"{NOBODY} {NOBODY} 1tok --role solver", "asks"),
    "operator allow": Case(f"{NOBODY} 1tok", "asks"),
    "operator revoke": Case(ends="asks"),
    "operator show": Case(ends="reads"),
    "guardian pause": Case("jobs", "asks"),
    "guardian unpause": Case("jobs", "asks"),
    "guardian hand-over": Case(NOBODY, "asks"),
    "guardian show": Case(ends="reads"),
    "job init": Case("fresh.toml --template mlp"),
    "job validate": Case("{file}", "reads"),
    "job estimate": Case("{file}", "reads"),
    "job post": Case("{file} --budget 200tok --no-serve", "asks"),
    "job serve": Case(),
    "job ls": Case(ends="reads"),
    "job name": Case("{job} other"),
    "job show": Case("{job}", "block-not-found"),
    "job watch": Case("{job} --metrics metrics"),
    "job fund": Case("{job} 1tok", "asks"),
    "job halt": Case("{job}", "asks"),
    "job close": Case("{job}", "not-finished"),
    "job fetch": Case("{job} --out model"),
    "job verify": Case("no-model", "not-fetched"),
    "job export": Case("no-model", "not-fetched"),
    "job eval": Case("no-model {file}", "not-fetched"),
    "job sample": Case("no-model", "not-fetched"),
    "solver run": Case(),
    "solver terms": Case("terms.toml"),
    "solver bench": Case(),
    "solver status": Case(ends="peer-unreachable"),
    "solver earnings": Case(ends="reads"),
    "solver why": Case("{job}", "reads"),
    "solver release": Case("{job}", "asks"),
    "solver drain": Case(),
    "verifier run": Case(),
    "verifier classes": Case(ends="reads"),
    "verifier subscribe": Case("{class_id}", "asks"),
    "verifier status": Case(ends="peer-unreachable"),
    "verifier earnings": Case(ends="reads"),
    "verifier coverage": Case("{job}", "reads"),
    "verifier drain": Case(),
    "whistle run": Case(),
    "whistle drain": Case(),
    "whistle status": Case(ends="peer-unreachable"),
    "whistle earnings": Case(ends="reads"),
    "whistle scan": Case("{job}", "block-not-found"),
    "dispute ls": Case(ends="reads"),
    "dispute show": Case("1", "not-found"),
    "dispute explain": Case("1", "not-found"),
    "dispute open": Case("{job} --round 0", "block-not-found"),
    "dispute play": Case("1", "not-found"),
    "storage ls": Case(ends="reads"),
    "storage gc": Case(),
    "storage check": Case(),
    "config show": Case(ends="reads"),
}
"""Every command. This market has no games, demands or crews: test_disputes_by_hand.py and test_crews.py
have."""
MORE = {
    "solver release --later": Case("{job} --later", "asks"),
    "solver release --again": Case("{job} --again"),
    "solver drain --off": Case("--off"),
    "verifier subscribe, to none": Case("0", "asks"),
    "stake deposit --for": Case(f"1tok --role solver --for {NOBODY}", "asks"),
    "guardian hand-over --renounce": Case("--renounce", "asks"),
    "job post, audited and served": Case("{file} --budget 200tok", "asks"),
}
EVERY = CASES | MORE


def commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield " ".join((*before, name))


def test_every_command_is_tried() -> None:
    assert set(commands(tree())) == set(CASES)


@pytest.fixture(scope="module")
def filled(home: Path, assay: Assay) -> dict[str, str]:
    """A market for all cases: a job, a shard of it held by the client's own solver, and stakes, some
    withdrawable."""
    file = Path.cwd() / "job.toml"
    assert assay("job", "init", str(file), "--template", "mlp", "--rounds", "1").status == Exit.OK
    file.write_text(file.read_text().replace("hidden = 64", "hidden = 4"))
    job = str(assay("job", "post", str(file), "--budget", "200tok", "--no-serve").data["job"])
    for role in ("solver", "verifier"):
        assert assay("stake", "deposit", "900tok", "--role", role).status == Exit.OK
    assert assay("stake", "unbond", "5tok", "--role", "verifier").status == Exit.OK
    assert assay("devnet", "warp", "30d").status == Exit.OK
    app = App(Flags(home=str(home), account="client"), Output(True, True), True, False, None)
    market = app.connect().writer
    market.take_shard("taken", JobId(bytes.fromhex(job.removeprefix("0x"))), 0)
    app.close()
    class_id = next(iter(assay("verifier", "classes").data))
    assay("token", "deposit", "10tok")
    for room in ("account balance", "job ls"):  # what is read is kept, once
        assay(*room.split())
    return {"file": str(file), "job": job, "class_id": class_id}


def tried(home: Path, filled: dict[str, str], name: str, *options: str, **typed: Any) -> Ran:
    case, command = EVERY[name], name.partition(" --")[0].partition(",")[0]
    words = case.words.format(**filled).split()
    return run(
        *("--home", str(home), "--account", "client", "--json", *options), *command.split(), *words, **typed
    )


@pytest.mark.parametrize("name", EVERY)
def test_a_dry_run_changes_neither_the_chain_nor_a_file(
    home: Path, assay: Assay, filled: dict[str, str], name: str
) -> None:
    case, before = EVERY[name], Unchanged(home)
    options = ["--deployment", "other.json"] if name == "deploy" else []
    ran = tried(home, filled, name, "--dry-run", *options, stdin=case.stdin)
    before.check()
    if case.ends in ("would", "asks"):
        assert ran.status == Exit.OK, ran.err
        schema = json.loads(ran.out.splitlines()[-1])["schema"]
        assert schema in ("assay/dry-run/1", "assay/deploy-dry-run/1")
    elif case.ends != "reads":
        assert ran.error["code"] == case.ends
    elif name != "doctor":
        assert ran.status == Exit.OK, ran.err


@pytest.mark.parametrize("name", [name for name, case in EVERY.items() if case.ends == "asks"])
def test_whoever_answers_no_changes_neither_the_chain_nor_a_file(
    home: Path, assay: Assay, filled: dict[str, str], name: str
) -> None:
    options = ["--deployment", "other.json"] if name == "deploy" else []
    before = Unchanged(home, reads=True)
    ran = tried(home, filled, name, *options, stdin="n\n", terminal=True)
    assert ran.status == Exit.CONFIRM, ran.out + ran.err
    before.check()


def test_what_is_counted_as_asking_is_done_with_a_yes(
    home: Path, assay: Assay, filled: dict[str, str]
) -> None:
    """The measure would notice."""
    before = Unchanged(home)
    assert tried(home, filled, "token deposit", "--yes").status == Exit.OK
    with pytest.raises(AssertionError):
        before.check()


def test_a_transaction_that_gets_as_far_as_its_sender_is_refused_there(home: Path, assay: Assay) -> None:
    app = App(Flags(home=str(home), account="client"), Output(True, True), True, True, None)
    before = Unchanged(home)
    try:
        market = app.connect().writer
        assert isinstance(market, ChainMarket)
        from assay.protocol.errors import Stop
        from assay.protocol.types import Wei

        with pytest.raises(Stop, match="dry run") as refused:
            market.deposit("anything", Wei(1))
        assert refused.value.code == "dry-run" and refused.value.hint
    finally:
        app.close()
    before.check()

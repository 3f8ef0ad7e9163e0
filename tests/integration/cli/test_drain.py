"""`drain` notes it for the node, says what is owed, and is taken back; `run` refuses wishes that it cannot
read."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.node.pausing import Drained
from assay.protocol.types import JobId
from tests.fakes.command import run
from tests.integration.cli.conftest import Assay


@pytest.fixture(scope="module")
def job(home: Path, assay: Assay) -> str:
    """A job of which the client's own solver holds a shard; the client is in a class as a verifier too."""
    file = Path.cwd() / "job.toml"
    assert assay("job", "init", str(file), "--template", "mlp", "--rounds", "1").status == Exit.OK
    file.write_text(file.read_text().replace("hidden = 64", "hidden = 4"))
    found = str(assay("job", "post", str(file), "--budget", "200tok", "--no-serve").data["job"])
    for role in ("solver", "verifier"):
        assert assay("stake", "deposit", "900tok", "--role", role).status == Exit.OK
    app = App(Flags(home=str(home), account="client"), Output(True, True), True, False, None)
    market = app.connect().writer
    market.take_shard("taken", JobId(bytes.fromhex(found.removeprefix("0x"))), 0)
    app.close()
    class_id = next(iter(assay("verifier", "classes").data))
    assert assay("verifier", "subscribe", class_id).status == Exit.OK
    assert assay("devnet", "warp", "1d").status == Exit.OK
    return found


def test_a_drained_solver_is_told_what_it_owes(home: Path, assay: Assay, job: str) -> None:
    drained = Drained(home / "nodes" / "client", "solver")
    assert not drained.holds()
    ran = assay("solver", "drain")
    assert drained.holds() and ran.data["drained"] is True
    assert ran.data["owed"]["shards"] == 1 and int(ran.data["owed"]["locked"]) > 0
    assert "nothing new" in ran.err and "drain --off" in ran.err
    assert assay("solver", "why", job).data["reason"] == "drained: nothing new is taken"
    words = run("--home", str(home), "--account", "client", "solver", "drain").out
    assert "still owed: 1 shard, " in words and "tok of stake locked" in words and "status" in words
    assert assay("solver", "drain", "--off").data["drained"] is False and not drained.holds()
    assert assay("solver", "why", job).data["reason"] != "drained: nothing new is taken"


def test_a_drained_verifier_is_told_in_which_class_it_is_drawn(home: Path, assay: Assay, job: str) -> None:
    assay("verifier", "drain")
    ran = run("--home", str(home), "--account", "client", "verifier", "drain")
    assert ran.status == Exit.OK and Drained(home / "nodes" / "client", "verifier").holds()
    assert "it may be drawn in class" in ran.out and "can be stopped once" in ran.out
    assert not Drained(home / "nodes" / "client", "solver").holds(), "each role by itself"
    assay("verifier", "drain", "--off")


def test_who_owes_nothing_is_told_that(home: Path, assay: Assay) -> None:
    ran = run("--home", str(home), "--account", "client", "whistle", "drain")
    assert ran.status == Exit.OK and "nothing is owed; the node can be stopped" in ran.out
    assay("whistle", "drain", "--off")


@pytest.mark.parametrize("group", ["solver", "verifier", "whistle"])
def test_wishes_that_cannot_be_read_are_refused_before_the_node_starts(assay: Assay, group: str) -> None:
    assert assay(group, "run", "--hours", "25-3").error["code"] == "bad-hours"
    assert assay(group, "run", "--hours", "22-06", "--hours", "noon").error["code"] == "bad-hours"
    assert assay(group, "run", "--max-load", "-1").error["code"] == "usage"
    ran = assay("--dry-run", group, "run", "--hours", "22-06", "--hours", "12:30-13", "--max-load", "4.0")
    assert ran.status == Exit.OK

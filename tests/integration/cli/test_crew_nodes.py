"""Three members' nodes, each a process, on a running devnet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.cli.commands.job_post import traced
from assay.job.read import read_job_file
from assay.program.execute import Executor, StepContext
from assay.program.kernels import REFERENCE
from assay.program.state import state_root
from tests.fakes.crews import free_ports
from tests.integration.cli.conftest import Assay

ROOT = Path(__file__).parents[3]
TOK = 10**18
NAMES = ("alice", "bob", "carol")
SHARES = (50, 30, 20)
SMALL = {
    "layers = 4": "layers = 3",
    "heads = 4": "heads = 2",
    "width = 128": "width = 16",
    "context = 64": "context = 16",
    "shards = 2": "shards = 1",
    "min_shards = 2": "min_shards = 1",
    "steps_per_round = 64": "steps_per_round = 32",
    'task = "120s"': 'task = "1h"',
}


def waited(until: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """What `until` returns, once it is true."""
    end = time.monotonic() + seconds
    while not (found := until()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.1)
    return found


class Crew:
    """A crew on a devnet, and its members' nodes."""

    def __init__(self, assay: Assay, home: Path, folder: Path) -> None:
        self.assay, self.home, self.folder = assay, home, folder
        self.began_s = time.time()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.job_file, self.invitation = folder / "job.toml", folder / "invitation.json"
        self.crew_file = folder / "crew.toml"
        self.job, self.names = "", list(NAMES)

    def ok(self, *words: str, account: str = "client") -> Any:
        ran = self.assay(*words, account=account)
        assert ran.status == Exit.OK, ran.err
        return ran.data

    def post(self) -> None:
        """Posts a job of one shard, whose files a process serves."""
        self.ok("job", "init", str(self.job_file), "--template", "gpt", "--data", "stdlib", "--rounds", "1")
        text = self.job_file.read_text()
        for big, small in SMALL.items():
            assert big in text
            text = text.replace(big, small, 1)
        self.job_file.write_text(text)
        self.job = self.ok("job", "post", str(self.job_file), "--budget", "500tok", "--no-serve")["job"]
        self.start("client", "job", "serve")

    def account(self, name: str) -> None:
        """Makes an account with tokens, unless an earlier test has made it."""
        if not (self.home / "keystore").exists() or self.assay("token", "balance", name).status != Exit.OK:
            self.ok("account", "new", name)
        self.ok("token", "faucet", name, "5000tok")

    def invite(self) -> None:
        """Writes an invitation."""
        shares = ",".join(map(str, SHARES))
        asked = ("crew", "invite", str(self.invitation), self.job, str(self.job_file))
        self.ok(*asked, "--members", ",".join(NAMES), "--shares", shares)

    def form(self) -> None:
        """Makes the members' keys, and forms the crew of the invitation."""
        text = ""
        for name, port in zip(self.names, free_ports(3), strict=True):
            if not (self.folder / f"{name}.pem").exists():
                self.ok("crew", "key", str(self.folder / f"{name}.pem"))
            text += f'[[member]]\naddress = "127.0.0.1:{port}"\ncertificate = "{name}.crt"\n\n'
        self.crew_file.write_text(text)
        join = ("crew", "join", str(self.invitation), str(self.job_file))
        consents = [self.ok(*join, account=name)["consent"] for name in self.names[1:]]
        given = [word for consent in consents for word in ("--consent", consent)]
        self.ok("crew", "form", str(self.invitation), *given, account=self.names[0])

    def solve(self, name: str, program: str = "assay") -> None:
        """Starts a member's node."""
        crew = (str(self.invitation), str(self.crew_file))
        self.start(name, "crew", "solve", *crew, "--key", str(self.folder / f"{name}.pem"), program=program)

    def start(self, name: str, *words: str, program: str = "assay") -> None:
        command = [sys.executable, "-m", program, "--home", str(self.home), "--account", name, "--yes"]
        command += ["--executor", "reference", *words]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait(10)

    def end(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(20)

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        path = self.home / "nodes" / name / "events.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        # tests share a devnet, and its nodes their names
        return [event for event in found if event["event"] == kind and event["time"] >= self.began_s]

    def paid_back(self, invitation: Path) -> list[int]:
        """What its members get when a crew that holds nothing ends."""
        before = self.free()
        for _ in ("its stakes unbond", "they are paid back"):
            self.ok("crew", "leave", str(invitation), account="carol")
            self.ok("devnet", "warp", "30d")
        return [now - was for now, was in zip(self.free(), before, strict=True)]

    def free(self, names: Sequence[str] = NAMES) -> list[int]:
        return [int(self.ok("token", "balance", name)["free"]) for name in names]


@pytest.fixture
def crew(assay: Assay, home: Path, tmp_path: Path) -> Iterator[Crew]:
    """A crew that has taken the shard of a posted job."""
    made = Crew(assay, home, tmp_path)
    for name in NAMES:
        made.account(name)
    made.post()
    try:
        made.invite()
        made.form()
        yield made
    finally:
        made.end()


def ends_of_one_process(file: Path) -> list[str]:
    """Roots of the states at the segments' ends, trained by one process."""
    app = App(Flags(), Output(True, True), True, False, None)
    made = traced(app, read_job_file(file))
    loop, executor = made.terms.main, Executor(made.files.inner, kernels=REFERENCE)
    state, ends = list(made.files.genesis), []
    for step in range(loop.steps):
        state = executor.step(state, StepContext(made.files.records, made.terms.seed, 0, step))
        if (step + 1) % loop.segment_steps == 0:
            ends.append(state_root(state).hex())
    return ends


def bob_is_killed_in_a_round(crew: Crew) -> None:
    """All members train; bob's node dies after it has first saved."""
    for name in NAMES:
        crew.solve(name)
    kept = crew.home / "nodes" / "bob" / "crew"
    waited(lambda: list(kept.glob("*/saved/*.json")), "bob's first save", 120)
    crew.kill("bob")
    assert not crew.events("bob", "crew-signed")


@pytest.mark.long
def test_a_crew_trains_a_round_though_one_is_killed_and_is_paid_by_shares(crew: Crew) -> None:
    bob_is_killed_in_a_round(crew)
    crew.solve("bob")
    waited(lambda: crew.events("alice", "committed"), "the commit", 120)
    (signed,) = crew.events("alice", "crew-signed")
    assert signed["root"] == ends_of_one_process(crew.job_file)[-1]
    assert crew.events("bob", "was-killed")
    asked = ("crew", "status", str(crew.invitation))
    node = waited(lambda: crew.ok(*asked, account="carol")["node"], "an answer of carol's node")
    activity = node["activity"]
    stages, named = activity["stages"], [f"member {i} ({name})" for i, name in enumerate(NAMES)]
    assert [stage["name"] for stage in stages] == named
    assert activity["member"] == 2, "her own node is asked first"
    assert all(stage["step_s"] > 0 and sum(stage["sent"]) > 0 for stage in stages)
    before = crew.free()

    def over() -> bool:
        crew.ok("devnet", "warp", "65s")
        return bool(crew.events("alice", "closed"))

    def members() -> list[dict[str, Any]]:
        return list(crew.ok("crew", "status", str(crew.invitation))["members"])

    waited(over, "the job's end", 120)
    waited(lambda: not any(int(member["owed"]) for member in members()), "the last payment", 60)
    earned = [now - was for now, was in zip(crew.free(), before, strict=True)]

    def paid() -> set[int]:
        return {int(event["amount"]) for name in NAMES for event in crew.events(name, "crew-paid")}

    waited(lambda: sum(paid()) == sum(earned) > 0, "the event of each payment", 30)
    assert earned[1:] == [sum(amount * share // 100 for amount in paid()) for share in SHARES[1:]]
    assert crew.ok("crew", "status", str(crew.invitation))["lost"] == "0"


@pytest.mark.long
def test_who_flips_one_bit_is_accused_and_loses_its_stake_alone(crew: Crew) -> None:
    crew.ok("account", "new", "walt")
    crew.ok("token", "faucet", "walt", "500tok")
    crew.ok("token", "deposit", "500tok", account="walt")
    crew.start("walt", "whistle", "run")
    for name in ("alice", "carol"):
        crew.solve(name)
    crew.solve("bob", "tests.fakes.lying_member")
    waited(lambda: crew.events("alice", "committed"), "the commit", 120)
    stake = int(crew.ok("crew", "status", str(crew.invitation))["stake"])
    waited(lambda: crew.ok("dispute", "ls"), "the whistleblower's game", 120)

    def after(event: str, warp: str, name: str = "alice") -> None:
        def passed() -> bool:
            crew.ok("devnet", "warp", warp)
            time.sleep(0.5)
            return bool(crew.events(name, event))

        waited(passed, event, 180)

    after("convicted", "20s")
    waited(lambda: crew.events("alice", "accused"), "the accusation", 60)
    (accused,) = crew.events("alice", "accused")
    assert accused["member"] == 1
    after("judged", "60s", "bob")
    (judged,) = crew.events("bob", "judged")
    assert judged["guilty"] and judged["member"] == 1
    status = crew.ok("crew", "status", str(crew.invitation))
    lost = int(status["lost"])
    assert [int(member["charged"]) for member in status["members"]] == [0, lost, 0] and lost > 0
    assert not [
        event for name in ("alice", "carol") for event in crew.events(name, "accusation") if event["mine"]
    ]
    crew.end()  # nobody waits for the unbonding delay
    bond = read_job_file(crew.job_file).money.challenge_bond
    assert crew.paid_back(crew.invitation) == [stake - lost // 2 + bond, stake - lost, stake]


@pytest.mark.long
def test_another_account_takes_the_place_of_a_member_that_is_gone(crew: Crew) -> None:
    bob_is_killed_in_a_round(crew)
    first = crew.invitation
    early = crew.assay("crew", "leave", str(first), account="carol")
    assert early.error["code"] == "reverted" and "TaskOwed" in early.err
    crew.ok("devnet", "warp", "61m")

    def given_up() -> bool:
        crew.assay("crew", "leave", str(first), account="carol")
        return not crew.ok("crew", "status", str(first))["state"].startswith("holds")

    waited(given_up, "the end of the first crew", 60)
    crew.end()
    crew.account("dave")
    crew.names[1], crew.invitation = "dave", crew.folder / "second.json"
    crew.ok("crew", "replace", str(first), str(crew.invitation), "bob=dave")
    crew.form()
    for name in crew.names:
        crew.solve(name)
    waited(lambda: crew.events("alice", "committed"), "the commit", 120)
    (signed,) = crew.events("dave", "crew-signed")
    assert signed["root"] == ends_of_one_process(crew.job_file)[-1]
    crew.end()
    status = crew.ok("crew", "status", str(first))
    stake, lost = int(status["stake"]), int(status["lost"])
    assert lost == read_job_file(crew.job_file).money.miss_penalty > 0
    assert [int(member["charged"]) for member in status["members"]] == [0, 0, 0]
    assert crew.paid_back(first) == [stake - lost, stake, stake]

"""``assay crew``: the output of a plan, and members that train together."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from assay.app.crews import read_crew
from assay.app.output import Exit
from assay.cli.node.fitness import Result, keep
from assay.compute.inline import InlinePool
from assay.compute.member import TrainStage
from assay.compute.peers import Crew
from assay.job.templates import LOCAL, template
from assay.program.execute import Executor, StepContext
from assay.program.pipeline import schedule
from assay.program.record_excerpt import steps_of
from assay.program.stages import cut
from assay.program.state import begin_roots, state_root
from assay.program.validate import measure
from assay.training import models
from assay.training.job import JobArtifacts
from assay.training.optimisers import AdamW
from tests.fakes.crews import free_ports
from tests.unit.cli.test_command_line import assay
from tests.unit.training.steps import built, corpus


@pytest.fixture(scope="module")
def files() -> JobArtifacts:
    model = models.build(models.GptConfig(n_layer=2, n_head=2, d_model=16, context=8), 1)
    return built(model, AdamW(0.01), corpus(8))


@pytest.fixture
def folder(files: JobArtifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.job.build.build", lambda body, **_: files)
    monkeypatch.setenv("ETH_RPC_URL", "http://127.0.0.1:1")
    (tmp_path / "job.toml").write_text(template("gpt", source="stdlib", rounds=1, times=LOCAL))
    return tmp_path


def test_a_plan_says_what_each_member_does(folder: Path, files: JobArtifacts) -> None:
    status, out, _ = assay("--json", "crew", "plan", "job.toml", "--members", "3")
    told = json.loads(out)["data"]
    plan = cut(files.inner, 3)
    assert status == 0 and told["plan"] == "0x" + plan.root.hex()
    assert told["utilisation"] == schedule(plan.stages).utilisation
    for said, stage in zip(told["members"], plan.stages, strict=True):
        cost = measure(stage.program)
        assert (said["operations"], said["peakBytes"]) == (cost.operations, cost.peak_bytes)
    assert sum(said["sentBytes"] for said in told["members"]) > 0
    assert sum(said["stateBytes"] for said in told["members"]) == files.inner.state_bytes


def test_a_plan_warns_of_a_machine_that_is_too_slow_to_defend_a_step(folder: Path) -> None:
    for speed, warned in ((10**12, 0), (1, 3)):
        keep(folder / "home", "cpu", Result(True, speed))
        status, _, error = assay("--home", "home", "crew", "plan", "job.toml", "--members", "3")
        assert status == 0 and error.count("may lose an accusation by the clock") == warned


def test_too_many_members_are_refused(folder: Path) -> None:
    status, _, error = assay("--json", "crew", "plan", "job.toml", "--members", "9")
    assert status == Exit.USAGE and '"no-cut"' in error


def test_a_job_for_a_crew_is_for_so_many_members(folder: Path) -> None:
    text = (folder / "job.toml").read_text()
    (folder / "job.toml").write_text(f"{text}\n[crew]\nmembers = 3\nboundary = 8\n")
    status, out, _ = assay("--json", "crew", "plan", "job.toml")
    assert status == 0 and len(json.loads(out)["data"]["members"]) == 3
    status, _, error = assay("--json", "crew", "plan", "job.toml", "--members", "2")
    assert status == Exit.USAGE and '"other-crew"' in error


def test_a_member_trains_with_another(folder: Path, files: JobArtifacts) -> None:
    for name in ("alice", "bob"):
        assert assay("crew", "key", f"{name}.pem")[0] == 0
    assert (folder / "alice.pem").stat().st_mode & 0o077 == 0, "a private key is its owner's alone"
    entries = [
        f'[[member]]\naddress = "127.0.0.1:{port}"\ncertificate = "{name}.crt"\n'
        for name, port in zip(("alice", "bob"), free_ports(2), strict=True)
    ]
    (folder / "crew.toml").write_text("\n".join(entries))
    peers, plan = read_crew(folder / "crew.toml"), cut(files.inner, 2)
    assert files.records is not None
    start = StepContext(files.records, (1).to_bytes(32, "big"), 1, 0)
    bob = TrainStage(
        plan,
        Crew(peers, 1, str(folder / "bob.pem"), 20.0),
        [files.genesis[slot] for slot in plan.stages[1].slots],
        begin_roots(files.genesis)(),
        steps_of(files.inner, start, 4),
        4,
        save_every=2,
        dataset=files.records.tree.root,
    )
    with ThreadPoolExecutor(1) as threads:
        theirs = threads.submit(lambda: InlinePool().submit(bob).result())
        words = ("run", "crew.toml", "job.toml", "--key", "alice.pem", "--out", "part.safetensors")
        own = ("--shard", "1", "--steps", "4", "--save-every", "2")
        status, out, said = assay("--json", "crew", *words, *own)
    told = json.loads(out)["data"]
    state, executor = list(files.genesis), Executor(files.inner)
    for step in range(4):
        state = executor.step(state, replace(start, step=step))
    assert status == 0 and told["roots"] == ["0x" + state_root(state).hex()]
    assert told["sentBytes"] == theirs.result().received
    assert told["activity"]["names"] == ["alice", "bob"] and 0 < told["activity"]["utilisation"] < 1
    assert "now waits for 0 s until member 1 (bob) connects" in said
    saved = {path.name.rpartition("-")[2] for path in (folder / "part.safetensors.saved").iterdir()}
    assert saved == {"2.json", "2.safetensors", "4.json", "4.safetensors"}
    kept = load_file(folder / "part.safetensors")
    assert list(kept) == sorted(files.slot_names[slot] for slot in plan.stages[0].slots)
    for slot in plan.stages[0].slots:
        assert torch.equal(kept[files.slot_names[slot]], state[slot])


def test_a_strangers_key_is_refused(folder: Path) -> None:
    assay("crew", "key", "alice.pem")
    assay("crew", "key", "eve.pem")
    assay("crew", "key", "bob.pem")
    entries = [
        f'[[member]]\naddress = "127.0.0.1:{number}"\ncertificate = "{name}.crt"\n'
        for number, name in enumerate(("alice", "bob"), 1)
    ]
    (folder / "crew.toml").write_text("".join(entries))
    words = ("run", "crew.toml", "job.toml", "--key", "eve.pem", "--out", "part.safetensors")
    status, _, error = assay("--json", "crew", *words)
    assert status == Exit.USAGE and '"bad-crew"' in error and "eve.crt" in error


GOOD = {"address": '"10.0.0.1:1"', "certificate": '"alice.crt"'}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "2 to 8"),
        ("member = 1", "2 to 8"),
        ("[[member]]", "2 to 8"),
        ("[[member]]\n" * 2, "member 0 has no text"),
        ("member = [1, 2]", "member 0 has no text"),
        ("[[member", "no crew file"),
        *(("address", f"{value}: host:port") for value in ('"here"', '":1"', '"a:0"', '"a:65536"', '"a:b"')),
        ("address", "5: member 1 has no text"),
        ("certificate", "5: member 1 has no text"),
        ("certificate", '"absent.crt": absent.crt'),
        ("certificate", '"job.toml": job.toml of member 1 is no certificate'),
        ("certificate", '"alice.crt": same subject'),
    ],
)
def test_a_file_that_is_no_crew_is_refused(folder: Path, text: str, says: str) -> None:
    assay("crew", "key", "alice.pem")
    if text in GOOD:
        value, _, says = says.partition(": ")
        other = {**GOOD, text: value}
        text = "".join(
            f"[[member]]\naddress = {one['address']}\ncertificate = {one['certificate']}\n"
            for one in (GOOD, other)
        )
    (folder / "crew.toml").write_text(text)
    words = ("run", "crew.toml", "job.toml", "--key", "alice.pem", "--out", "part.safetensors")
    status, _, error = assay("--json", "crew", *words)
    assert status == Exit.USAGE and '"bad-crew"' in error and says in error


def test_a_key_is_never_written_over(folder: Path) -> None:
    assert assay("crew", "key", "alice.pem")[0] == 0
    before = (folder / "alice.pem").read_bytes()
    assert assay("crew", "key", "alice.pem")[0] != 0
    assert (folder / "alice.pem").read_bytes() == before

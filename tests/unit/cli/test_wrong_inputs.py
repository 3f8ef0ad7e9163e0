"""Wrong input on the command line is reported in words before anything is written or sent."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from assay.app.deployment import bounds_of, delays_of
from assay.app.devnet_record import Devnet, NodeRecord, write_devnet
from assay.app.output import Exit
from assay.app.settings import Flags, Settings
from assay.chain.contracts.plan import PROFILES
from assay.cli.node.acceptance import BadAcceptance, acceptance_text, read_acceptance
from assay.protocol.errors import Ask
from assay.protocol.types import Seconds
from assay.solver.acceptance import USUAL
from tests.fakes.command import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands are given; its home is an empty `.assay`."""
    (tmp_path / ".assay").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assay(*arguments: str) -> tuple[int, dict[str, str]]:
    """The exit status of a command, and the error that it reports."""
    ran = run("--json", *arguments)
    return ran.status, ran.error if ran.status else {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--template", "mlp", "--data", "mine"), "--data of mlp can only be digits, not 'mine'"),
        (("--data", "none.txt"), "--data: there is no file or folder none.txt"),
        (("--batch", "3"), "--batch cannot be given here: --template gpt does not read it"),
        (("--template", "mlp", "--weights", "model"), "--weights cannot be given here"),
        (
            ("--from", "my.py:build", "--template", "mlp"),
            "--template cannot be given here: --from brings the model",
        ),
        (
            ("--from", "my.py:build", "--data", "digits"),
            "--data cannot be given here: --from does not read it",
        ),
        (("--template", "grpo", "--held-out", "2"), "--held-out cannot be given here"),
        (
            ("--template", "mlp", "--data", "digits", "--held-out", "999"),
            "the data have 359 held-out records",
        ),
        (("--template", "grpo", "--algorithm", "demo"), "--algorithm cannot be given here: --template grpo"),
        (("--algorithm", "lofi", "--rounds", "2"), "--rounds cannot be given here: lofi trains in one round"),
        (("--algorithm", "muloco", "--optimiser", "sgd"), "--optimiser of muloco is muon, not sgd"),
        (("--algorithm", "demo", "--optimiser", "adamw"), "--optimiser of demo is sgd, not adamw"),
        (("--algorithm", "own"), "an outer algorithm of your own needs a model of your own"),
        (("--algorithm", "sparse"), "there is no outer algorithm 'sparse'"),
        (("--algorithm", "sparselocco"), "'sparselocco'; did you mean 'sparseloco'?"),
        (("--template", "gtp"), "there is no template 'gtp'; did you mean 'gpt'?"),
        (("--optimiser", "adam"), "there is no optimiser 'adam'; did you mean 'adamw'?"),
    ],
)
def test_a_job_file_is_not_begun_with_an_option_that_it_ignores(
    folder: Path, given: tuple[str, ...], says: str
) -> None:
    status, error = assay("job", "init", "job.toml", *given)
    assert status == Exit.USAGE and says in error["message"]
    assert not (folder / "job.toml").exists()


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (("--device", "abacus"), "bad-device"),
        (("--executor", "compild"), "bad-executor"),
        (("--threads", "two"), "bad-threads"),
        (("--threads", "0"), "bad-threads"),
    ],
)
def test_a_way_to_compute_is_looked_at_by_commands_that_compute_nothing(
    folder: Path, option: tuple[str, str], code: str
) -> None:
    status, error = assay(*option, "job", "init", "job.toml")
    assert status == Exit.CONFIG and error["code"] == code and error["hint"]
    assert not (folder / "job.toml").exists()


@pytest.mark.parametrize(
    "words",
    [("token", "deposit"), ("token", "withdraw"), ("token", "faucet", "bob"), ("job", "fund", "latest")],
)
@pytest.mark.parametrize(
    ("amount", "says", "code"),
    [
        ("0tok", "'0tok' is nothing", "bad-amount"),
        ("-5tok", "No such option: -5", "usage"),
        ("-.5tok", "No such option: -.", "usage"),
        ("--yess", "No such option: --yess", "usage"),
    ],
)
def test_an_amount_that_moves_nothing_is_refused_before_a_chain_is_asked(
    folder: Path, words: tuple[str, ...], amount: str, says: str, code: str
) -> None:
    status, error = assay("-r", "http://127.0.0.1:1", *words, amount)
    assert status == Exit.USAGE and error["code"] == code and says in error["message"]
    assert ("is below 0" in error["hint"]) == amount.endswith("5tok")


@pytest.mark.parametrize("data", ["stdlib", "mine.txt", "texts"])
def test_data_that_are_there_are_taken(folder: Path, data: str) -> None:
    (folder / "mine.txt").write_text("text")
    (folder / "texts").mkdir()
    status, _ = assay("job", "init", "job.toml", "--data", data)
    assert status == Exit.OK and f'source = "{data}"' in (folder / "job.toml").read_text()


def test_nobody_is_told_to_remove_a_folder(folder: Path) -> None:
    status, error = assay("job", "init", str(folder))
    assert status == Exit.CONFIG and error["code"] == "file-exists" and error["hint"] == "name a file in it"


@pytest.mark.parametrize("name", ["none", "job.toml", "."])
def test_what_holds_no_fetched_job_is_not_called_false(folder: Path, name: str) -> None:
    (folder / "job.toml").write_text("")
    status, error = assay("job", "verify", name)
    assert status == Exit.USAGE and error["code"] == "not-fetched" and "assay job fetch" in error["hint"]


@pytest.mark.parametrize("words", [("status",), ("warp", "1d"), ("restart", "solver-1")], ids=" ".join)
def test_a_devnet_that_does_not_run_is_told_in_one_way(folder: Path, words: tuple[str, ...]) -> None:
    status, error = assay("devnet", *words)
    assert status == Exit.CONFIG and error["code"] == "no-devnet"
    assert error["message"] == "no devnet runs in .assay" and "devnet up` starts one" in error["hint"]
    node = NodeRecord("solver-1", "solver", 0, "")
    write_devnet(folder / ".assay", Devnet("http://127.0.0.1:1", 0, (node,), genesis_s=1))
    status, error = assay("devnet", *words)
    assert status == Exit.CONFIG and error["code"] == "no-devnet"
    assert error["message"] == "the devnet in .assay is stopped" and "resumes it" in error["hint"]


@pytest.mark.parametrize("url", ["nonsense", "127.0.0.1:8545", "wss://node", "http://"])
def test_what_is_no_url_of_a_chain_is_not_asked(folder: Path, url: str) -> None:
    status, error = assay("-r", url + "/KEY", "job", "ls")
    assert status == Exit.CONFIG and error["code"] == "bad-config"
    assert "is not the URL of a chain's node" in error["message"] and "KEY" not in error["message"]
    status, error = assay("dashboard", "--node", url)
    assert status == Exit.USAGE and "--node" in error["message"]


def test_the_chain_of_a_devnet_is_said_to_be_its(folder: Path) -> None:
    settings = Settings(Flags())
    assert settings.describe()["rpc_url"].origin == "default"
    write_devnet(folder / ".assay", Devnet("http://127.0.0.1:1", os.getpid(), (), genesis_s=1))
    assert settings.describe()["rpc_url"].origin == "the devnet in .assay"


def test_the_file_of_terms_explains_itself_and_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "terms.toml"
    path.write_text(acceptance_text(USUAL))
    assert read_acceptance(path) == USUAL
    lines = path.read_text().splitlines()
    assert all(" # " in line for line in lines[1:]) and max(map(len, lines)) <= 110
    assert any(line.startswith('most_locked = "30d" ') for line in lines)
    with pytest.raises(BadAcceptance, match=r": is a directory\n"):
        read_acceptance(tmp_path)


def test_what_a_deployer_says_of_a_chains_blocks_is_in_the_markets_bounds() -> None:
    profile = PROFILES["l2"]
    assert bounds_of(profile, None, None) == profile.bounds
    assert bounds_of(profile, 100, 12) == replace(profile.bounds, clock_lag=100, block_time=Seconds(12))
    for wrong in ((0, None), (None, 0)):
        with pytest.raises(Ask) as refused:
            bounds_of(profile, *wrong)
        assert refused.value.code == "bad-bounds"


@pytest.mark.parametrize("name", list(PROFILES))
def test_stake_leaves_no_market_before_its_shortest_window_ends(name: str) -> None:
    profile = PROFILES[name]
    window = profile.bounds.least_window
    assert delays_of(profile, None, None, None) == profile.delays
    assert delays_of(profile, window, None, None).unbond_s == window
    with pytest.raises(Ask, match="less than the shortest challenge window") as refused:
        delays_of(profile, window - 1, None, None)
    assert refused.value.code == "bad-delays"

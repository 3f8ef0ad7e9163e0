"""The demonstration, small: separate processes on a local chain; a lie about one bit, covered for by every
verifier, is convicted on chain (attacks 5 and 15), and the model that comes out is checked offline."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.app.output import Exit
from tests.e2e.commands import ROOT, assay, result, run
from tests.unit.examples.second import found

pytestmark = pytest.mark.long
ROUNDS = 2


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("market")


@pytest.fixture(scope="module")
def outcome(home: Path) -> Any:
    """The demonstration's own account of itself."""
    try:
        ended = run([sys.executable, "scripts/demo.py", "--quick", "--json", "--home", str(home)])
    finally:
        down = run(assay(home, "devnet", "down"))
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    assert json.loads(down.stdout)["data"]["stopped"] == 0, "the demonstration left processes behind"
    body = json.loads(ended.stdout)
    assert body["schema"] == "assay/scenario/1"
    return body["data"]


def test_everything_that_the_scenario_promises_happened(outcome: Any) -> None:
    assert outcome["passed"] is True and outcome["missing"] == []


def test_the_cheat_is_convicted_once_by_arithmetic_though_its_verifiers_passed_it(outcome: Any) -> None:
    (guilty,) = outcome["convicted"]
    assert (guilty["claimant"], guilty["kind"], guilty["round"]) == ("solver-1", "task", 1)
    assert guilty["passedBy"] >= 2
    won = [game for game in outcome["games"] if game["challengerWon"]]
    assert [game["reason"] for game in won] == ["arithmetic"]
    assert outcome["disputeGas"] > 0


def test_the_cheat_pays_the_whistleblower(outcome: Any) -> None:
    before, after = outcome["before"]["parties"], outcome["after"]["parties"]
    change = {name: int(after[name]) - int(before[name]) for name in before}
    assert change["whistle-1"] > 0 and change["solver-1"] < 0
    assert change["solver-2"] > 0 and change["client"] < 0
    lost = {name for name in change if name.startswith("verifier") and change[name] < 0}
    assert lost == set(outcome["convicted"][0]["guilty"]), "those that vouched for the lie, no others"


def test_tokens_add_up_to_what_was_minted(outcome: Any) -> None:
    def parts(shot: Any) -> tuple[int, int, int, int]:
        held = sum(map(int, shot["parties"].values())) + int(shot["held"])
        return held, int(shot["burnt"]), int(shot["undestroyed"]), int(shot["supply"])

    held, burnt, undestroyed, minted = parts(outcome["before"])
    assert (burnt, undestroyed) == (0, 0) and held == minted
    held, burnt, undestroyed, supply = parts(outcome["after"])
    assert held + burnt == minted, "what is held and what was burnt"
    assert supply + burnt - undestroyed == minted, "the token's own supply"
    assert burnt > 0 and outcome["after"]["held"] == 0, "the job and its games left nothing behind"


def test_the_model_learnt(outcome: Any) -> None:
    losses = outcome["heldOutLoss"]
    assert len(losses) == 1 + ROUNDS and losses[-1] < losses[0]


def test_the_model_is_verified_offline(outcome: Any, home: Path) -> None:
    assert outcome["verified"]["rounds"] == ROUNDS and outcome["verified"]["convictions"] == 1
    said = result(assay(home, "job", "verify", str(home / "model")))
    assert said["valid"] is True and said["chain"] is said["replayed"] is None
    assert ["--rpc" in said["notChecked"][0], "--replay all" in said["notChecked"][1]] == [True, True]


def test_the_model_is_replayed_without_the_chain(outcome: Any, home: Path) -> None:
    verify = ("job", "verify", str(home / "model"), "--replay", "5")
    said = result(assay(home, "--account", "client", *verify))
    assert 5 <= said["replayed"]["segments"] <= 6 < said["replayed"]["of"]
    assert len(said["notChecked"]) == 2, "not all segments, and not the chain"
    missing = run(assay(home, *verify))
    assert missing.returncode == Exit.NOT_FOUND and "--rpc" in missing.stderr


def test_the_second_client_finds_the_same_from_the_blocks(outcome: Any, home: Path) -> None:
    stores = [node / "store" for node in (home / "nodes").iterdir() if (node / "store").is_dir()]
    seen = found(home / "model", *stores)
    assert seen["wrong"] == seen["undecided"] == []
    (fallen,) = [note for note in seen["notes"] if "is convicted" in note]
    assert "false in it: segment" in fallen, "the lie about one bit"
    guilty = [note for note in seen["notes"] if "passed false segment" in note]
    assert len(guilty) == len(outcome["convicted"][0]["guilty"])
    compared = seen["compared"]
    assert compared["verdicts"] >= 3 * ROUNDS + 1 and compared["games"] >= 1
    assert compared["steps"] >= 2 * 16 * ROUNDS + ROUNDS and compared["traces"] == compared["votes"] > 0


def test_the_independent_verifier_finds_it_consistent(outcome: Any, home: Path) -> None:
    script = ROOT / "examples" / "verify_receipt.py"
    ended = run([sys.executable, "-I", str(script), str(home / "model")])
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("consistent with its receipt: job ")


def test_the_chain_is_not_asked_once_it_is_gone(outcome: Any, home: Path) -> None:
    ended = run(assay(home, "job", "verify", str(home / "model"), "--rpc"))
    assert ended.returncode not in (Exit.OK, Exit.FRAUD), "not checked is neither right nor wrong"


@pytest.mark.parametrize("name", ["model.safetensors", "receipt.json"])
def test_one_flipped_bit_is_found(outcome: Any, home: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(home / "model", tmp_path / "model"))
    data = bytearray((folder / name).read_bytes())
    data[2 * len(data) // 3] ^= 1
    (folder / name).write_bytes(data)
    ended = run(assay(home, "job", "verify", str(folder)))
    assert ended.returncode == Exit.FRAUD, ended.stdout + ended.stderr
    said = json.loads(ended.stdout)["data"]
    assert said["valid"] is False and name in said["reason"]

"""`assay doctor`: every line has its fix, and none stops the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.app.output import Exit
from assay.cli import doctor
from tests.unit.cli.test_command_line import assay


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    for name in ("ASSAY_HOME", "ASSAY_RPC_URL", "ETH_RPC_URL", "ASSAY_ACCOUNT", "ETH_KEYSTORE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path


def looked(*words: str) -> tuple[int, dict[str, Any]]:
    status, out, _ = assay("--json", *words)
    return status, {line["check"]: line for line in json.loads(out)["data"]["checks"]}


def test_on_a_bare_machine_each_bad_line_says_what_to_do() -> None:
    status, lines = looked("doctor", "--role", "solver")
    assert status == Exit.CONFIG
    assert lines["keys"]["state"] == "bad" and "account new" in lines["keys"]["fix"]
    assert lines["chain"]["state"] == "bad" and "devnet up" in lines["chain"]["fix"]
    assert lines["exactness"]["state"] == "bad" and "solver bench" in lines["exactness"]["fix"]
    assert all(line["fix"] for line in lines.values() if line["state"] != "ok")


def test_a_password_that_others_can_read_is_found(user: Path) -> None:
    assert assay("account", "new", "ann")[0] == Exit.OK
    (user / "user" / ".assay" / "password").chmod(0o644)
    _, lines = looked("doctor")
    assert lines["keys"]["state"] == "ok" and "ann" in lines["keys"]["found"]
    assert lines["password"]["fix"].startswith("chmod 600 ")
    assert "exactness" not in lines, "a client trains nothing"


def test_a_full_disk_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK_BYTES", 1 << 80)
    assert looked("doctor")[1]["disk"]["state"] == "note"


def test_an_unknown_role_is_refused() -> None:
    status, _, err = assay("--json", "doctor", "--role", "king")
    assert status == Exit.CONFIG and json.loads(err)["error"]["code"] == "bad-role"

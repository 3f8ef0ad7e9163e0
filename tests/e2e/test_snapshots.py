"""A devnet kept under a name, and gone back to: money that was sent since is there again."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.devnet.market import take_down
from tests.e2e.commands import assay, result, run


def wallet(home: Path) -> int:
    return int(result(assay(home, "token", "balance", "client"))["wallet"])


@pytest.mark.slow
def test_a_snapshot_is_gone_back_to_and_the_market_goes_on(tmp_path: Path) -> None:
    try:
        result(assay(tmp_path, "devnet", "up", "--solvers=1", "--verifiers=1", "--whistleblowers=0"))
        before = wallet(tmp_path)
        result(assay(tmp_path, "devnet", "snapshot", "fresh"))
        again = run(assay(tmp_path, "devnet", "snapshot", "fresh"))
        assert again.returncode != 0 and "already" in again.stderr
        result(assay(tmp_path, "--account", "client", "token", "deposit", "70tok"))
        assert wallet(tmp_path) == before - 70 * 10**18
        devnet = result(assay(tmp_path, "devnet", "restore", "fresh"))
        assert len(devnet["nodes"]) == 2 and all(node["pid"] > 0 for node in devnet["nodes"])
        assert wallet(tmp_path) == before
        result(assay(tmp_path, "--account", "client", "token", "deposit", "5tok"))
        assert wallet(tmp_path) == before - 5 * 10**18, "it can be written to again"
        assert result(assay(tmp_path, "devnet", "snapshots")) == ["fresh"]
        none = run(assay(tmp_path, "devnet", "restore", "other"))
        assert none.returncode != 0 and "there are: fresh" in none.stderr
        assert (tmp_path / "snapshots" / "fresh" / "password").stat().st_mode & 0o077 == 0
    finally:
        take_down(tmp_path)

"""A node's secret: made once, kept for its owner alone, and never another one without a word."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from assay.app.machine import secret_of
from assay.chain.eth.journal import Journal
from assay.protocol.errors import Ask


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.db")


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path, journal: Journal) -> None:
    first = secret_of(tmp_path, journal)
    assert len(first) == 32 and secret_of(tmp_path, journal) == first
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert first.hex() not in str(journal.remember("secret", ""))


def test_a_secret_of_the_form_without_a_checksum_is_kept(tmp_path: Path, journal: Journal) -> None:
    (tmp_path / "secret").write_bytes(bytes(range(32)))
    (tmp_path / "secret").chmod(0o600)
    assert secret_of(tmp_path, journal) == bytes(range(32)) == secret_of(tmp_path, journal)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


@pytest.mark.parametrize("size", [0, 31, 32, 33, 100])
def test_a_secret_that_was_cut_is_told(tmp_path: Path, journal: Journal, size: int) -> None:
    secret_of(tmp_path, journal)
    path = tmp_path / "secret"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(Ask) as caught:
        secret_of(tmp_path, journal)
    assert caught.value.code == "damaged-record" and "backup" in caught.value.hint


def test_another_secret_than_before_is_told(tmp_path: Path, journal: Journal) -> None:
    secret_of(tmp_path, journal)
    (tmp_path / "secret").unlink()
    for _ in range(2):
        with pytest.raises(Ask) as caught:
            secret_of(tmp_path, journal)
        assert caught.value.code == "other-secret" and "backup" in caught.value.hint

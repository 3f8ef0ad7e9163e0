"""A disk that flips bits, cuts files, loses writes: nothing is wrong without a word, and no error is raw."""

from __future__ import annotations

import json
import logging
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from assay.disk import record
from assay.disk.database import Database
from tests.adversaries.disk_subjects import SUBJECTS, Subject
from tests.adversaries.flipped_bits import Bench, campaign, summary

FAULTS = int(os.environ.get("FAULTS", "24"))
"""Of each kind of file."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="assay")  # as it was again after each test


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])
def test_no_damage_passes_unnoticed_and_every_error_names_the_next_step(
    subject: Subject, tmp_path: Path
) -> None:
    tried = campaign([subject], FAULTS, 7, tmp_path)
    bad = [one for one in tried if one.outcome in ("WRONG", "RAW")]
    assert len(tried) == FAULTS and not bad, f"{bad[:3]}\n{summary(tried)}"


def subject_named(name: str) -> Subject:
    return next(subject for subject in SUBJECTS if subject.name == name)


def outcomes(bench: Bench, count: int) -> Counter[str]:
    rng = random.Random(3)
    return Counter(bench.tries(rng).outcome for _ in range(count))


def test_the_campaign_sees_what_records_without_checksums_let_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(kind: str, data: bytes) -> object:
        return json.loads(data)["body"]

    monkeypatch.setattr(record, "decode", trusting)
    found = outcomes(Bench(subject_named("deployment"), tmp_path), 60)
    assert found["WRONG"] > 20, found


def test_the_campaign_sees_what_rows_without_checksums_let_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trusting(self: Database, table: str, rest: str = "", values: tuple[object, ...] = ()) -> object:
        return iter(self._db.execute(f"SELECT * FROM {table} {rest}", values).fetchall())

    monkeypatch.setattr(Database, "rows", trusting)
    monkeypatch.setattr(Database, "_compare", lambda self: None)
    found = outcomes(Bench(subject_named("journal"), tmp_path), 60)
    assert found["WRONG"] + found["RAW"] > 0, found

"""What the supply check says of pins, hashes and advisories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.prove.supply import LOCK, advised, affected, pins, unhashed

RANGE = {"type": "ECOSYSTEM", "events": [{"introduced": "1.0"}, {"fixed": "1.5"}]}
OPEN = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"last_affected": "2.0"}]}


def test_every_pin_and_every_npm_package_has_a_hash() -> None:
    assert len(pins(LOCK)) > 100 and list(unhashed()) == []


@pytest.mark.parametrize(
    ("version", "entry", "is_affected"),
    [
        ("1.4", {"ranges": [RANGE]}, True),
        ("1.0", {"ranges": [RANGE]}, True),
        ("1.5", {"ranges": [RANGE]}, False),
        ("0.9", {"ranges": [RANGE]}, False),
        ("1.10", {"ranges": [RANGE]}, False),
        ("2.0", {"ranges": [OPEN]}, True),
        ("2.0.1", {"ranges": [OPEN]}, False),
        ("3.0", {"ranges": [RANGE], "versions": ["3.0"]}, True),
        ("3.0", {"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
    ],
)
def test_a_version_is_affected_as_osv_says(version: str, entry: dict[str, Any], is_affected: bool) -> None:
    assert affected(version, entry) is is_affected


def advisory(name: str, ecosystem: str = "PyPI", **more: Any) -> dict[str, Any]:
    package = {"name": name, "ecosystem": ecosystem}
    return {"id": f"X-{name}", "affected": [{"package": package, "ranges": [RANGE]}], **more}


def test_advisories_are_asked_offline(tmp_path: Path) -> None:
    records = [
        advisory("Some_Package"),
        advisory("other"),
        advisory("Some_Package", "npm"),
        advisory("gone", withdrawn="2020-01-01T00:00:00Z"),
    ]
    for number, record in enumerate(records):
        (tmp_path / f"{number}.json").write_text(json.dumps(record))
    here = {"some-package": "1.2", "other": "2.0", "gone": "1.2"}
    assert [line.split(":")[0] for line in advised(tmp_path, here)] == ["some-package 1.2"]


def test_an_empty_database_is_no_good_news(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        list(advised(tmp_path, {"x": "1"}))

"""Records on disk: what was written comes back, and nothing else does."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.disk import record
from assay.disk.record import DamagedRecord

KIND = "test/thing/1"
BODY = {"name": "é", "amount": 10**30, "parts": [1, 2.5, None, True, "x" * 40], "empty": {}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_what_was_encoded_is_decoded(body: object) -> None:
    assert record.decode(KIND, record.encode(KIND, body)) == body


def test_no_flipped_bit_passes() -> None:
    data = record.encode(KIND, BODY)
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(ValueError):
            record.decode(KIND, bytes(flipped))


def test_a_record_is_json(tmp_path: Path) -> None:
    assert json.loads(record.encode(KIND, BODY)).keys() == {"kind", "sha256", "body"}


def test_no_cut_and_nothing_added_passes() -> None:
    data = record.encode(KIND, BODY)
    for other in [*(data[:end] for end in range(len(data))), data + b"\n", data + data, b" " + data]:
        with pytest.raises(ValueError):
            record.decode(KIND, other)


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "null", '"x"', "[" * 100_000, "9" * 5_000, '{"kind": 1, "sha256": 2, "body": 3}']
)
def test_no_other_file_passes(text: str, tmp_path: Path) -> None:
    path = tmp_path / "thing.json"
    path.write_text(text)
    with pytest.raises(DamagedRecord) as caught:
        record.read(path, KIND, hint="write it again")
    assert caught.value.hint == "write it again" and str(path) in caught.value.message


def test_a_record_of_another_kind_is_not_taken(tmp_path: Path) -> None:
    record.write(tmp_path / "thing.json", "test/other/1", BODY)
    with pytest.raises(DamagedRecord, match="another kind of record"):
        record.read(tmp_path / "thing.json", KIND, hint="")


def test_a_record_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "thing.json"
    for body in (BODY, [1]):
        record.write(path, KIND, body)
        assert record.read(path, KIND, hint="") == body
    assert os.listdir(path.parent) == ["thing.json"]
    assert record.read(path.with_name("none.json"), KIND, hint="") is None


def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "thing.json"
    record.write(path, KIND, 1)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        record.write(path, KIND, 2)
    assert record.read(path, KIND, hint="") == 1 and os.listdir(tmp_path) == ["thing.json"]


def test_a_private_record_is_its_owners_alone(tmp_path: Path) -> None:
    record.write(tmp_path / "secret", KIND, 1, private=True)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_what_can_be_had_again_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "thing.json"
    path.write_text("{")
    assert record.read_or_quarantine(path, KIND, instead="it is made again") is None
    assert os.listdir(tmp_path) == ["thing.json.damaged"]
    assert "it is made again" in caplog.text
    path.mkdir()
    assert record.read_or_quarantine(path, KIND, instead="it is made again") is None


def test_who_may_not_read_a_record_is_told_that_and_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(PermissionError):
        record.read(tmp_path / "thing.json", KIND, hint="")


def test_a_folder_where_a_record_should_be_is_damage(tmp_path: Path) -> None:
    with pytest.raises(DamagedRecord, match="directory"):
        record.read(tmp_path, KIND, hint="")
    assert record.read(Path("\0"), KIND, hint="") is None

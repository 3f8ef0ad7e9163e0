"""Key files: private to their owner, never overwritten, never shown."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from assay.chain.eth import keystore
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, BadKey, KeyProblem, Keystore, read_password
from tests.marked import long

STRONG = keystore.STRONG_SCRYPT_N
"""As it is outside of tests."""
KEY = bytes(range(1, 33))


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("secret words\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Keystore:
    return Keystore(tmp_path / "keystores")


def test_imported_key_comes_back_from_a_private_file(store: Keystore, password_file: Path) -> None:
    stored = store.import_key("alice", KEY, "secret words", scrypt_n=DEVNET_SCRYPT_N)
    assert stat.S_IMODE(stored.path.stat().st_mode) == 0o600
    assert json.loads(stored.path.read_text())["version"] == 3
    account = store.load("alice", password_file)
    assert account.key == KEY and account.address == stored.address
    assert KEY.hex() not in stored.path.read_text()
    assert KEY.hex() not in repr(account)


@pytest.mark.long
def test_a_key_is_strong_unless_told(
    store: Keystore, password_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keystore, "STRONG_SCRYPT_N", STRONG)
    for stored in (store.create("alice", "secret words"), store.import_key("bob", KEY, "secret words")):
        crypto = json.loads(stored.path.read_text())["crypto"]
        assert (crypto["kdf"], crypto["kdfparams"]["n"], crypto["kdfparams"]["r"]) == ("scrypt", 2**18, 8)
    assert store.load("bob", password_file).key == KEY


def test_created_keys_differ_and_are_listed(store: Keystore) -> None:
    a = store.create("a", "x", scrypt_n=DEVNET_SCRYPT_N)
    b = store.create("b", "x", scrypt_n=DEVNET_SCRYPT_N)
    (store.directory / "notes.txt").write_text("not a key")
    assert a.address != b.address
    assert store.list() == [a, b]


def test_existing_name_is_never_overwritten(store: Keystore) -> None:
    first = store.create("a", "x", scrypt_n=DEVNET_SCRYPT_N)
    before = first.path.read_bytes()
    with pytest.raises(KeyProblem, match="exists"):
        store.create("a", "x", scrypt_n=DEVNET_SCRYPT_N)
    assert first.path.read_bytes() == before


def test_a_name_taken_meanwhile_is_not_overwritten(store: Keystore, monkeypatch: pytest.MonkeyPatch) -> None:
    first = store.create("a", "x", scrypt_n=DEVNET_SCRYPT_N)
    before = first.path.read_bytes()
    monkeypatch.setattr(Keystore, "_new", lambda *_: None)
    with pytest.raises(KeyProblem, match="exists"):
        store.create("a", "x", scrypt_n=DEVNET_SCRYPT_N)
    assert first.path.read_bytes() == before


def test_wrong_password_is_said_without_a_trace_of_the_key(store: Keystore) -> None:
    store.import_key("a", KEY, "x", scrypt_n=DEVNET_SCRYPT_N)
    with pytest.raises(KeyProblem, match="password") as caught:
        store.unlock("a", "y")
    assert KEY.hex() not in str(caught.value)


def test_file_that_states_another_address_is_refused(store: Keystore) -> None:
    stored = store.import_key("a", KEY, "x", scrypt_n=DEVNET_SCRYPT_N)
    document = json.loads(stored.path.read_text())
    document["address"] = "22" * 20
    stored.path.write_text(json.dumps(document))
    with pytest.raises(KeyProblem, match="another address"):
        store.unlock("a", "x")


def test_missing_account_lists_those_that_are_there(store: Keystore) -> None:
    store.create("bob", "x", scrypt_n=DEVNET_SCRYPT_N)
    with pytest.raises(KeyProblem, match="bob"):
        store.unlock("alice", "x")


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a" * 65])
def test_names_stay_inside_the_directory(store: Keystore, name: str) -> None:
    with pytest.raises(BadKey):
        store.create(name, "x", scrypt_n=DEVNET_SCRYPT_N)


@pytest.mark.parametrize("key", [b"", b"\x01" * 31, bytes(32), b"\xff" * 32])
def test_malformed_private_key_is_refused_and_not_quoted(store: Keystore, key: bytes) -> None:
    with pytest.raises(BadKey) as caught:
        store.import_key("a", key, "x", scrypt_n=DEVNET_SCRYPT_N)
    assert caught.value.__suppress_context__
    assert not key or key.hex() not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_password_file_that_others_can_read_is_refused(password_file: Path, mode: int) -> None:
    password_file.chmod(mode)
    with pytest.raises(KeyProblem, match="others"):
        read_password(password_file)


def test_password_keeps_inner_spaces_and_loses_the_line_end(password_file: Path) -> None:
    assert read_password(password_file) == "secret words"


def test_empty_password_is_refused(store: Keystore) -> None:
    with pytest.raises(KeyProblem, match="empty"):
        store.create("a", "", scrypt_n=DEVNET_SCRYPT_N)


def test_a_damaged_key_file_is_not_called_absent(store: Keystore, password_file: Path) -> None:
    stored = store.import_key("alice", KEY, "secret words", scrypt_n=DEVNET_SCRYPT_N)
    stored.path.write_text(stored.path.read_text()[:-20])
    with pytest.raises(KeyProblem, match="damaged") as caught:
        store.load("alice", password_file)
    assert "backup" in caught.value.hint
    with pytest.raises(KeyProblem, match="damaged"):
        store.find("alice")
    with pytest.raises(KeyProblem, match="there is no account named bob"):
        store.find("bob")


def test_a_name_that_is_nearly_an_accounts_is_answered_with_it(store: Keystore) -> None:
    store.import_key("alice", KEY, "secret words", scrypt_n=DEVNET_SCRYPT_N)
    with pytest.raises(KeyProblem, match=r"it has: alice; did you mean 'alice'\?"):
        store.find("alise")


@pytest.mark.parametrize("every", [7, long(3)])
def test_no_flipped_bit_of_a_key_file_gives_another_account(
    store: Keystore, password_file: Path, every: int
) -> None:
    stored = store.import_key("alice", KEY, "secret words", scrypt_n=2)
    data = stored.path.read_bytes()
    right, refused = 0, 0
    for place in range(0, 8 * len(data), every):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        stored.path.write_bytes(flipped)
        try:
            assert store.find("alice").address == stored.address
            assert store.load("alice", password_file).key == KEY
            right += 1
        except KeyProblem as error:
            assert error.hint
            refused += 1
    assert refused > 1500 // every and right > 30 // every, (
        "a flip in what nobody reads, such as the file's id, is harmless"
    )

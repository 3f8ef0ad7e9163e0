"""Keys: no password is written unless asked, one that is typed opens its key, and a key comes out again."""

from __future__ import annotations

import getpass
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.app import accounts
from assay.app.accounts import open_key
from assay.app.output import Exit
from assay.app.settings import Flags, Settings
from assay.chain.eth import keystore
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, KeyProblem, Keystore
from tests.unit.cli.test_command_line import assay

Types = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _here(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(keystore, "STRONG_SCRYPT_N", DEVNET_SCRYPT_N)
    monkeypatch.setattr(accounts, "_typed", {})


@pytest.fixture
def types(monkeypatch: pytest.MonkeyPatch) -> Iterator[Types]:
    """A person who types these words at the terminal; returns the prompts."""
    asked: list[str] = []

    def begin(*words: str) -> list[str]:
        given = iter(words)

        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        def answer(prompt: str = "") -> str:
            asked.append(prompt)
            return next(given)

        monkeypatch.setattr(sys, "stdin", Terminal())
        monkeypatch.setattr(getpass, "getpass", answer)
        return asked

    yield begin


def test_a_new_key_has_the_password_that_is_typed_and_no_file_has_it(types: Types) -> None:
    asked = types("open sesame", "open sesame")
    status, out, err = assay("account", "new", "alice", "--home", "h")
    assert status == Exit.OK and "alice" in out and len(asked) == 2
    assert "back it up" in err and "account use alice" in err
    assert [path.name for path in Path("h").rglob("*") if path.is_file()] == ["alice"]
    assert Keystore(Path("h/keystore")).unlock("alice", "open sesame")


def test_two_different_passwords_make_no_key(types: Types) -> None:
    types("one", "two")
    status, _, err = assay("account", "new", "alice", "--home", "h")
    assert status == Exit.CONFIG and "no key was made" in err and not Path("h").exists()


def test_where_nobody_types_no_key_is_made_without_being_told_how() -> None:
    status, _, err = assay("account", "new", "alice", "--home", "h", "--json")
    error = json.loads(err.splitlines()[-1])["error"]
    assert status == Exit.CONFIG and error["code"] == "no-password" and "--write-password" in error["hint"]
    assert not Path("h").exists()


def test_a_password_is_written_for_who_asks_for_that() -> None:
    status, _, err = assay("account", "new", "alice", "--home", "h", "--write-password")
    assert status == Exit.OK and "in plain text" in err
    assert Path("h/password").stat().st_mode & 0o077 == 0
    assert open_key(Settings(Flags(home="h")), "alice")
    assert assay("account", "new", "bob", "--home", "h")[0] == Exit.OK, "the same opens the next one"


def test_a_password_file_that_was_named_is_the_one_that_counts(types: Types) -> None:
    asked = types("never asked")
    status, _, err = assay("account", "new", "alice", "--home", "h", "--password-file", "missing")
    assert status == Exit.CONFIG and "missing" in err and asked == []


def test_a_key_is_opened_by_what_is_typed_and_asked_for_once(types: Types) -> None:
    types("sesame", "sesame")
    assay("account", "new", "alice", "--home", "h")
    asked = types("wrong", "sesame")
    del asked[:]
    settings = Settings(Flags(home="h"))
    with pytest.raises(KeyProblem, match="does not open"):
        open_key(settings, "alice")
    first = open_key(settings, "alice")
    assert open_key(settings, "alice").key == first.key and len(asked) == 2


def test_where_nobody_types_a_key_is_not_opened(monkeypatch: pytest.MonkeyPatch, types: Types) -> None:
    types("sesame", "sesame")
    assay("account", "new", "alice", "--home", "h")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(KeyProblem, match="nothing was signed"):
        open_key(Settings(Flags(home="h")), "alice")


def test_a_key_file_comes_out_and_goes_in_elsewhere() -> None:
    assay("account", "new", "alice", "--home", "h", "--write-password")
    status, _, _ = assay("account", "export", "alice", "--home", "h", "--out", "copy.json")
    assert status == Exit.OK and Path("copy.json").read_text() == Path("h/keystore/alice").read_text()
    assert Path("copy.json").stat().st_mode & 0o077 == 0
    status, _, err = assay("account", "export", "alice", "--home", "h", "--out", "copy.json")
    assert status == Exit.CONFIG and "nothing was written" in err


def test_a_private_key_is_given_out_after_a_yes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assay("account", "new", "alice", "--home", "h", "--write-password")
    words = ("account", "export", "alice", "--private-key", "--home", "h")
    key = open_key(Settings(Flags(home="h")), "alice").key.hex().removeprefix("0x")
    status, out, err = assay(*words)
    assert status == Exit.CONFIRM and key not in out + err
    status, out, err = assay(*words, "--yes")
    assert status == Exit.OK and out.strip() == f"0x{key}" and key not in err
    monkeypatch.setattr(sys, "stdin", io.StringIO(out))
    status, _, _ = assay("account", "import", "again", "--home", "h")
    assert status == Exit.OK
    addresses = {account.address for account in Keystore(Path("h/keystore")).list()}
    assert len(addresses) == 1


def test_a_dry_run_gives_no_key_out() -> None:
    assay("account", "new", "alice", "--home", "h", "--write-password")
    status, out, _ = assay("account", "export", "alice", "--private-key", "--home", "h", "--dry-run")
    assert status == Exit.OK and "would send" in out and "0x" not in out

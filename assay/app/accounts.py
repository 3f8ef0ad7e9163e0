"""Resolves account names to addresses and keys, and asks for passwords.

Contract: no password is written to disk unless the caller asks for it. A typed password is asked for once per
process.
"""

from __future__ import annotations

import getpass
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from assay.app.invocation import App
from assay.app.settings import Settings
from assay.protocol.errors import Ask
from assay.protocol.types import Address

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

_typed: dict[Path, str] = {}
"""Passwords typed in this process, by key file."""


def password_for(app: App, *, kept: bool = False) -> str:
    """Password for a new key: from the password file, or typed twice at a terminal.

    With `kept` it is generated and written to that file (mode 0600) in plain text. Raises Ask.
    """
    from assay.chain.eth.keystore import read_password

    path = app.settings.password_file
    if path.exists() or not (kept or _may_ask(app.settings)):
        return read_password(path)
    if kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24) + "\n")
        app.output.say(f"wrote a fresh password in plain text to {path}: whoever reads it can use the keys")
        return read_password(path)
    if not sys.stdin.isatty():
        raise Ask(
            "a new key needs a password, and this command has no terminal to ask for one; no key was made",
            hint="name a file that holds one with --password-file, or have one generated and written beside"
            " the key with --write-password",
            code="no-password",
        )
    password = getpass.getpass("password for the new key: ")
    if password != getpass.getpass("the same again: "):
        raise Ask("the two passwords differ; no key was made", hint="repeat the command", code="no-password")
    return password


def open_key(settings: Settings, name: str) -> LocalAccount:
    """Opens an account's key with its password file or a typed password. Raises KeyProblem."""
    from assay.chain.eth.keystore import Keystore

    keystore, path = Keystore(settings.keystore), settings.password_file
    if path.exists() or not _may_ask(settings) or not sys.stdin.isatty():
        return keystore.load(name, path)
    file = keystore.find(name).path
    typed = _typed.get(file)
    password = getpass.getpass(f"password of {name}: ") if typed is None else typed
    key = keystore.unlock(name, password)
    _typed[file] = password
    return key


def _may_ask(settings: Settings) -> bool:
    """True if no password file is configured."""
    return settings.find("password_file") is None


def resolve(app: App, name_or_address: str) -> Address:
    """Address of a keystore name, or the given address. Raises KeyProblem for an unknown or damaged one."""
    from assay.chain.eth.keystore import Keystore

    if name_or_address.startswith("0x"):
        from eth_utils.address import to_checksum_address

        from assay.protocol.sampling import address_bytes

        return Address(to_checksum_address(address_bytes(Address(name_or_address))))
    return Address(Keystore(app.settings.keystore).find(name_or_address).address)

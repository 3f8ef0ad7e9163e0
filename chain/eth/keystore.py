"""Stores accounts as Web3 Secret Storage v3 files, interchangeable with Foundry's keystores.

Contract: a key file has mode 0600 and is never overwritten. A private key is never logged or put in an error.
Passwords come from a file that only its owner can read. Not guaranteed: protection from whoever can read this
process's memory. Source: Web3 Secret Storage Definition v3; EIP-55 for addresses. A mixed-case address must
have EIP-55's checksum, so that a flipped bit names nobody else.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eth_utils.address import to_checksum_address

from assay.chain.eth.accounts import account_library
from assay.protocol import bounded_json
from assay.protocol.errors import Ask, Stop
from assay.protocol.words import meant

if TYPE_CHECKING:  # eth_account takes a quarter of a second to import: only who opens a key waits for it
    from eth_account.signers.local import LocalAccount

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
STRONG_SCRYPT_N = 1 << 18
_UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError),
    *(ArithmeticError, MemoryError, NotImplementedError, AssertionError),
)
"""Exceptions that the library raises for damaged key files."""
DEVNET_SCRYPT_N = 1 << 12  # for keys that guard nothing: test chains only


class KeyProblem(Ask):
    """A key, its file or its password needs a person."""

    code = "key-problem"


class BadKey(Stop):
    """A name or a private key is malformed."""

    code = "bad-key"


@dataclass(frozen=True)
class StoredAccount:
    """A key file by name, with the address that it states (checked when the key is loaded)."""

    name: str
    address: str
    path: Path


class Keystore:
    """A directory of key files, one per name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser()

    def create(self, name: str, password: str, *, scrypt_n: int | None = None) -> StoredAccount:
        """Creates a key, encrypted strongly unless told otherwise.

        Raises KeyProblem if the name is taken, BadKey if it is malformed.
        """
        self._new(name, password)
        return self._store(name, account_library().create(), password, scrypt_n)

    def import_key(
        self, name: str, private_key: bytes, password: str, *, scrypt_n: int | None = None
    ) -> StoredAccount:
        """Stores an existing 32-byte key. Raises KeyProblem if the name is taken, BadKey."""
        self._new(name, password)
        library = account_library()
        from eth_keys.exceptions import ValidationError

        try:
            account = library.from_key(private_key)
        except (ValueError, TypeError, ValidationError) as error:
            raise BadKey(  # "from None": the library's error may quote the key
                f"this is not a private key ({type(error).__name__}); nothing was stored",
                hint="a key is 32 bytes, 64 hex digits",
            ) from None
        return self._store(name, account, password, scrypt_n)

    def list(self) -> list[StoredAccount]:
        """All well-formed key files, by name."""
        found = []
        for path in sorted(self.directory.glob("*")) if self.directory.is_dir() else []:
            address = _address(path)
            if address is not None:
                found.append(StoredAccount(path.name, address, path))
        return found

    def find(self, name: str) -> StoredAccount:
        """The key file of this name. Raises KeyProblem if missing or damaged; BadKey."""
        path = self._path(name)
        if not path.exists():
            known = [account.name for account in self.list()]
            raise KeyProblem(
                f"there is no account named {name} in {self.directory}; it has:"
                f" {', '.join(known) or 'none'}{meant(name, known)}",
                hint=f"assay account new {name}, or choose one with --account; `assay account ls` lists them",
                code="no-account",
            )
        address = _address(path)
        if address is None:
            raise KeyProblem(
                f"{path} is damaged or not a key file, so account {name} cannot be used; nothing was signed",
                hint="restore the file from a backup; without its key the account is lost",
            )
        return StoredAccount(name, address, path)

    def load(self, name: str, password_file: Path) -> LocalAccount:
        """Decrypts the key of this name. Raises KeyProblem."""
        return self.unlock(name, read_password(password_file))

    def unlock(self, name: str, password: str) -> LocalAccount:
        """Decrypts the key of this name with a password. Raises KeyProblem."""
        stored = self.find(name)
        library = account_library()
        try:
            account: LocalAccount = library.from_key(library.decrypt(stored.path.read_text(), password))
        except _UNREADABLE:
            raise KeyProblem(
                f"the password does not open account {name}, or its file {stored.path} is damaged; nothing"
                " was signed",
                hint="check --password-file (ETH_PASSWORD); if it is right, restore the file from a backup",
            ) from None
        if account.address != stored.address:
            raise KeyProblem(
                f"the file of account {name} names another address than its key's; nothing was signed",
                hint="restore the file from a backup",
            )
        return account

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise BadKey(f"{name!r} cannot be an account name", hint="use letters, digits, '.', '_' and '-'")
        return self.directory / name

    def check_free(self, name: str) -> None:
        """Raises KeyProblem if the name is taken, BadKey if it is invalid."""
        if self._path(name).exists():
            raise _taken(name)

    def _new(self, name: str, password: str) -> None:
        """Checks name and password before a key is created. Raises KeyProblem, BadKey."""
        self.check_free(name)
        if not password:
            raise KeyProblem("an empty password protects nothing; no key was stored", hint="give a password")

    def _store(self, name: str, account: LocalAccount, password: str, scrypt_n: int | None) -> StoredAccount:
        cost, path = scrypt_n or STRONG_SCRYPT_N, self._path(name)
        document = account_library().encrypt(account.key, password, kdf="scrypt", iterations=cost)
        document["address"] = account.address.removeprefix("0x")  # with EIP-55's checksum in its case
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise _taken(name) from None
        with os.fdopen(handle, "w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        return StoredAccount(name, account.address, path)


def _taken(name: str) -> KeyProblem:
    return KeyProblem(
        f"an account named {name} exists already; nothing was changed",
        hint="use it as it is, or choose another name",
    )


def is_light(path: Path) -> bool:
    """True if the key file uses DEVNET_SCRYPT_N, which protects nothing."""
    try:
        return bool(bounded_json.loads(path.read_text())["crypto"]["kdfparams"]["n"] == DEVNET_SCRYPT_N)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def read_password(path: Path) -> str:
    """Reads the password in a file, without its line end. Raises KeyProblem if others may read the file."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyProblem(
            f"the password file {path} cannot be read ({type(error).__name__}); nothing was signed",
            hint="give an existing text file with --password-file; at a terminal it can be typed",
        ) from None
    if mode & 0o077:
        raise KeyProblem(
            f"the password file {path} can be read by others (mode {mode:04o}); nothing was signed",
            hint=f"chmod 600 {path}",
        )
    return text.rstrip("\r\n")


def _address(path: Path) -> str | None:
    """The address that a key file states; None if it is no key file."""
    try:
        document = bounded_json.loads(path.read_text())
        if document["version"] != 3:
            return None
        stated = document["address"].removeprefix("0x")
        address = to_checksum_address("0x" + stated)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return address if stated in (stated.lower(), address.removeprefix("0x")) else None

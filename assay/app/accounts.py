"""Accounts by name: the address behind one, and the password of a new key."""

from __future__ import annotations

import secrets

from assay.app.invocation import App
from assay.protocol.types import Address


def password_for(app: App) -> str:
    """Password for a new key: the password file's, made afresh (mode 0600) when there is none yet."""
    from assay.chain.eth.keystore import read_password

    path = app.settings.password_file
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24) + "\n")
        app.output.say(f"wrote a fresh password to {path}")
    return read_password(path)


def resolve(app: App, name_or_address: str) -> Address:
    """Address of a keystore name, or the address itself. Raises KeyProblem for an unknown or damaged one."""
    from assay.chain.eth.keystore import Keystore

    if name_or_address.startswith("0x"):
        from eth_utils.address import to_checksum_address

        from assay.protocol.sampling import address_bytes

        return Address(to_checksum_address(address_bytes(Address(name_or_address))))
    return Address(Keystore(app.settings.keystore).find(name_or_address).address)

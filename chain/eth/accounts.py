"""The library of accounts, `eth_account`, without the pairing curve that it never uses here.

Contract: `account_library` gives `eth_account.Account`, unchanged. eth_keyfile, which it reads key files
with, imports all of BLS12-381 for key files of version 4 (the beacon chain's validators), and that takes more
time than everything else that a command does before it sends. Here the curve is imported when a key file of
that version is written. Not guaranteed: anything to who imports eth_account by itself before; it works then
as ever, and takes its time.
Source: eth_keyfile/keyfile.py names G2ProofOfPossession and curve_order.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eth_account import Account

_ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
"""Of the curve's group: what a private key of version 4 is compared with."""
_LOCK = threading.Lock()


class _Later:
    """`py_ecc.bls.G2ProofOfPossession`, imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("py_ecc.bls").G2ProofOfPossession, name)


def account_library() -> type[Account]:
    """`eth_account.Account`, imported at the first call."""
    with _LOCK:
        if "eth_keyfile" not in sys.modules:
            _import_key_files()
    from eth_account import Account

    return Account


def _import_key_files() -> None:
    """Import eth_keyfile while two other modules stand where it looks for the curve."""
    ways: dict[str, dict[str, Any]] = {
        "py_ecc.bls": {"G2ProofOfPossession": _Later()},
        "py_ecc.bls12_381": {"curve_order": _ORDER},
    }
    placed = {}
    for name, content in ways.items():
        if name not in sys.modules:
            placed[name] = ModuleType(name)
            vars(placed[name]).update(content)
    sys.modules.update(placed)
    try:
        import_module("eth_keyfile")
    finally:
        for name in placed:
            del sys.modules[name]

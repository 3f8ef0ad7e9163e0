"""Imports `eth_account` without the BLS curve that it does not need here.

Contract: `account_library` returns `eth_account.Account`, unchanged. eth_keyfile, which it uses, imports all
of BLS12-381 for version 4 key files (the beacon chain's validators). That takes longer than everything else a
command does before it sends. Here the curve is imported only when such a file is written. If other code
imports eth_account first, it works as usual and takes its time. Source: eth_keyfile/keyfile.py names
G2ProofOfPossession and curve_order.
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
"""Order of the curve's group, with which a version 4 private key is compared."""
_LOCK = threading.Lock()


class _Later:
    """`py_ecc.bls.G2ProofOfPossession`, imported on first use."""

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
    """Imports eth_keyfile with two stub modules in place of the curve."""
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

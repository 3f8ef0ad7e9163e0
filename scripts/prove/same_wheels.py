"""Checks that two wheels install the same files, and include what a user needs beside code.

Usage: same_wheels.py WHEEL WHEEL. The exit status is 1 if they differ.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from zipfile import ZipFile

NEEDED = ("assay/py.typed", "assay/contracts/src/market/Vault.sol", "assay/contracts/artifacts/Vault.json")


def digests(wheel: str) -> dict[str, str]:
    """Digests of a wheel's files; RECORD lists them in its own order."""
    with ZipFile(wheel) as held:
        return {
            name: sha256(held.read(name)).hexdigest()
            for name in held.namelist()
            if not name.endswith(("/", "/RECORD"))
        }


def main(one: str, other: str) -> int:
    """Compare them."""
    first, second = digests(one), digests(other)
    different = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    for name in (*different, *(name for name in NEEDED if name not in second)):
        print(f"{name}: differs, or is missing")
    return int(bool(different) or any(name not in second for name in NEEDED))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

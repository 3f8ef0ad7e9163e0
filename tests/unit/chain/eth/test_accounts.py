"""The library of accounts is imported without the curve that nothing here uses, and is whole all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
OPEN_A_KEY = """
import sys
from pathlib import Path
from assay.chain.eth.keystore import DEVNET_SCRYPT_N, Keystore
store = Keystore(Path(sys.argv[1]))
key = bytes(range(1, 33))
store.import_key("one", key, "words", scrypt_n=DEVNET_SCRYPT_N)
assert store.unlock("one", "words").key == key
curves = [name for name in sys.modules if name.startswith("py_ecc") and "secp256k1" not in name]
assert curves == ["py_ecc"], curves
"""
WRITE_VERSION_4 = """
from assay.chain.eth.accounts import _ORDER, account_library
account_library()
from eth_keyfile import create_keyfile_json, decode_keyfile_json
made = create_keyfile_json(bytes(31) + b"\\x05", b"words", version=4, iterations=2)
assert decode_keyfile_json(made, b"words") == bytes(31) + b"\\x05"
from py_ecc.bls import G2ProofOfPossession
from py_ecc.bls12_381 import curve_order
assert made["pubkey"] == G2ProofOfPossession.SkToPk(5).hex()
assert curve_order == _ORDER
"""


def run(program: str, *arguments: str) -> None:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_opening_a_key_imports_no_pairing_curve(tmp_path: Path) -> None:
    run(OPEN_A_KEY, str(tmp_path / "keys"))


@pytest.mark.long
def test_a_key_file_of_version_4_is_written_with_the_real_curve() -> None:
    run(WRITE_VERSION_4)

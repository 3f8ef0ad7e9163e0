"""Where the Solidity sources and their tools lie."""

from pathlib import Path

CONTRACTS_DIR = Path(__file__).resolve().parent.parent / "contracts"

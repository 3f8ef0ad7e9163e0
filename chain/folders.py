"""Paths of the Solidity sources and their tools."""

from pathlib import Path

CONTRACTS_DIR = Path(__file__).resolve().parent.parent / "contracts"

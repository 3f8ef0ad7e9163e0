"""What a block explorer is given: sources that compile by themselves to what was deployed."""

from __future__ import annotations

from pathlib import Path

import pytest
import solcx

from assay.chain.contracts.compile import CONTRACTS_DIR, compile_contracts
from assay.chain.contracts.profiles import PROFILES
from assay.chain.contracts.verification import standard_input


def test_every_import_is_in_the_input() -> None:
    made = standard_input()
    assert "src/market/Vault.sol" in made["sources"]
    token = "node_modules/@openzeppelin/contracts/token/ERC20/ERC20.sol"
    assert token in made["sources"], "the libraries come along"
    assert made["settings"]["evmVersion"] == "prague"
    assert not any("test/" in name for name in made["sources"])


@pytest.mark.slow
def test_the_input_alone_compiles_to_what_is_deployed(tmp_path: Path) -> None:
    made = standard_input()
    output = solcx.compile_standard(made, base_path=tmp_path, solc_binary=CONTRACTS_DIR / "bin" / "solc")
    for name, artifact in compile_contracts().items():
        code = output["contracts"][artifact.source][name]["evm"]["bytecode"]["object"]
        assert code == artifact.bytecode, name


def test_stake_leaves_later_than_a_window_and_a_game() -> None:
    for profile in PROFILES.values():
        bounds, delays = profile.bounds, profile.delays
        assert delays.unbond_s > bounds.most_window + 10 * bounds.most_move
        assert delays.unbind_s > delays.unbond_s

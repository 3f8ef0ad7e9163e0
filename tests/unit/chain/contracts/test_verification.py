"""Files for a block explorer: sources that compile by themselves to the deployed code."""

from __future__ import annotations

from assay.chain.contracts.artifacts import load_build
from assay.chain.contracts.plan import PROFILES
from assay.chain.contracts.verification import standard_input
from scripts.generate import artifacts


def test_every_import_is_in_the_input() -> None:
    made = standard_input()
    assert "src/market/Vault.sol" in made["sources"]
    token = "node_modules/@openzeppelin/contracts/token/ERC20/ERC20.sol"
    assert token in made["sources"], "the libraries come along"
    assert made["settings"]["evmVersion"] == "prague"
    assert not any("test/" in name for name in made["sources"])


def test_the_input_is_what_the_artifacts_were_compiled_from() -> None:
    """Fails after a change of contracts/src or foundry.toml until `make artifacts` has been run."""
    build, made = load_build(), standard_input()
    assert made["settings"] == artifacts.settings()
    assert artifacts.hash_of(made, build.compiler) == build.source_hash, "run make artifacts"


def test_stake_leaves_later_than_a_window_and_a_game() -> None:
    for profile in PROFILES.values():
        bounds, delays = profile.bounds, profile.delays
        assert delays.unbond_s > bounds.most_window + 10 * bounds.most_move
        assert delays.unbind_s > delays.unbond_s

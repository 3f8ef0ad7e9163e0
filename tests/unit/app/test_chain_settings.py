"""Fees, confirmations and finality as the operator writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.app.chain_settings import policy_of
from assay.app.settings import Flags, Settings
from assay.chain.eth.fees import FeePolicy
from assay.protocol.errors import Ask

pytestmark = pytest.mark.usefixtures("user")


def test_defaults_are_the_senders_own() -> None:
    assert policy_of(Settings(Flags())) == FeePolicy()


def test_flags_then_environment_then_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("assay.toml").write_text('tip = "1gwei"\nmax_fee = "30gwei"\nfinality = "64"\n')
    monkeypatch.setenv("ASSAY_TIP", "2gwei")
    policy = policy_of(Settings(Flags(finality="finalized", confirmations="3", fee_bump="40")), "0.5ether")
    assert policy.tip_wei == 2 * 10**9 and policy.max_fee_per_gas_wei == 30 * 10**9
    assert policy.final_blocks is None and (policy.confirmations, policy.bump_percent) == (3, 40)
    assert policy.spend_limit_wei == 5 * 10**17


@pytest.mark.parametrize(
    "name, value",
    [
        ("max_fee", "30"),
        ("tip", "much"),
        ("fee_bump", "9"),
        ("fee_bump", "-30"),
        ("confirmations", "two"),
        ("confirmations", "9" * 400),
        ("finality", "final"),
        ("finality", "٣"),
    ],
)
def test_what_is_no_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(Ask, match=name) as refused:
        policy_of(Settings(Flags(**{name: value})))
    assert "flag" in refused.value.message and name.upper() in refused.value.hint

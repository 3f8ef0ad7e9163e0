"""Converts the operator's settings on fees and finality to the sender's policy.

Contract: every value is checked before anything is sent; an error names the setting, its origin and valid
values.
"""

from __future__ import annotations

from assay.app.settings import Setting, Settings
from assay.app.units import parse_amount
from assay.chain.eth.fees import LEAST_BUMP_PERCENT, FeePolicy
from assay.protocol.errors import Ask, AssayError

FINALIZED = "finalized"
"""Value of the setting that selects the node's finalized block."""
MOST_BLOCKS = 100_000


def policy_of(settings: Settings, max_spend: str | None = None) -> FeePolicy:
    """Fees, confirmations and finality. Raises Ask for an invalid value."""
    described = settings.describe()
    finality, tip, worth = described["finality"], described["tip"], described["token_worth"]
    return FeePolicy(
        max_fee_per_gas_wei=_wei("max_fee", described["max_fee"]),
        emergency_fee_per_gas_wei=_wei("emergency_fee", described["emergency_fee"]),
        token_worth_wei=_wei("token_worth", worth, "an amount such as 0.002ether") if worth.value else None,
        tip_wei=None if tip.value == "auto" else _wei("tip", tip),
        bump_percent=_whole("fee_bump", described["fee_bump"], LEAST_BUMP_PERCENT, 1_000),
        confirmations=_whole("confirmations", described["confirmations"], 0, MOST_BLOCKS),
        final_blocks=None if finality.value == FINALIZED else _whole("finality", finality, 0, MOST_BLOCKS),
        spend_limit_wei=parse_amount(max_spend) if max_spend else None,
    )


def _wei(name: str, setting: Setting, takes: str = "an amount such as 2gwei, for each unit of gas") -> int:
    try:
        return parse_amount(setting.value)
    except AssayError as error:
        raise _bad(name, setting, takes) from error


def _whole(name: str, setting: Setting, least: int, most: int) -> int:
    text = setting.value.strip()
    if not text.isascii() or not text.isdecimal() or not least <= int(text[:9]) <= most:
        also = f', or "{FINALIZED}"' if name == "finality" else ""
        raise _bad(name, setting, f"a whole number from {least} to {most}{also}")
    return int(text)


def _bad(name: str, setting: Setting, takes: str) -> Ask:
    return Ask(
        f"{name} is {setting.value!r} ({setting.origin}); it takes {takes}",
        hint=f"change --{name.replace('_', '-')}, ASSAY_{name.upper()} or {name} in assay.toml",
        code="bad-config",
    )

"""An account's earnings over its whole time, less gas."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.app import earnings
from assay.app.earnings import net
from assay.app.invocation import App
from assay.app.settings import Flags, Settings
from assay.chain.contracts.ledger import FREE, Entry, Ledger
from assay.chain.eth.rpc import Rpc
from assay.protocol.types import Address

ME = Address("0x" + "1" * 40)
TOK = 10**18
STAKE = "solver stake"


def of(
    *entries: tuple[int, str, str, int], role: str = "solver", worth: str | None = None, gas: Any = None
) -> Any:
    """The net of these entries: block, pot, kind, tokens; a block lasts a minute."""
    told = tuple(Entry(block, 0, "0x", pot, kind, tokens * TOK, "") for block, pot, kind, tokens in entries)
    app = cast(App, SimpleNamespace(settings=Settings(Flags(home="/nowhere", token_worth=worth))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(earnings, "_gas_wei", lambda *_: gas)
        patch.setattr(earnings, "get_block", lambda rpc, block: {"timestamp": 60 * block})
        return net(app, Ledger(ME, 99, told, {}), role, cast(Rpc, None))


WORKED = (10, STAKE, "staked", 100), (40, FREE, "pay", 7), (70, FREE, "pay", 5), (90, STAKE, "unbonded", -100)


def test_an_hour_is_from_the_first_stake_to_the_last_pay() -> None:
    found = of(*WORKED)
    assert (found.seconds, found.left, found.hour) == (3_600, 12 * TOK, 12 * TOK)
    assert found.data == {
        "gasWei": None,
        "gas": None,
        "left": str(12 * TOK),
        "hour": str(12 * TOK),
        "seconds": 3_600,
    }


def test_gas_is_taken_off_where_somebody_says_what_a_token_is_worth() -> None:
    assert of(*WORKED, gas=10**15).left == 12 * TOK
    found = of(*WORKED, gas=10**15, worth="0.0005ether")
    assert (found.gas, found.left, found.hour) == (2 * TOK, 10 * TOK, 10 * TOK)


def test_what_was_slashed_is_lost() -> None:
    assert of(*WORKED, (95, STAKE, "slashed", -20)).hour == -8 * TOK


def test_without_a_stake_or_a_pay_nobody_knows_what_an_hour_is() -> None:
    for role, entries in (
        ("solver", WORKED[:1]),
        ("whistleblower", ((10, FREE, "bond", -20), (11, FREE, "reward", 9))),
    ):
        found = of(*entries, role=role)
        assert found.seconds == 0 and found.hour is None


def test_the_gas_of_an_account_without_a_journal_is_not_known(tmp_path: Path) -> None:
    app = cast(App, SimpleNamespace(settings=Settings(Flags(home=str(tmp_path), keystore=str(tmp_path)))))
    assert earnings._gas_wei(app, ME) is None

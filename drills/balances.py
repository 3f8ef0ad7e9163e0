"""Accounts for every token of a market: the sum over all parties is the whole supply.

Contract: balances are read from the contracts at one block; a table that does not add up to the supply
raises, so that no demonstration ends with tokens unaccounted for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from assay.app.output import table
from assay.app.units import show_amount
from assay.app.wiring import Connection
from assay.protocol.errors import Stop
from assay.protocol.types import Address, Role


@dataclass(frozen=True)
class Snapshot:
    """Tokens at one block, in smallest units.

    `parties`: wallet, free balance and stakes of each. `held`: in the vault for jobs, games, and votes on
    fallen claims. `burnt`: gone from the ledger for good; `undestroyed` of it is still in the vault's
    balance until anyone calls `destroy`.
    """

    parties: dict[str, int]
    held: int
    burnt: int
    undestroyed: int
    supply: int

    @property
    def total(self) -> int:
        return sum(self.parties.values()) + self.held

    def check(self, minted: int) -> None:
        """Raises Stop unless balances, the vault and what was burnt add up to what was minted."""
        gone = self.burnt - self.undestroyed
        if self.total + self.burnt != minted or self.supply + gone != minted:
            raise Stop(
                f"tokens do not add up: held {self.total}, burnt {self.burnt} ({self.undestroyed} not yet"
                f" destroyed), supply {self.supply}, minted {minted}",
                hint="this is a bug in the contracts; keep the devnet's folder and report it",
                code="tokens-lost",
            )


def snapshot(connection: Connection, parties: Mapping[str, Address]) -> Snapshot:
    """Reads every party's tokens. `parties` must name every account that ever held any."""
    market = connection.market
    market.refresh()
    contracts = market.contracts
    with market.snapshot():
        holdings = {}
        for name, address in parties.items():
            stakes = [market.stake(address, role) for role in Role]
            holdings[name] = (
                market.wallet(address)
                + market.free(address)
                + sum(stake.active + stake.unbonding for stake in stakes)
            )
        vault = contracts["Vault"]
        # Fees and rewards that wait are in the Tasks contract's own balance.
        held = int(market.held) + market.free(Address(contracts["Tasks"].address))
        burnt, undestroyed = int(vault.read("burnt")), int(vault.read("undestroyed"))
    supply = int(connection.total_supply())
    return Snapshot(holdings, held, burnt, undestroyed, supply)


def balance_table(before: Snapshot, after: Snapshot) -> Table:
    """Table of balances before, after, and the difference, for every party, with a total."""
    rows = table("tokens before and after", "party", "#before", "#after", "#change")

    def add(name: str, old: int, new: int) -> None:
        change = new - old
        sign = "+" if change > 0 else ""
        rows.add_row(
            name, show_amount(old), show_amount(new), f"{sign}{show_amount(change)}" if change else "0"
        )

    for name in before.parties:
        add(name, before.parties[name], after.parties[name])
    add("held for jobs and games", before.held, after.held)
    add("burnt", before.burnt, after.burnt)
    add("all together", before.total + before.burnt, after.total + after.burnt)
    return rows

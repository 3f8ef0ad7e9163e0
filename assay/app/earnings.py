"""Shows an account's ledger as tables: entries with reasons, totals, and whether they reconcile.

Contract: totals cover every entry, however few lines are shown. They are compared with the contracts'
balances, and the result is shown either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from assay.app.chain_settings import policy_of
from assay.app.invocation import App
from assay.app.output import plain, table
from assay.app.times import show_moment, show_span
from assay.app.units import round_amount, show_amount
from assay.app.wiring import JOURNAL_FILE
from assay.chain.contracts.ledger import FREE, Book, Entry, Ledger, ledger, stake_pot
from assay.chain.contracts.view import ChainView
from assay.chain.eth.fees import UNIT
from assay.chain.eth.journal import Journal
from assay.chain.eth.keystore import Keystore
from assay.chain.eth.rpc import Rpc, RpcFailed, get_block
from assay.node.roles import NODE_ROLES
from assay.node.unpaid_earnings import Pending, pending
from assay.protocol.errors import Stop
from assay.protocol.types import Address, JobId, Wei


class Fees:
    """Vote fees that each job has paid an account, also on claims wasted by a rewind; reads incrementally."""

    def __init__(self, view: ChainView, account: Address) -> None:
        self._view, self._account = view, account
        self._book: Book | None = None

    def __call__(self) -> dict[JobId, Wei]:
        """Fees by job, the first paid first. Raises RpcUnreachable."""
        self._book = self._book or Book(self._view, self._account)
        fees: dict[JobId, Wei] = {}
        for entry in self._book.read().entries:
            if entry.pot == FREE and entry.kind in ("fee", "compensation") and entry.job_id is not None:
                fees[entry.job_id] = Wei(fees.get(entry.job_id, 0) + entry.amount)
        return fees


def _earned_by(role: str) -> tuple[tuple[str, ...], str]:
    """Kinds of pay in the vault, and the stake that the role can lose."""
    facts = NODE_ROLES[role]
    return facts.pay, "" if facts.stake is None else stake_pot(facts.stake)


def earned(found: Ledger, role: str, job_id: JobId | None = None) -> int:
    """Net earnings of a role: its pay minus slashed stake or lost bonds."""
    kinds, pot = _earned_by(role)
    return sum(
        e.amount
        for e in found.entries
        if (job_id is None or e.job_id == job_id)
        and ((e.pot == FREE and e.kind in kinds) or (e.pot == pot and e.kind == "slashed"))
    )


@dataclass(frozen=True)
class Net:
    """Earnings of a role less gas, and over its time. Tokens are in smallest units."""

    earned: int
    gas_wei: int | None
    """Gas of the account's transactions from this home; None if it sent none from here."""
    gas: int | None
    """The same in tokens; None without --token-worth."""
    seconds: int
    """From the first stake to the last pay; 0 without both."""

    @property
    def left(self) -> int:
        return self.earned - (self.gas or 0)

    @property
    def hour(self) -> int | None:
        return self.left * 3600 // self.seconds if self.seconds else None

    @property
    def data(self) -> dict[str, Any]:
        amounts = {"gasWei": self.gas_wei, "gas": self.gas, "left": self.left, "hour": self.hour}
        shown = {name: None if amount is None else str(amount) for name, amount in amounts.items()}
        return {**shown, "seconds": self.seconds}


def net(app: App, found: Ledger, role: str, rpc: Rpc) -> Net:
    """Net earnings of an account in a role; gas is that of all its transactions, for any role."""
    kinds, pot = _earned_by(role)
    begun = [entry.block for entry in found.entries if entry.pot == pot][:1]
    paid = [entry.block for entry in found.entries if entry.pot == FREE and entry.kind in kinds][-1:]
    first, last = (_time(rpc, block) for block in (*begun, *paid)) if begun and paid else (None, None)
    gas_wei, worth = _gas_wei(app, found.account), policy_of(app.settings).token_worth_wei
    return Net(
        earned(found, role),
        gas_wei,
        gas_wei * UNIT // worth if gas_wei is not None and worth else None,
        last - first if first is not None and last is not None else 0,
    )


def _names(app: App, account: Address) -> list[str]:
    """Names of the account's key in this home."""
    return [stored.name for stored in Keystore(app.settings.keystore).list() if stored.address == account]


def _gas_wei(app: App, account: Address) -> int | None:
    """Sum over the journals of this home: an account has one for each name of its key."""
    paths = [app.node_home(name) / JOURNAL_FILE for name in _names(app, account)]
    spent = []
    for path in paths:
        if path.exists():
            journal = Journal(path)
            spent.append(journal.gas_wei(account))
            journal.close()
    return sum(spent) if spent else None


def show_earnings(app: App, address: Address, role: str, job: str | None, limit: int) -> None:
    """Prints an account's ledger, newest last, with a role's totals. Raises Stop for an unknown job."""

    connection = app.view()
    market = connection.market
    job_id = None if job is None else app.job_id(market, job)
    found = ledger(market, address)
    entries = [e for e in found.entries if job_id is None or e.job_id == job_id]
    shown = entries[-limit:]
    to_come = [one for one in pending(market, address, role) if job_id is None or one.job_id == job_id]
    times = {block: _time(connection.rpc, block) for block in {entry.block for entry in shown}}
    over = None if job_id is not None else net(app, found, role, connection.rpc)
    data = {
        "account": address,
        "role": role,
        "block": found.block,
        "earned": str(earned(found, role, job_id)),
        "net": over and over.data,
        "byJob": {f"0x{j.hex()}": str(earned(found, role, j)) for j in _jobs(entries)},
        "entries": [_entry_data(entry, times[entry.block]) for entry in shown],
        "leftOut": len(entries) - len(shown),
        "pending": [{**plain(one), "amount": str(one.amount)} for one in to_come],
        "pots": {pot: str(held) for pot, held in found.pots.items()},
        "reconciles": not found.gaps,
    }
    app.output.result("earnings", data, _lines(found, shown, times, connection.clock.now()))
    if not app.output.as_json:
        app.output.out.print(_sums(app, found, role, job_id, entries, shown, over), markup=False)
        if to_come:
            app.output.out.print(_to_come(to_come, connection.clock.now()))
    if found.gaps:
        gaps = ", ".join(f"{pot} by {show_amount(gap)}" for pot, gap in found.gaps.items())
        raise Stop(
            f"the events do not add up to what the contracts hold: {gaps}; the figures shown may be wrong by"
            " that, and this command has sent nothing",
            hint="this is a bug; keep the home folder and report it",
            code="bug",
        )


def _time(rpc: Rpc, block: int) -> int | None:
    """A block's timestamp; None if the node no longer has the block."""
    try:
        found = get_block(rpc, block)
    except RpcFailed as failure:
        if not failure.lacks_block:
            raise
        found = None
    return None if found is None else found["timestamp"]


def _jobs(entries: list[Entry]) -> list[JobId]:
    return list(dict.fromkeys(e.job_id for e in entries if e.job_id is not None))


def _entry_data(entry: Entry, time_s: int | None) -> dict[str, Any]:
    body: dict[str, Any] = plain(entry)
    return {**body, "amount": str(entry.amount), "time": time_s}


def signed(amount: int) -> str:
    """``+3 tok``, ``-20 tok``, ``0 tok``."""
    return ("+" if amount > 0 else "") + round_amount(amount)


def _lines(found: Ledger, shown: list[Entry], times: dict[int, int | None], now: int) -> Table:
    rows = table(f"ledger of {found.account}", "when", "pot", "#amount", "why")
    for entry in shown:
        time_s = times[entry.block]
        when = f"block {entry.block}" if time_s is None else show_moment(time_s, now)
        rows.add_row(when, entry.pot, signed(entry.amount), entry.words)
    return rows


def _to_come(payments: list[Pending], now: int) -> Table:
    rows = table("to come, if nobody disputes", "what", "#amount", "settles", "why then")
    for one in payments:
        when = "not known yet" if one.due is None else f"from {show_moment(one.due, now)}"
        rows.add_row(f"{one.place} of job {one.job_id.hex()[:16]}", signed(one.amount), when, one.why)
    return rows


def _net_lines(over: Net) -> list[str]:
    gas = "gas: not known, as no transaction of this account was sent from this home"
    if over.gas_wei is not None:
        in_tokens = "--token-worth 0.002ether takes it off" if over.gas is None else round_amount(over.gas)
        gas = f"gas of all that it sent from this home: {round_amount(over.gas_wei, 'ether')} ({in_tokens})"
    after = "" if over.gas is None else "after gas "
    since = f" in {show_span(over.seconds)}, from the first stake to the last pay" if over.seconds else ""
    hour = "" if over.hour is None else f": {signed(over.hour)} an hour"
    return [gas, f"{after}{signed(over.left)}{since}{hour}"]


def _sums(
    app: App,
    found: Ledger,
    role: str,
    job_id: JobId | None,
    entries: list[Entry],
    shown: list[Entry],
    over: Net | None,
) -> str:
    lines = []
    if len(shown) < len(entries):
        lines.append(f"{len(entries) - len(shown)} earlier entries are not shown: --limit {len(entries)}")
    of_job = "" if job_id is None else f" with job {job_id.hex()[:16]}"
    lines.append(f"earned as {role}{of_job}: {signed(earned(found, role, job_id))}")
    if job_id is None:
        lines += [f"  job {j.hex()[:16]}: {signed(earned(found, role, j))}" for j in _jobs(entries)]
    if over is not None:
        lines += _net_lines(over)
    for pot, held in found.pots.items():
        if held or found.total(pot):
            lines.append(
                f"{pot}: {round_amount(held)}" + (", as the entries add up to" if not found.gaps else "")
            )
    whose = (
        "" if app.flags.account else "".join(f" --account {name}" for name in _names(app, found.account)[:1])
    )
    lines.append(f"what is free goes to the wallet with: {app.command(f'token withdraw AMOUNT{whose}')}")
    return "\n".join(lines)

"""Shows an account's ledger as tables: entries with reasons, totals, and whether they reconcile.

Contract: totals cover every entry, however few lines are shown. They are compared with the contracts'
balances, and the result is shown either way.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from assay.app.invocation import App
from assay.app.output import plain, table
from assay.app.times import show_moment
from assay.app.units import round_amount, show_amount
from assay.chain.contracts.ledger import FREE, Book, Entry, Ledger, ledger
from assay.chain.contracts.view import ChainView
from assay.chain.eth.rpc import Rpc, RpcFailed, get_block
from assay.node.pending import Pending, pending
from assay.protocol.errors import Stop
from assay.protocol.types import Address, JobId, Wei

EARNED = {
    "solver": (("pay", "compensation"), "solver stake"),
    "verifier": (("fee",), "verifier stake"),
    "whistleblower": (("reward", "bond", "bond back", "bond won"), ""),
}
"""By role: kinds of pay in the vault, and the stake that it can lose."""


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


def earned(found: Ledger, role: str, job_id: JobId | None = None) -> int:
    """Net earnings of a role: its pay minus slashed stake or lost bonds."""
    kinds, pot = EARNED[role]
    return sum(
        e.amount
        for e in found.entries
        if (job_id is None or e.job_id == job_id)
        and ((e.pot == FREE and e.kind in kinds) or (e.pot == pot and e.kind == "slashed"))
    )


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
    data = {
        "account": address,
        "role": role,
        "block": found.block,
        "earned": str(earned(found, role, job_id)),
        "byJob": {f"0x{j.hex()}": str(earned(found, role, j)) for j in _jobs(entries)},
        "entries": [_entry_data(entry, times[entry.block]) for entry in shown],
        "leftOut": len(entries) - len(shown),
        "pending": [{**plain(one), "amount": str(one.amount)} for one in to_come],
        "pots": {pot: str(held) for pot, held in found.pots.items()},
        "reconciles": not found.gaps,
    }
    app.output.result("earnings", data, _lines(found, shown, times, connection.clock.now()))
    if not app.output.as_json:
        app.output.out.print(_sums(app, found, role, job_id, entries, shown), markup=False)
        if to_come:
            app.output.out.print(_to_come(to_come, connection.clock.now()))
    if found.gaps:
        gaps = ", ".join(f"{pot} by {show_amount(gap)}" for pot, gap in found.gaps.items())
        raise Stop(
            f"the events do not add up to what the contracts hold: {gaps}",
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


def _sums(
    app: App, found: Ledger, role: str, job_id: JobId | None, entries: list[Entry], shown: list[Entry]
) -> str:
    lines = []
    if len(shown) < len(entries):
        lines.append(f"{len(entries) - len(shown)} earlier entries are not shown: --limit {len(entries)}")
    of_job = "" if job_id is None else f" with job {job_id.hex()[:16]}"
    lines.append(f"earned as {role}{of_job}: {signed(earned(found, role, job_id))}")
    if job_id is None:
        lines += [f"  job {j.hex()[:16]}: {signed(earned(found, role, j))}" for j in _jobs(entries)]
    for pot, held in found.pots.items():
        if held or found.total(pot):
            lines.append(
                f"{pot}: {round_amount(held)}" + (", as the entries add up to" if not found.gaps else "")
            )
    lines.append(f"what is free goes to the wallet with: {app.command('token withdraw AMOUNT')}")
    return "\n".join(lines)

"""Whether what a node keeps of a market's events is what a read of all of them says."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from assay.chain.contracts.index import MarketIndex
from assay.chain.contracts.job_ledger import SEIZED, JobBook
from assay.chain.contracts.ledger import Book, ledger
from assay.chain.contracts.market import ChainMarket
from assay.protocol.errors import AssayError
from assay.protocol.types import Address, JobId


class Readings:
    """The ledgers of everybody, kept from one look to the next as a dashboard keeps them."""

    def __init__(self) -> None:
        self._books: dict[str, tuple[ChainMarket, Book]] = {}
        self._jobs: dict[JobId, tuple[ChainMarket, JobBook]] = {}
        self.looks = self.job_looks = 0

    def wrong(self, markets: dict[str, ChainMarket]) -> list[str]:
        """Differences from a read from genesis; empty if there are none."""
        found = [fault for name, market in markets.items() for fault in self._wrong(name, market)]
        return [*found, *self._wrong_jobs(next(iter(markets.values())))]

    def _wrong_jobs(self, market: ChainMarket) -> list[str]:
        """Differences in the jobs' ledgers, which together hold everything in the market's own entry."""
        try:
            with market.snapshot():
                found, seized = [], 0
                for job in market.jobs():
                    kept = self._jobs.get(job.job_id)
                    if kept is None or kept[0] is not market:
                        kept = self._jobs[job.job_id] = market, JobBook(market, job.job_id)
                    read = kept[1].read()
                    again = JobBook(market, job.job_id).read()
                    if (read.payments, read.events) != (again.payments, again.events):
                        found.append(f"job {job.job_id.hex()[:8]}: another ledger")
                    found += [
                        f"job {job.job_id.hex()[:8]}: {pot} is {gap} off" for pot, gap in read.gaps.items()
                    ]
                    seized += read.held(SEIZED)
                own = int(market.free(Address(market.contracts["Tasks"].address)))
        except AssayError:  # the node cannot be asked just now
            return []
        self.job_looks += 1
        return [*found, *([f"the market's own entry is {own - seized} off"] if own != seized else [])]

    def _wrong(self, name: str, market: ChainMarket) -> list[str]:
        kept = self._books.get(name)
        if kept is None or kept[0] is not market:
            kept = self._books[name] = market, Book(market, market.me)
        try:
            with market.snapshot():
                events = market.events()
                book = kept[1].read()
                again = ledger(market, market.me)
                tables = tables_of(market._index)
        except AssayError:  # the node cannot be asked just now
            return []
        self.looks += 1
        fresh = MarketIndex()
        for event in events:
            fresh.apply(event)
        found = [
            f"{name}: {table}" for table, content in tables_of(fresh).items() if tables[table] != content
        ]
        if book.entries != again.entries:
            found.append(f"{name}: the ledger has other entries")
        return [*found, *(f"{name}: {pot} is {gap} off" for pot, gap in book.gaps.items())]


def tables_of(index: MarketIndex) -> dict[str, Any]:
    """All tables, in the order of their keys."""
    tables = {each.name: getattr(index, each.name) for each in fields(index) if each.name != "just_over"}
    ordered = {name: list(table) for name, table in tables.items() if isinstance(table, dict)}
    return {**tables, "over": vars(index.over), "order": ordered, "claims": index.claim_ids()}

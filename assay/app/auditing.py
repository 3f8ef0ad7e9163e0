"""Audits a client's own jobs in the background: a whistleblower that samples a share of each.

Contract: a share of each of the account's jobs is audited, a tenth by default. The shares are on disk, and
the sample is derived from the node's secret, so a restart continues with the same. Faults are disputed while
the account has a free bond. Not guaranteed: that anything is audited while no process of the client runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from assay.app.invocation import App
from assay.app.resource_limits import limits_of
from assay.app.units import show_amount
from assay.app.wiring import CLOCK_AGE_S, Connection, NodeStorage
from assay.app.workers import sharing, workers_of
from assay.chain.eth.clock import ChainClock
from assay.disk import record
from assay.node.retention import Retention
from assay.protocol.errors import AssayError, Stop
from assay.protocol.ports import MarketView
from assay.protocol.types import ClaimId, JobId, JobView, Wei
from assay.protocol.words import show_place
from assay.whistleblower.policy import Limits, Mode
from assay.whistleblower.service import WhistleblowerService
from assay.whistleblower.shares import Shares

TENTH = 0.1
UNAUDITED = (
    "WARNING: you audit nothing of this job: where nobody else rechecks it, a solver gains by inventing about"
    " one task in a hundred, and nearly all verifiers by not replaying"
)
BONDS = 8
"""Maximum number of bonds in its own challenges."""
POLL_S = 1.0
STOP_S = 30.0
"""Seconds to wait for a running segment on exit."""
_KIND = "assay/audit-shares/1"


class AuditShares:
    """Share of each of an account's jobs to audit, in a file; a tenth by default."""

    def __init__(self, path: Path) -> None:
        self._path = path
        body = record.read_or_quarantine(path, _KIND, instead="a tenth of each job is audited")
        self._said: dict[str, float] = body or {}

    def say(self, job_id: JobId, share: float) -> None:
        """Sets the share of a job."""
        self._said[job_id.hex()] = share
        record.write(self._path, _KIND, self._said)

    def of(self, jobs: Iterable[JobView]) -> dict[JobId, float]:
        """Share by job, without jobs that are not audited."""
        shares = {job.job_id: self._said.get(job.job_id.hex(), TENTH) for job in jobs}
        return {job_id: share for job_id, share in shares.items() if share}


def checked(share: float) -> float:
    """Validates a share. Raises Stop unless it is 0 to 1."""
    if not 0 <= share <= 1:
        raise Stop(
            f"the share of segments to audit cannot be {share}",
            hint="give a number from 0 (none) to 1 (all)",
            code="bad-share",
        )
    return share


def shares_of(app: App, name: str) -> AuditShares:
    """The account's shares in this home."""
    return AuditShares(app.node_home(name) / "audit-shares")


class Auditing:
    """A thread that audits an account's open jobs for a `with` block."""

    def __init__(self, app: App, connection: Connection, storage: NodeStorage, name: str) -> None:
        self._app, self._connection, self._storage, self._name = app, connection, storage, name
        self._shares = shares_of(app, name)
        self._clock = ChainClock(connection.rpc, CLOCK_AGE_S)
        self._service: WhistleblowerService | None = None
        self._thread: threading.Thread | None = None
        self._told: set[JobId] = set()

    def __enter__(self) -> Auditing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def look(self) -> None:
        """Audits the account's open jobs, and reports once for each how, or what is missing. Errors are
        reported and do not propagate."""
        try:
            self._look()
        except AssayError as error:
            self._app.output.say(f"WARNING: nothing is audited: {error.message}; {error.hint}")

    def _look(self) -> None:
        market = self._connection.market
        own = [job for job in market.jobs() if job.terms.client == market.me and not job.progress.closed]
        shares = self._shares.of(own)
        for job in own:
            if job.job_id not in self._told:
                share = shares.get(job.job_id, 0.0)
                self._app.output.say(audit_told(market, job, share, self._app.command))
        self._told |= {job.job_id for job in own}
        if not shares:
            return
        bonds = Wei(BONDS * max(job.terms.challenge_bond for job in own))
        home = self._app.node_home(self._name)
        secret = self._connection.secret
        limits = Limits(Mode.PLAY, bonds, shares=Shares(secret, shares))
        if self._service is not None:
            self._service.limits = limits
            return
        self._service = self._made(home, secret, limits)
        self._thread = threading.Thread(target=self._service.run, name="audit", daemon=True)
        self._thread.start()

    def _made(self, home: Path, secret: bytes, limits: Limits) -> WhistleblowerService:
        connection, storage = self._connection, self._storage
        service = WhistleblowerService(
            connection.writer,
            storage.blocks,
            self._clock,
            home,
            secret,
            limits,
            limits_of(None, sharing(self._app.settings), self._app.settings.home),
            emit=Told(connection.market, self._app.output.say),
            pool=workers_of(self._app.settings, storage.store.root),
            poll_s=POLL_S,
        )
        service.loop.housekeeping = lambda: storage.follow(connection.market)
        service.retention = Retention(connection.market, storage.store, service.unclaimed)
        return service

    def stop(self) -> None:
        """Stops the thread and the segment it is replaying."""
        self._clock.stop()
        if self._thread is not None:
            self._thread.join(STOP_S)


def audit_told(market: MarketView, job: JobView, share: float, command: Callable[[str], str]) -> str:
    """Message to the client about the audit of a job."""
    if not share:
        return UNAUDITED
    whose = f"job {job.job_id.hex()[:16]}"
    told = f"audits {share:.0%} of {whose}'s claims and votes, drawn in secret, and disputes what is false"
    bond = job.terms.challenge_bond
    lack = bond - market.free(market.me)
    if lack <= 0:
        return told
    deposit = command(f"token deposit {show_amount(Wei(lack)).replace(' ', '')}")
    return (
        f"WARNING: {told.partition(',')[0]}, but cannot dispute: its bond of {show_amount(bond)} is not free"
        f" in the vault; `{deposit}` deposits what is missing"
    )


class Told:
    """Reports the audit's results to the client."""

    def __init__(self, market: MarketView, say: Callable[[str], None]) -> None:
        self._market, self._say = market, say

    def __call__(self, event: dict[str, Any]) -> None:
        name = event["event"]
        if name in ("audited", "found"):
            found = f"FALSE: {event['finding']}" if name == "found" else "right"
            whose = f" of {event['verifier']}" if int(event["verifier"], 16) else ""
            what = f"the vote{whose} on {self._place(event)}" if whose else self._place(event)
            self._say(f"audited {what}: {found}")
        elif name in ("announced", "opened", "convicted"):
            self._say(f"audit: {self._place(event)}: {name}: {event['reason']}")
        elif name in ("advice", "abandoned"):
            self._say(f"WARNING: audit: {event['reason']}")
        elif name == "ask":
            self._say(f"WARNING: audit: {event['error']}")

    def _place(self, event: dict[str, Any]) -> str:
        claim = self._market.claim(ClaimId(bytes.fromhex(event["claim"]))).claim
        return show_place(claim.kind, claim.round, claim.shard)

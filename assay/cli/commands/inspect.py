"""Audits claims for commands, as verifiers and whistleblowers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.app.invocation import App
from assay.protocol.errors import Ask
from assay.protocol.types import ClaimView, JobView, Kind, Phase

if TYPE_CHECKING:
    from assay.app.wiring import Connection, NodeStorage
    from assay.node.findings import Finding
    from assay.node.states import StateProvider

VIEW_STORE = "view"
FALLEN = (Phase.CONVICTED, Phase.VOID)


@dataclass
class Inspection:
    """A job with checked files, ready to replay any of its claims."""

    connection: Connection
    storage: NodeStorage
    job: JobView
    state_provider: StateProvider

    def close(self) -> None:
        self.storage.close()


def open_inspection(app: App, job: str) -> Inspection:
    """Fetches a job's files into the folder of views; `job`: an id or prefix. Raises Stop for an unknown job
    or hostile files."""
    connection = app.view()
    view = app.look_up(connection, job)
    storage = app.storage(VIEW_STORE)
    storage.follow(connection.market)
    with app.output.working("fetching and checking the job's files"):
        from assay.app.computing import engine_of
        from assay.app.resource_limits import RESOURCE_LIMITS
        from assay.node.states import open_state_provider

        state_provider = open_state_provider(
            connection.market,
            storage.blocks,
            view,
            RESOURCE_LIMITS,
            engine=engine_of(app.settings, brief=True),
        )
    return Inspection(connection, storage, view, state_provider)


def audit_view(inspection: Inspection, view: ClaimView) -> Finding | None:
    """The first fault of a claim; None if there is none."""
    from assay.node.audit import audit_claim

    return audit_claim(inspection.state_provider, view, None)


def first_finding(inspection: Inspection) -> Finding | None:
    """The first fault of the oldest false claim that stands; None if all are right."""
    claims = inspection.connection.market.claims(inspection.job.job_id)
    standing = (view for view in claims if not view.stale and view.status.phase not in FALLEN)
    return next((found for view in standing if (found := audit_view(inspection, view))), None)


def audit_place(inspection: Inspection, kind: Kind, round_: int, shard: int) -> Finding | None:
    """Audits the standing claim at a place. Raises Ask if there is none."""
    job_id = inspection.job.job_id
    view = inspection.connection.market.current(job_id, kind, round_, shard)
    if view is None:
        raise Ask(
            f"this job has no standing claim for {kind.name.lower()} {round_}/{shard}",
            hint="`assay job show` lists the claims",
            code="no-such-claim",
        )
    return audit_view(inspection, view)

"""``assay job forced error``: errors that a client forces in its own job, to see which verifiers pass them.

What was committed is kept in the account's folder (``forced-errors.json``): without its salt a forced error
cannot be revealed, and its deposit is lost.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.app.accounts import resolve
from assay.app.ids import job_id_of
from assay.app.invocation import App, app_of
from assay.app.output import table
from assay.app.units import parse_amount, show_amount
from assay.disk import record
from assay.protocol.errors import Stop
from assay.protocol.types import Address, ClaimView, JobId, Kind, Wei

commands = typer.Typer(no_args_is_help=True, help="Errors forced in one's own job to test its verifiers.")
_KIND = "assay/forced-errors/1"
Commitment = Annotated[
    str, typer.Argument(help="As `assay job forced_error ls` shows it; its beginning is enough.")
]


@dataclass(frozen=True)
class ErrorForced:
    """One forced error of this account."""

    commitment: str
    job: str
    solver: Address
    round: int
    shard: int
    salt: str
    deposit: Wei


def _path(app: App) -> Path:
    return app.node_home(app.settings.account) / "forced-errors.json"


def _load(app: App) -> list[ErrorForced]:
    """Raises DamagedRecord."""
    hint = "restore it from a backup: without the salts in it no forced error can be revealed"
    body = record.read(_path(app), _KIND, hint=hint, earlier=_unsealed)
    return [ErrorForced(**entry) for entry in body or ()]


def _unsealed(data: bytes) -> list[dict[str, Any]]:
    """A list without a checksum."""
    return [asdict(ErrorForced(**entry)) for entry in json.loads(data)]


def _save(app: App, forced_errors: list[ErrorForced]) -> None:
    record.write(_path(app), _KIND, [asdict(forced_error) for forced_error in forced_errors], private=True)


def _one(app: App, commitment: str) -> ErrorForced:
    found = [p for p in _load(app) if p.commitment.startswith(commitment.removeprefix("0x"))]
    if len(found) != 1:
        raise Stop(
            f"{len(found)} forced errors of this account begin with {commitment!r}",
            hint="`assay job forced_error ls` lists them",
            code="no-forced-error",
        )
    return found[0]


@commands.command()
def make(
    context: typer.Context,
    job: str,
    solver: Annotated[str, typer.Option(help="Who will commit the fault, by agreement with the client.")],
    round_: Annotated[int, typer.Option("--round")],
    shard: Annotated[int, typer.Option()],
    deposit: Annotated[
        str | None, typer.Option(help="At least the job's solver stake, which is meant.")
    ] = None,
) -> None:
    """Commit to a fault before its claim is committed. The deposit is lost if the claim is not convicted."""
    from assay.chain.contracts.forced_errors import Forcer, forced_error_commitment

    app = app_of(context)
    connection = app.connect()
    market, job_id = connection.writer, job_id_of(connection.market, job)
    terms = market.job(job_id).terms
    value = terms.solver_stake if deposit is None else parse_amount(deposit)
    address, salt = resolve(app, solver), secrets.token_bytes(32)
    commitment = forced_error_commitment(market.me, address, job_id, round_, shard, salt)
    place = f"round {round_}, shard {shard}"
    app.announce(f"force an error of {address} in {place}", value, worst_loss=value)
    made = ErrorForced(commitment.hex(), job_id.hex(), address, round_, shard, salt.hex(), value)
    _save(app, [*_load(app), made])
    if (missing := value - market.free(market.me)) > 0:
        market.deposit(connection.intent("deposit", missing), Wei(missing))
    Forcer(market).forced_error(connection.intent("forced-error", commitment.hex()), commitment, value)
    app.output.result("forced-error", made, f"committed {commitment.hex()}; it holds {show_amount(value)}")


@commands.command()
def reveal(context: typer.Context, commitment: Commitment) -> None:
    """Reveal a forced error before its claim is convicted."""
    from assay.chain.contracts.forced_errors import Forcer

    app = app_of(context)
    forced_error = _one(app, commitment)
    connection = app.connect()
    view = _claim_of(connection.market.claims(JobId(bytes.fromhex(forced_error.job))), forced_error)
    app.announce(f"reveal that claim 0x{view.claim_id.hex()} is a forced error")
    intent = connection.intent("reveal-forced-error", forced_error.commitment)
    result = Forcer(connection.writer).reveal(intent, view.claim, bytes.fromhex(forced_error.salt))
    app.output.result("transaction", result, f"revealed; transaction {result.tx_hash}")


def _claim_of(claims: Sequence[ClaimView], forced_error: ErrorForced) -> ClaimView:
    """The last claim of the forced error's place that its solver committed."""
    for view in reversed(claims):
        claim = view.claim
        place = (claim.kind, claim.round, claim.shard, claim.claimant)
        if place == (Kind.TASK, forced_error.round, forced_error.shard, forced_error.solver):
            return view
    raise Stop(
        f"{forced_error.solver} has not committed round {forced_error.round}, shard {forced_error.shard} yet",
        hint="wait for the claim: assay job watch",
        code="not-committed",
    )


@commands.command()
def finish(context: typer.Context, commitment: Commitment) -> None:
    """Get a convicted forced error's deposit back; after the expiry of one that was not convicted, burn
    it."""
    from assay.chain.contracts.forced_errors import Forcer

    app = app_of(context)
    forced_error = _one(app, commitment)
    connection = app.connect()
    app.announce(f"finish forced error {forced_error.commitment}")
    intent = connection.intent("finish-forced-error", forced_error.commitment)
    result = Forcer(connection.writer).finish(intent, bytes.fromhex(forced_error.commitment))
    _save(app, [p for p in _load(app) if p.commitment != forced_error.commitment])
    app.output.result("transaction", result, f"finished; transaction {result.tx_hash}")


@commands.command("ls")
def list_forced_errors(context: typer.Context) -> None:
    """Forced errors of this account that are not finished."""
    app = app_of(context)
    forced_errors = _load(app)
    rows = table("forced errors", "commitment", "job", "#round", "#shard", "solver", "#deposit")
    for forced_error in forced_errors:
        where = (
            str(forced_error.round),
            str(forced_error.shard),
            forced_error.solver,
            show_amount(forced_error.deposit),
        )
        rows.add_row(forced_error.commitment[:16], forced_error.job[:16], *where)
    app.output.result("forced errors", forced_errors, rows)

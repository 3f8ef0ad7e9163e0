"""``assay job plant``: faults that a client plants in its own job, to see which verifiers pass them.

What was planted is kept in the account's folder (``plants.json``): without its salt a plant cannot be
revealed, and its deposit is lost.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from assay.app.accounts import resolve
from assay.app.ids import parse_id
from assay.app.invocation import App, app_of
from assay.app.output import table
from assay.app.units import parse_amount, show_amount
from assay.protocol.errors import Stop
from assay.protocol.types import Address, ClaimView, JobId, Kind, Wei

commands = typer.Typer(no_args_is_help=True, help="Faults planted in one's own job to test its verifiers.")
Commitment = Annotated[str, typer.Argument(help="As `assay job plant ls` shows it; its beginning is enough.")]


@dataclass(frozen=True)
class Planted:
    """One plant of this account."""

    commitment: str
    job: str
    solver: Address
    round: int
    shard: int
    salt: str
    deposit: Wei


def _path(app: App) -> Path:
    return app.node_home(app.settings.account) / "plants.json"


def _load(app: App) -> list[Planted]:
    path = _path(app)
    return [Planted(**entry) for entry in json.loads(path.read_text())] if path.exists() else []


def _save(app: App, plants: list[Planted]) -> None:
    path = _path(app)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps([asdict(plant) for plant in plants], indent=2) + "\n")
    fresh.replace(path)


def _one(app: App, commitment: str) -> Planted:
    found = [p for p in _load(app) if p.commitment.startswith(commitment.removeprefix("0x"))]
    if len(found) != 1:
        raise Stop(
            f"{len(found)} plants of this account begin with {commitment!r}",
            hint="`assay job plant ls` lists them",
            code="no-plant",
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
    from assay.chain.contracts.forced_errors import Planter, plant_commitment

    app = app_of(context)
    connection = app.connect()
    market, job_id = connection.writer, JobId(parse_id(job))
    terms = market.job(job_id).terms
    value = terms.solver_stake if deposit is None else parse_amount(deposit)
    address, salt = resolve(app, solver), secrets.token_bytes(32)
    commitment = plant_commitment(market.me, address, job_id, round_, shard, salt)
    place = f"round {round_}, shard {shard}"
    app.announce(f"plant a fault of {address} in {place}", value, worst_loss=value)
    made = Planted(commitment.hex(), job_id.hex(), address, round_, shard, salt.hex(), value)
    _save(app, [*_load(app), made])
    if (missing := value - market.free(market.me)) > 0:
        market.deposit(connection.intent("deposit", missing), Wei(missing))
    Planter(market).plant(connection.intent("plant", commitment.hex()), commitment, value)
    app.output.result("plant", made, f"planted {commitment.hex()}; it holds {show_amount(value)}")


@commands.command()
def reveal(context: typer.Context, commitment: Commitment) -> None:
    """Reveal a plant before its claim is convicted."""
    from assay.chain.contracts.forced_errors import Planter

    app = app_of(context)
    plant = _one(app, commitment)
    connection = app.connect()
    view = _claim_of(connection.market.claims(JobId(bytes.fromhex(plant.job))), plant)
    app.announce(f"reveal that claim 0x{view.claim_id.hex()} is a plant")
    intent = connection.intent("reveal-plant", plant.commitment)
    result = Planter(connection.writer).reveal(intent, view.claim, bytes.fromhex(plant.salt))
    app.output.result("transaction", result, f"revealed; transaction {result.tx_hash}")


def _claim_of(claims: Sequence[ClaimView], plant: Planted) -> ClaimView:
    """The last claim of the plant's place that its solver committed."""
    for view in reversed(claims):
        claim = view.claim
        place = (claim.kind, claim.round, claim.shard, claim.claimant)
        if place == (Kind.TASK, plant.round, plant.shard, plant.solver):
            return view
    raise Stop(
        f"{plant.solver} has not committed round {plant.round}, shard {plant.shard} yet",
        hint="wait for the claim: assay job watch",
        code="not-committed",
    )


@commands.command()
def finish(context: typer.Context, commitment: Commitment) -> None:
    """Get a convicted plant's deposit back; after the expiry of one that was not convicted, burn it."""
    from assay.chain.contracts.forced_errors import Planter

    app = app_of(context)
    plant = _one(app, commitment)
    connection = app.connect()
    app.announce(f"finish plant {plant.commitment}")
    intent = connection.intent("finish-plant", plant.commitment)
    result = Planter(connection.writer).finish(intent, bytes.fromhex(plant.commitment))
    _save(app, [p for p in _load(app) if p.commitment != plant.commitment])
    app.output.result("transaction", result, f"finished; transaction {result.tx_hash}")


@commands.command("ls")
def list_plants(context: typer.Context) -> None:
    """Plants of this account that are not finished."""
    app = app_of(context)
    plants = _load(app)
    rows = table("plants", "commitment", "job", "#round", "#shard", "solver", "#deposit")
    for plant in plants:
        where = (str(plant.round), str(plant.shard), plant.solver, show_amount(plant.deposit))
        rows.add_row(plant.commitment[:16], plant.job[:16], *where)
    app.output.result("plants", plants, rows)

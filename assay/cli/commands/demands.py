"""``assay dispute demand``: demand that a claimant shows pieces of a committed state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import Annotated

import typer

from assay.app.ids import claim_id_of
from assay.app.invocation import app_of
from assay.app.output import table
from assay.app.units import show_amount
from assay.cli.commands.dispute_play import LOOK_S
from assay.cli.commands.inspect import open_inspection
from assay.protocol.demands import DemandView, StateLeaf
from assay.protocol.errors import Stop
from assay.protocol.params import CHUNKS

commands = typer.Typer(no_args_is_help=True, help="Demands for pieces of committed states.")
DemandId = Annotated[int, typer.Argument(help="Number of the demand.")]


@commands.command("ls")
def list_demands(
    context: typer.Context, job: Annotated[str | None, typer.Option(help="Only this job's.")] = None
) -> None:
    """List demands, oldest first."""
    app = app_of(context)
    market = app.view().market
    found = market.demands(None if job is None else app.job_id(market, job))
    rows = table("demands", "#demand", "claim", "#segment end", "demander", "outcome")
    for demand in found:
        what = demand.outcome or f"open until {demand.deadline}"
        rows.add_row(
            str(demand.demand_id), demand.claim_id.hex()[:16], str(demand.segment_end), demand.demander, what
        )
    app.output.result("demands", list(found), rows)


@commands.command("make")
def make(
    context: typer.Context,
    claim: Annotated[str, typer.Argument(help="The claim's id.")],
    end: Annotated[int, typer.Option(help="Which segment's end; 0: the input state.")],
    place: Annotated[
        list[str] | None, typer.Option(help="SLOT:LEAF, up to four times; four random leaves if none.")
    ] = None,
) -> None:
    """Demand leaves of a state: the claimant shows them in time or loses the claim."""
    from assay.protocol import trees

    app = app_of(context)
    connection = app.connect()
    market = connection.writer
    view = market.claim(claim_id_of(market, claim))
    ends = trees.build(view.roots)
    if not 0 <= end < ends.count:
        raise Stop(f"the claim has segment ends 0 to {ends.count - 1}", hint="choose --end", code="usage")
    terms = market.job(view.claim.job_id).terms
    slots = terms.program(view.claim.kind).slots
    named = [parse_place(text, slots) for text in place or ()]
    if len(named) > CHUNKS:
        raise Stop(f"a demand names at most {CHUNKS} leaves", hint="make another demand", code="usage")
    bond = terms.challenge_bond
    app.announce(f"demand pieces of segment end {end} of {claim}", bond, worst_loss=bond)
    intent = connection.intent("demand", claim, end, "+".join(place or ("random",)))
    places = named or random_places(intent, slots)
    proof = tuple(ends.proof(end))
    demand_id = market.demand(intent, view.claim, end, view.roots[end], proof, places)
    data = {"demand": demand_id, "claim": view.claim_id, "end": end, "places": places}
    app.output.result("demand", data, f"demand {demand_id}; a bond of {show_amount(bond)} lies on it")


@commands.command("expire")
def expire(context: typer.Context, demand_id: DemandId) -> None:
    """End a demand whose time is up: its claim falls, and the bond comes back."""
    app = app_of(context)
    connection = app.connect()
    market = connection.writer
    demand = _demand(market.demands(), demand_id)
    claim = market.claim(demand.claim_id).claim
    app.announce(f"end demand {demand_id}")
    from assay.dispute.player import missed

    while (now := connection.clock.now()) > demand.deadline and not missed(market, demand.deadline, now):
        app.output.say("its time is over; the market's clock counts that a few blocks later")
        time.sleep(LOOK_S)
    intent = connection.intent("expire-demand", demand_id)
    result = market.expire_demand(intent, demand_id, demand.asked, claim)
    app.output.result("transaction", result, f"ended; transaction {result.tx_hash}")


@commands.command("supply")
def supply(context: typer.Context, demand_id: DemandId) -> None:
    """Answer a demand; the state is fetched, or recomputed on this machine."""
    app = app_of(context)
    connection = app.connect()
    market = connection.writer
    demand = _demand(market.demands(), demand_id)
    inspection = open_inspection(app, market.claim(demand.claim_id).claim.job_id.hex())
    from assay.node.availability import pieces
    from assay.node.intents import intent

    app.announce(f"show what demand {demand_id} asks for")
    view = market.claim(demand.claim_id)
    chunks = pieces(inspection.state_provider, view, demand)
    key = intent("supply", demand_id, demand.claim_id, demand.deadline)
    result = market.supply(key, demand_id, demand.asked, view.claim, chunks)
    app.output.result("transaction", result, f"shown; transaction {result.tx_hash}")


def parse_place(text: str, slots: int) -> StateLeaf:
    """Parses SLOT:LEAF for a program with this many slots. Raises Stop."""
    slot, colon, leaf = text.partition(":")
    if not (colon and slot.isdecimal() and leaf.isdecimal() and int(leaf) < 1 << 32 and int(slot) < slots):
        hint = f"write SLOT:LEAF, with a slot from 0 to {slots - 1}"
        raise Stop(f"{text!r} is no leaf of this program's state", hint=hint, code="usage")
    return StateLeaf(int(slot), int(leaf))


def random_places(intent: str, slots: int) -> list[StateLeaf]:
    """CHUNKS places derived from the intent, which contains 64 random bits; a repeated command names the same
    places."""
    order = Random(intent)
    return [StateLeaf(order.randrange(slots), order.getrandbits(32)) for _ in range(CHUNKS)]


def _demand(demands: Sequence[DemandView], demand_id: int) -> DemandView:
    for demand in demands:
        if demand.demand_id == demand_id:
            return demand
    raise Stop(f"there is no demand {demand_id}", hint="assay dispute demand ls", code="not-found")

"""``assay solver release``: release a shard, showing the cost first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.app.accounts import resolve
from assay.app.invocation import App
from assay.app.output import plain
from assay.app.units import show_amount, show_count
from assay.protocol.errors import Stop
from assay.protocol.types import Address, JobId

if TYPE_CHECKING:
    from assay.app.wiring import Connection
    from assay.solver.release import Cost


def release(app: App, job: str, shard: int | None, *, later: bool, again: bool, operator: str | None) -> None:
    """Releases one or all shards of a job that this account, or an operator of its, holds.

    `later`: by the running node, as soon as nothing is owed; `again`: undoes that. Raises Stop if nothing is
    held, or for an operator's node.
    """
    from assay.solver.release import RELEASED_FILE, Released

    if operator and (later or again):
        raise Stop(
            "--later and --again tell this account's own node what to do, so they do not go with --for;"
            " nothing was sent",
            hint="leave out --for",
        )
    connection = app.connect()
    market, me = connection.writer, connection.writer.me
    who = operator or app.settings.account
    if operator:
        me = resolve(app, operator)
    job_id = app.job_id(market, job)
    view = market.job(job_id)
    name = job_id.hex()[:16]
    released = Released(app.node_home(app.settings.account) / RELEASED_FILE)
    if again:
        app.end_dry_run(f"let this account's node take shards of job {name} again")
        released.forget(job_id)
        text = f"this account's node may take shards of job {name} again"
        app.output.result("solver-release", {"job": job_id, "released": [], "again": True}, text)
        return
    held = [k for k in range(view.terms.shards) if market.holder(job_id, k).solver == me]
    shards = held if shard is None else [k for k in held if k == shard]
    if not shards:
        which = "no shard" if shard is None else f"not shard {shard}"
        raise Stop(
            f"{who} ({me}) holds {which} of job {name}; nothing was sent",
            hint=f"it holds shards {held}" if held else app.command(f"job show {name}") + " says who does",
            code="not-held",
        )
    costs = {k: _cost(connection, job_id, k, me) for k in shards}
    for k, cost in costs.items():
        app.output.say(f"shard {k}: {cost.why}")
        if cost.answering:
            app.output.say(
                f"  not settled yet: {show_count(cost.answering, 'claim')} of this account there; until then"
                " stakes stay locked, and its node has to run, to answer if they are disputed"
            )
    said = {"job": job_id, "shards": {str(k): plain(cost) for k, cost in costs.items()}, "again": False}
    each = ", ".join(map(str, shards))
    if later:
        app.announce(f"shard {each} of job {name} goes back as soon as nothing is owed")
        released.add(job_id, shards)
        told = f"noted: this account's running node gives shard {each} back once its task is committed"
        app.output.result("solver-release", {**said, "released": []}, told)
        return
    penalty = sum(cost.penalty for cost in costs.values())
    app.announce(f"give back shard {each} of job {name}", penalty, worst_loss=penalty)
    if not operator:
        released.add(job_id, shards)  # before it is open again, so that a running node does not take it
    results = [market.release(connection.intent("release", name, k), job_id, k) for k in shards]
    freed = sum(cost.freed for cost in costs.values())
    told = (
        f"shard {each} is given back: {show_amount(penalty)} burnt, {show_amount(freed)} of stake free again"
    )
    if not operator:
        told += f"; this account's node does not take it again unless `assay solver release --again {name}`"
    app.output.result("solver-release", {**said, "released": shards, "transactions": results}, told)


def _cost(connection: Connection, job_id: JobId, shard: int, me: Address) -> Cost:
    from assay.solver.release import cost_of

    market = connection.market
    with market.snapshot():
        parts = (market.claims(job_id), market.games(job_id), market.demands(job_id))
        return cost_of(market.job(job_id), shard, me, *parts, connection.clock.now())
